import { splitRunId } from "../../plan/identity.js";
import type { RunId } from "../../plan/plan.js";
import {
  nothingRemoved,
  type PruneOutcome,
  type PruneRequest,
  type Removed,
  tombstoneText,
} from "../../publish/pruned-run.js";
import { namesIn, type Store } from "../../stores/store.js";
import { JobError } from "../../util/errors.js";
import { stripVerdicts } from "../ledger.js";
import { superseded } from "./damage.js";
import { isEarlier, isLater, isSameJob, type Layout, layoutOf, nextLayout, runOfPart } from "./layout.js";
import { openLedger } from "./ledger.js";
import { sizesIn } from "./manifest.js";
import { lasting, latestRun, readPlan, refuseForeign, runIdIn, runIdsIn } from "./plan-file.js";
import { clearEarlierRuns, clearRun, withdraw } from "./publish.js";

/** Removes the output of all runs in a folder, and what is said of single rows there, and leaves a tombstone. */
export async function pruneFolder(
  store: Store,
  { place: folder, latest, pruning, dryRun }: PruneRequest,
): Promise<PruneOutcome> {
  const layout = layoutOf(folder, pruning.tombstone);
  const { base } = splitRunId(latest);
  const now = await latestRun(store, folder, base);
  if (isLater(now, layout) || (now !== latest && now !== layout.runId)) {
    return plannedMeanwhile(now);
  }
  const found = await earlierFiles(store, layout);
  const isDone = found.files === 0 && (await readPlan(store, layout))?.pruned !== undefined;
  if (dryRun) {
    return { kind: "removed", ...found };
  }
  if (isDone) {
    await stripVerdicts(openLedger(store, folder), latest);
    return { kind: "removed", ...found };
  }
  const next = nextLayout(layout);
  /** A run may be planned after the tombstone, which takes part in the races of runs as a run without rows does. */
  const check = async (): Promise<void> => {
    if ((await store.stat(next.plan)) !== undefined) {
      throw superseded(layout, next.runId);
    }
  };
  try {
    await refuseForeign(store, layout);
    await store.create(layout.plan, tombstoneText(pruning), lasting({ layout, check }));
    if ((await readPlan(store, layout))?.pruned === undefined) {
      return plannedMeanwhile(layout.runId); // before the tombstone was stored
    }
    await takeDown(store, layout, check);
  } catch (error) {
    if (error instanceof JobError && error.code === "PLAN_CHANGED") {
      return plannedMeanwhile(next.runId);
    }
    throw error;
  }
  await stripVerdicts(openLedger(store, folder), latest);
  return { kind: "removed", ...found };
}

function plannedMeanwhile(runId: RunId): PruneOutcome {
  return { kind: "retained", why: `run ${runId} was planned meanwhile` };
}

/**
 * Removes `_SUCCESS`, then the manifest, then the parts, rejects and working files of all runs before the tombstone. Each
 * step may be repeated. @throws JobError PLAN_CHANGED where a run was planned after the tombstone
 */
async function takeDown(store: Store, layout: Layout, check: () => Promise<void>): Promise<void> {
  await check();
  await clearEarlierRuns({ store, layout }, false);
  await withdraw({ store, layout, check }, layout.success);
  await withdraw({ store, layout, check }, layout.manifest);
  await clearEarlierRuns({ store, layout }, true);
  await clearRun(store, layout);
}

/** Counts the files of all runs before the tombstone that pruning removes. Plans and profiles are not among them. */
async function earlierFiles(store: Store, layout: Layout): Promise<Removed> {
  const sizes: number[] = [];
  const add = async (folder: string, isOurs: (name: string) => boolean): Promise<void> => {
    const sizeOf = await sizesIn(store, folder);
    for (const name of (await namesIn(store, folder)).filter(isOurs)) {
      sizes.push((await sizeOf(name)) ?? 0);
    }
  };
  const ofEarlier = (name: string): boolean => isEarlier(runOfPart(name), layout);
  await add(layout.folder, ofEarlier);
  await add(layout.rejects, ofEarlier);
  for (const path of [layout.success, layout.manifest]) {
    if (isEarlier(runIdIn(await store.readText(path)), layout)) {
      sizes.push((await store.stat(path))?.sizeBytes ?? 0);
    }
  }
  for (const name of await runIdsIn(store, layout)) {
    if (isSameJob(name, layout) && !isLater(name, layout)) {
      const { staging, temporary, withdrawn, answers } = layoutOf(layout.folder, name);
      for (const folder of [staging, temporary, withdrawn, answers]) {
        await add(folder, () => true);
      }
    }
  }
  return { ...nothingRemoved, files: sizes.length, bytes: sizes.reduce((sum, size) => sum + size, 0) };
}
