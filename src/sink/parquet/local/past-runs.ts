import { basename } from "node:path";
import type { RunId } from "../../../plan/plan.js";
import { type FileSystem, listFolder } from "../common/file-system.js";
import { isEarlier, type Layout, layoutOf } from "../common/layout.js";
import { clearFolder } from "./temporary.js";

/** Folders that a run needs no more once it is finished, or abandoned for a later one. */
function workingFolders(layout: Layout): string[] {
  return [layout.temporary, layout.withdrawn, layout.staging, layout.answers];
}

/** Removes the working files of a run that is over. Costs one listing where there are none. */
export async function clearRun(fs: FileSystem, layout: Layout): Promise<void> {
  const names = new Set(await listFolder(fs, layout.control));
  for (const folder of workingFolders(layout)) {
    if (names.has(basename(folder))) {
      await clearFolder(fs, folder);
    }
  }
}

/**
 * Removes the working files of all earlier runs. This run's plan must be stored: late attempts of those runs then lose
 * the files that they would publish, see `withFolders`.
 */
export async function clearEarlier(fs: FileSystem, layout: Layout): Promise<void> {
  for (const name of (await listFolder(fs, layout.runs)) as RunId[]) {
    if (isEarlier(name, layout)) {
      await clearRun(fs, layoutOf(layout.folder, name));
    }
  }
}
