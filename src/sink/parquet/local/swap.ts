import { basename, join } from "node:path";
import { errnoOf } from "../../../util/errors.js";
import { linkOrRename } from "./durable.js";
import { type FileSystem, ifThere, listFolder } from "../common/file-system.js";
import { isEarlier, type Layout, runOfPart } from "../common/layout.js";
import { runIdIn } from "../common/named-run.js";
import { clearEarlier } from "./past-runs.js";
import { clearFolder } from "./temporary.js";

/**
 * Replaces the parts that readers see with those of a later run; readers find no `_SUCCESS` during the swap. Each step
 * may be repeated after a crash, and done by several attempts at once.
 *
 * Only the removal of the earlier run's `_SUCCESS` is flushed here, before any of its parts goes. Nothing depends on
 * the other names before this run's `_SUCCESS` exists, and each finisher flushes both folders before it publishes that:
 * `_rejects/` after stale files are removed, the output folder with the manifest's name. Until then all parts are still
 * where they were staged (without hard links: there or here), and readers wait.
 */
export async function swapIn(
  fs: FileSystem,
  layout: Layout,
  { spans, writer }: { spans: readonly number[]; writer: string },
): Promise<void> {
  await clearEarlier(fs, layout);
  await withdraw(fs, layout, { path: layout.success, writer });
  await removeEarlier(fs, layout, layout.folder);
  await removeEarlier(fs, layout, layout.rejects);
  for (const span of spans) {
    await moveIn(fs, layout.committedPart(span), join(layout.folder, layout.part(span)));
  }
  // From here on, an attempt that has read an earlier run's `_SUCCESS` cannot remove this run's: each attempt made its
  // own folder in there before it read, and makes it only once.
  await clearFolder(fs, layout.withdrawn);
}

/** Removes all that readers see of earlier runs: `_SUCCESS`, then the manifest, then parts and rejects. May be repeated. */
export async function removeBefore(fs: FileSystem, layout: Layout, writer: string): Promise<void> {
  await clearEarlier(fs, layout);
  await withdraw(fs, layout, { path: layout.success, writer });
  await withdraw(fs, layout, { path: layout.manifest, writer });
  await removeEarlier(fs, layout, layout.folder);
  await removeEarlier(fs, layout, layout.rejects);
}

/** The folder into which one attempt moves the `_SUCCESS` that it withdraws. No other attempt makes this folder. */
export function withdrawnBy(layout: Layout, writer: string): string {
  return join(layout.withdrawn, writer);
}

/** Withdraws an earlier run's `_SUCCESS` or manifest, before any of its parts is removed. */
async function withdraw(
  fs: FileSystem,
  layout: Layout,
  { path, writer }: { readonly path: string; readonly writer: string },
): Promise<void> {
  const text = await ifThere(fs.readText(path));
  if (text !== undefined && runIdIn(text) === layout.runId) {
    return;
  }
  if (text !== undefined) {
    try {
      // Moved, not unlinked: another finisher may have published this run's file since it was read, and have
      // removed the folder before.
      await fs.rename(path, join(withdrawnBy(layout, writer), basename(path)));
    } catch (error) {
      const isGone = errnoOf(error) === "ENOENT" && (await ifThere(fs.readText(path))) === undefined;
      if (!isGone) {
        throw error;
      }
    }
  }
  // Also when it is gone: the attempt that moved it may have died before this flush, and it must not come back over
  // fewer parts.
  await fs.sync(layout.folder);
}

async function removeEarlier(fs: FileSystem, layout: Layout, folder: string): Promise<void> {
  const names = (await listFolder(fs, folder)).filter((name) => isEarlier(runOfPart(name), layout));
  for (const name of names) {
    await ifThere(fs.unlink(join(folder, name)));
  }
}

/** Gives a part its final name while it still has the staged name, so that it counts as committed at every moment. */
async function moveIn(fs: FileSystem, from: string, to: string): Promise<void> {
  try {
    await linkOrRename(fs, from, to);
  } catch (error) {
    // Another attempt has moved the part: it was renamed, where there are no hard links. If not, `error` says what is wrong.
    if (errnoOf(error) !== "ENOENT" || (await fs.identityOf(to).catch(() => undefined)) === undefined) {
      throw error;
    }
  }
}
