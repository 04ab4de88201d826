import { tombstoneText } from "../../../publish/pruned-run.js";
import { superseded } from "../common/damage.js";
import { ifThere } from "../common/file-system.js";
import { type Layout, nextLayout } from "../common/layout.js";
import type { PruneSteps } from "../common/pruning/earlier-files.js";
import { clearEarlierRuns } from "./clear.js";
import { withdraw } from "./swap.js";
import { objectAt, targetStateInS3 } from "./target-state.js";
import type { S3Tools } from "./tools.js";

/** How output in S3 is pruned. `folder`: the output folder that is pruned. */
export function s3Pruning(tools: S3Tools, folder: string): PruneSteps {
  const { store } = tools;
  const fs = targetStateInS3(store, folder);
  return {
    fs,
    async storeTombstone(layout, pruning) {
      const conditional = await tools.isExclusive();
      const object = objectAt(layout.plan);
      if (conditional || (await store.head(object)) === undefined) {
        await store.create(object, { body: tombstoneText(pruning), conditional });
      }
    },
    async takeDown(layout) {
      const check = (): Promise<void> => refuseNext(fs, layout);
      await withdraw(tools, { layout, check }, layout.success);
      await withdraw(tools, { layout, check }, layout.manifest);
      await clearEarlierRuns(tools, { fs, layout }, true);
    },
  };
}

/** Refuses to continue where a run was planned after a tombstone. @throws JobError PLAN_CHANGED */
async function refuseNext(fs: PruneSteps["fs"], layout: Layout): Promise<void> {
  const next = nextLayout(layout);
  if ((await ifThere(fs.identityOf(next.plan))) !== undefined) {
    throw superseded(layout, next.runId);
  }
}
