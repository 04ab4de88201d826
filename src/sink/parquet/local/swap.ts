import { join } from "node:path";
import { errnoOf } from "../../../util/errors.js";
import { giveName } from "./durable.js";
import { type FileSystem, ifThere, listFolder } from "../common/file-system.js";
import { isEarlier, type Layout, runOfPart } from "../common/layout.js";
import { runIdIn } from "../common/named-run.js";
import { clearEarlier } from "./past-runs.js";
import { clearFolder } from "./temporary.js";

/**
 * Puts the parts of a later run in the place of those that readers see, who find no `_SUCCESS` meanwhile. Each step
 * may be repeated after a crash, and done by several at once.
 *
 * Only that the earlier run's `_SUCCESS` is gone is flushed here, before any of its parts goes. Nothing rests on the
 * other names before this run's `_SUCCESS` is there, and each finisher itself flushes both folders before it publishes
 * that one: `_rejects/` when the stale ones are gone, the output folder with the manifest's name. Until then all parts
 * are still where they were staged (without hard links: there or here), and no reader looks.
 */
export async function swapIn(
  fs: FileSystem,
  layout: Layout,
  { spans, writer }: { spans: readonly number[]; writer: string },
): Promise<void> {
  await clearEarlier(fs, layout);
  await withdrawSuccess(fs, layout, writer);
  await removeEarlier(fs, layout, layout.folder);
  await removeEarlier(fs, layout, layout.rejects);
  for (const span of spans) {
    await moveIn(fs, layout.committedPart(span), join(layout.folder, layout.part(span)));
  }
  // From here on nobody who still thinks that an earlier run's `_SUCCESS` stands can take this run's away: each made
  // its own folder in there before it looked, and makes it once.
  await clearFolder(fs, layout.withdrawn);
}

/** Where one attempt puts the `_SUCCESS` that it takes away. No other attempt makes this folder. */
export function withdrawnBy(layout: Layout, writer: string): string {
  return join(layout.withdrawn, writer);
}

/** Takes an earlier run's `_SUCCESS` away before any of its parts goes. */
async function withdrawSuccess(fs: FileSystem, layout: Layout, writer: string): Promise<void> {
  const text = await ifThere(fs.readText(layout.success));
  if (text !== undefined && runIdIn(text) === layout.runId) {
    return;
  }
  if (text !== undefined) {
    try {
      // Not unlinked: a finisher beside this one may have published this run's since it was read, and removed the
      // folder before.
      await fs.rename(layout.success, join(withdrawnBy(layout, writer), "success"));
    } catch (error) {
      const isGone = errnoOf(error) === "ENOENT" && (await ifThere(fs.readText(layout.success))) === undefined;
      if (!isGone) {
        throw error;
      }
    }
  }
  // Where it is gone too: whoever took it away may have died before this, and it must not come back over fewer parts.
  await fs.sync(layout.folder);
}

async function removeEarlier(fs: FileSystem, layout: Layout, folder: string): Promise<void> {
  const names = (await listFolder(fs, folder)).filter((name) => isEarlier(runOfPart(name), layout));
  for (const name of names) {
    await ifThere(fs.unlink(join(folder, name)));
  }
}

/** A second name first, so that the part counts as committed at every moment. */
async function moveIn(fs: FileSystem, from: string, to: string): Promise<void> {
  try {
    await giveName(fs, from, to);
  } catch (error) {
    // Moved before this attempt came to it: renamed, where there are no hard links.
    if (errnoOf(error) !== "ENOENT" || (await fs.identityOf(to).catch(() => undefined)) === undefined) {
      throw error;
    }
  }
}
