import type { RunId } from "../../../../plan/plan.js";
import {
  nothingRemoved,
  type PruneOutcome,
  type PruneRequest,
  type Removed,
} from "../../../../publish/prune-request.js";
import type { Pruning } from "../../../../publish/pruned-run.js";
import { JobError } from "../../../../util/errors.js";
import { refuseForeign } from "../claim.js";
import { ifThere, listFolder, type TargetState } from "../file-system.js";
import { isEarlier, isLater, isSameJob, type Layout, layoutOf, nextLayout, runOfPart } from "../layout.js";
import { runIdIn } from "../named-run.js";
import { latestRun, readPlan } from "../stored-plan.js";
import { splitRunId } from "../../../../plan/identity.js";

/** The steps of pruning that disks and S3 do differently. `layout`: of the tombstone. */
export interface PruneSteps {
  readonly fs: TargetState;
  /** Stores the tombstone as the plan of its number, unless that number has a plan. Durable when it returns. */
  readonly storeTombstone: (layout: Layout, pruning: Pruning) => Promise<void>;
  /**
   * Removes `_SUCCESS`, then the manifest, then the parts, rejects and working files of all runs before the tombstone.
   * Each step may be repeated. @throws JobError PLAN_CHANGED where a run was planned after the tombstone
   */
  readonly takeDown: (layout: Layout) => Promise<void>;
}

/** Removes the output of all runs in a folder, and leaves a tombstone. */
export async function pruneFolder(
  steps: PruneSteps,
  { place: folder, latest, pruning, dryRun }: PruneRequest,
): Promise<PruneOutcome> {
  const { fs } = steps;
  const layout = layoutOf(folder, pruning.tombstone);
  const { base } = splitRunId(latest);
  const now = await latestRun(fs, folder, base);
  if (isLater(now, layout) || (now !== latest && now !== layout.runId)) {
    return plannedMeanwhile(now);
  }
  const found = await earlierFiles(fs, layout);
  const isDone = found.files === 0 && (await readPlan(fs, layout))?.pruned !== undefined;
  if (dryRun || isDone) {
    return { kind: "removed", ...found };
  }
  try {
    await refuseForeign(fs, layout);
    await steps.storeTombstone(layout, pruning);
    if ((await readPlan(fs, layout))?.pruned === undefined) {
      return plannedMeanwhile(layout.runId); // before the tombstone was stored
    }
    await steps.takeDown(layout);
  } catch (error) {
    if (error instanceof JobError && error.code === "PLAN_CHANGED") {
      return plannedMeanwhile(nextLayout(layout).runId);
    }
    throw error;
  }
  return { kind: "removed", ...found };
}

function plannedMeanwhile(runId: RunId): PruneOutcome {
  return { kind: "retained", why: `run ${runId} was planned meanwhile` };
}

/** Counts the files of all runs before the tombstone that pruning removes. Plans and profiles are not among them. */
async function earlierFiles(fs: TargetState, layout: Layout): Promise<Removed> {
  const sizes: number[] = [];
  const add = async (folder: string, isOurs: (name: string) => boolean): Promise<void> => {
    const known = await fs.sizesIn?.(folder);
    for (const name of (await listFolder(fs, folder)).filter(isOurs)) {
      sizes.push(known?.get(name) ?? (await ifThere(fs.sizeOf(`${folder}/${name}`))) ?? 0);
    }
  };
  const ofEarlier = (name: string): boolean => isEarlier(runOfPart(name), layout);
  await add(layout.folder, ofEarlier);
  await add(layout.rejects, ofEarlier);
  for (const path of [layout.success, layout.manifest]) {
    if (isEarlier(runIdIn(await ifThere(fs.readText(path))), layout)) {
      sizes.push((await ifThere(fs.sizeOf(path))) ?? 0);
    }
  }
  for (const name of (await listFolder(fs, layout.runs)) as RunId[]) {
    if (isSameJob(name, layout) && !isLater(name, layout)) {
      const { staging, temporary, withdrawn, answers } = layoutOf(layout.folder, name);
      for (const folder of [staging, temporary, withdrawn, answers]) {
        await add(folder, () => true);
      }
    }
  }
  return { ...nothingRemoved, files: sizes.length, bytes: sizes.reduce((sum, size) => sum + size, 0) };
}
