import type { RunId } from "../../../../plan/plan.js";
import { ifThere, type TargetState } from "../file-system.js";
import { readState } from "../control-files.js";
import { layoutOf } from "../layout.js";
import { type OtherFolders, searchFolders } from "./other-folders.js";
import { runIdIn } from "../named-run.js";
import type { UnfinishedRun } from "../../../port.js";
import { latestRun, readPlan } from "../stored-plan.js";

/** Finds unfinished runs of a job in sibling folders: those of other params. */
export async function findUnfinished(
  fs: TargetState,
  folders: OtherFolders,
  { job, base }: { job: string; base: RunId },
): Promise<UnfinishedRun[]> {
  // Only warnings depend on this. If the disk or the store fails, the run itself reports it.
  return await searchFolders(fs, folders, (folder) => unfinishedIn(fs, folder, { job, base })).catch(() => []);
}

async function unfinishedIn(
  fs: TargetState,
  folder: string,
  { job, base }: { job: string; base: RunId },
): Promise<UnfinishedRun | undefined> {
  try {
    const claim = layoutOf(folder, base).claim;
    const owner = runIdIn(await ifThere(fs.readText(claim)));
    if (owner === undefined || owner === base || !owner.startsWith(`${job}-`)) {
      return undefined;
    }
    const layout = layoutOf(folder, await latestRun(fs, folder, owner));
    const finished = runIdIn(await ifThere(fs.readText(layout.success)));
    const stored = finished === layout.runId ? undefined : await readPlan(fs, layout);
    if (stored === undefined || stored.pruned !== undefined || stored.plan.job !== job) {
      return undefined;
    }
    const state = await readState(fs, layout, { plan: stored.plan, published: false });
    return state.kind === "discarded" ? undefined : { plan: stored.plan, target: folder, held: state.kind === "held" };
  } catch {
    return undefined; // damage of another run is no error of this one
  }
}
