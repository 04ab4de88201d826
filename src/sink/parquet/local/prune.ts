import { join } from "node:path";
import { tombstoneText } from "../../../publish/pruned-run.js";
import { superseded } from "../common/damage.js";
import { type FileSystem, ifThere } from "../common/file-system.js";
import { type Layout, nextLayout } from "../common/layout.js";
import type { PruneSteps } from "../common/pruning/earlier-files.js";
import { createDurably, makeRunFolder } from "./durable.js";
import { clearRun } from "./past-runs.js";
import { removeBefore, withdrawnBy } from "./swap.js";
import { withFolders } from "./temporary.js";

/** How output on a disk is pruned. `writer` names this process. */
export function diskPruning(fs: FileSystem, writer: string): PruneSteps {
  return {
    fs,
    async storeTombstone(layout, pruning) {
      const text = tombstoneText(pruning);
      await makeRunFolder(fs, layout);
      await withFolders({ fs, folders: [layout.temporary], check: check(fs, layout) }, async () => {
        await createDurably(fs, { temporary: join(layout.temporary, `plan.${writer}`), final: layout.plan, text });
      });
    },
    async takeDown(layout) {
      const folders = [layout.temporary, layout.withdrawn, withdrawnBy(layout, writer)];
      // A tombstone takes part in the races of runs as a run without rows does: see `withFolders` and `swapIn`.
      await withFolders({ fs, folders, check: check(fs, layout) }, async () => {
        await removeBefore(fs, layout, writer);
        await fs.sync(layout.folder);
        await ifThere(fs.sync(layout.rejects));
      });
      await clearRun(fs, layout);
    },
  };
}

/** Makes a check that no run was planned after a tombstone. @throws JobError PLAN_CHANGED */
function check(fs: FileSystem, layout: Layout): () => Promise<void> {
  const next = nextLayout(layout);
  return async () => {
    if ((await ifThere(fs.identityOf(next.plan))) !== undefined) {
      throw superseded(layout, next.runId);
    }
  };
}
