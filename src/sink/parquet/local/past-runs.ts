import { basename } from "node:path";
import type { RunId } from "../../../plan/plan.js";
import { type FileSystem, listFolder } from "../common/file-system.js";
import { isEarlier, isStaged, type Layout, layoutOf } from "../common/layout.js";
import { clearFolder } from "./temporary.js";

/** Folders of a run that nobody needs when it is finished, or given up for a later one. */
function workingFolders(layout: Layout): string[] {
  return [layout.temporary, layout.withdrawn, ...(isStaged(layout.runId) ? [layout.parts] : [])];
}

/** Removes what attempts made for a run that is past: one listing where there is nothing. */
export async function clearRun(fs: FileSystem, layout: Layout): Promise<void> {
  const names = new Set(await listFolder(fs, layout.control));
  for (const folder of workingFolders(layout)) {
    if (names.has(basename(folder))) {
      await clearFolder(fs, folder);
    }
  }
}

/**
 * The same for all runs before this one, whose plan stands: attempts of them that are still about lose the files that
 * they would publish, see `inTemporary`.
 */
export async function clearEarlier(fs: FileSystem, layout: Layout): Promise<void> {
  for (const name of (await listFolder(fs, layout.runs)) as RunId[]) {
    if (isEarlier(name, layout)) {
      await clearRun(fs, layoutOf(layout.folder, name));
    }
  }
}
