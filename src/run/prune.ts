import type { JobSpec } from "../job/jobfile/job-spec.js";
import type { Sink } from "../targets/target.js";
import {
  type GroupChoice,
  type Retention,
  type RunGroup,
  choosePrevious,
  choosePruned,
  overParams,
  pinnedRuns,
  planOf,
  groupRuns,
} from "./series/prune-choice.js";
import { numberedRunId, sameSeries, splitRunId } from "./plan/identity.js";
import type { RunId } from "./plan/plan.js";
import { type PreviousTable, type Pruning, type Removed, nothingRemoved } from "./lifecycle/pruned-run.js";
import { openSecondJob } from "./second-job.js";
import { everyRun, isInFrontOfReaders } from "./lifecycle/recorded-run.js";
import type { OpenedJob, Attempt } from "../flow/opened-job.js";
import { JobError, orError } from "../base/errors.js";

/** What became of the old runs of some params. */
export interface PrunedRun {
  readonly runId: RunId;
  readonly params: Readonly<Record<string, string>>;
  readonly place: string;
  readonly removed: Removed;
  /** Why nothing was removed; undefined: it was. */
  readonly retained: string | undefined;
}

export interface PruneReport extends SeriesReport {
  readonly dryRun: boolean;
  /** What became of the predictions of the second model; undefined: there is none. */
  readonly second: SeriesReport | undefined;
  /** Why the predictions of the second model could not be pruned. */
  readonly failure: unknown;
}

/** What became of the runs of a series at one target. */
export interface SeriesReport {
  /** Old runs, the latest first; of those that were pruned before, the ones of which something was left. */
  readonly old: readonly PrunedRun[];
  /** How many runs are not old. */
  readonly kept: number;
  /** Previous tables that are gone, or would be dropped. */
  readonly tables: readonly PreviousTable[];
}

/**
 * Removes what is stored of old runs of this job's series, and of the predictions of its second model. If
 * only the latter fails, the report says why, and what was removed before.
 */
export async function pruneRuns(opened: OpenedJob, request: PruneCommand): Promise<PruneReport> {
  const { job, sink, attempt } = opened;
  const series = await seriesOf(job.spec, sink);
  const own = await pruneSeries(sink, attempt, request, series);
  const { dryRun } = request;
  try {
    const second = await pruneSecond(opened, request, series);
    return { ...own, dryRun, second, failure: undefined };
  } catch (error) {
    attempt.signal.throwIfAborted();
    return { ...own, dryRun, second: undefined, failure: error };
  }
}

async function pruneSecond(
  opened: OpenedJob,
  request: PruneCommand,
  { groups }: Series,
): Promise<SeriesReport | undefined> {
  const { job, attempt } = opened;
  await using second = await openSecondJob(opened);
  // What is missing once the run that it is compared with is over, is missing for good.
  const isOver = overParams(groups);
  const series = {
    ...(await seriesOf(second.job.spec, second.sink)),
    isOver: (group: RunGroup) => isOver(planOf(group)?.params ?? {}),
  };
  if (job.spec.challenger === undefined && series.groups.length === 0) {
    return undefined;
  }
  return await pruneSeries(second.sink, attempt, request, series);
}

interface PruneCommand {
  readonly retention: Retention;
  readonly dryRun: boolean;
}

interface Series {
  readonly groups: readonly RunGroup[];
  readonly pins: ReadonlyMap<string, RunId>;
  readonly isOver?: (group: RunGroup) => boolean;
}

async function seriesOf(spec: JobSpec, sink: Sink): Promise<Series> {
  const all = groupRuns(await sink.history({ job: spec.name, last: everyRun }));
  const groups = all.filter((group) => {
    const plan = planOf(group);
    return plan !== undefined && sameSeries(plan.params, spec.params);
  });
  return { groups, pins: pinnedRuns(all) };
}

/**
 * Removes what is stored of the old runs of a job's series. A run that is current, open, held or pinned by an open
 * run stays. Each run that is pruned leaves a tombstone, so that it is not scored again by itself.
 */
async function pruneSeries(
  sink: Sink,
  attempt: Attempt,
  { retention, dryRun }: PruneCommand,
  { groups, ...options }: Series,
): Promise<SeriesReport> {
  const old: PrunedRun[] = [];
  const choices = choosePruned(groups, retention, options);
  for (const choice of choices) {
    attempt.signal.throwIfAborted();
    const run = await pruneRun(sink, attempt, { choice, dryRun });
    old.push(...(run === undefined ? [] : [run]));
  }
  const choose = (all: readonly PreviousTable[]): PreviousTable[] => choosePrevious(all, retention, groups);
  const tables = (await sink.table?.prunePrevious(choose, dryRun)) ?? [];
  return { old, kept: choices.filter(({ kind }) => kind === "keep").length, tables };
}

/** undefined: it is not old, or nothing was left of it. */
async function pruneRun(
  sink: Sink,
  attempt: Attempt,
  { choice, dryRun }: { readonly choice: GroupChoice; readonly dryRun: boolean },
): Promise<PrunedRun | undefined> {
  if (choice.kind === "keep") {
    return undefined;
  }
  const { group } = choice;
  const { runId, place } = group.latest;
  const about = { runId, place, params: planOf(group)?.params ?? {} };
  if (choice.kind === "retain") {
    return { ...about, removed: nothingRemoved, retained: choice.why };
  }
  const prune = { place, latest: runId, pruning: pruningOf(attempt, group), dryRun };
  // A folder with files of others, or with damage, stays as it is and does not keep the others from being pruned.
  const outcome = await orError(
    () => sink.prune(prune),
    ({ code }) => code === "OUTPUT_FOREIGN" || code === "OUTPUT_DAMAGED",
  );
  if (outcome instanceof JobError || outcome.kind === "retained") {
    const why = outcome instanceof JobError ? outcome.message : outcome.why;
    return { ...about, removed: nothingRemoved, retained: why };
  }
  const { files, tables, rejects, profiles } = outcome;
  const isNothing = files + tables.length + rejects + profiles === 0;
  return choice.again && isNothing ? undefined : { ...about, removed: outcome, retained: undefined };
}

function pruningOf({ actingUser, dateMs }: Attempt, group: RunGroup): Pruning {
  const { latest, runs } = group;
  const plan = planOf(group);
  if (latest.pruned !== undefined) {
    return latest.pruned;
  }
  if (plan === undefined) {
    throw new Error(`run ${latest.runId} was chosen without a plan`);
  }
  const { base, number } = splitRunId(latest.runId);
  const published = runs.find(isInFrontOfReaders);
  return {
    tombstone: numberedRunId(base, number + 1),
    plan: latest.plan ?? plan,
    rows: published?.rows ?? null,
    rejected: published?.rejected ?? null,
    at: new Date(dateMs()).toISOString(),
    by: actingUser(),
  };
}
