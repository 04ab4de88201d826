import { groupRuns, planOf, type RunGroup } from "../jobs/prune-choice.js";
import { isMarkedKept } from "../plan/kept-predictions.js";
import type { Plan } from "../plan/plan.js";
import { type HistoryRequest, latestFirst, type RecordedRun } from "../publish/recorded-run.js";
import type { JobContext } from "../scoring/context.js";
import { keptContext } from "./challenger/keep-predictions.js";

export interface History {
  /** The latest first. */
  readonly runs: readonly RecordedRun[];
  /** Whether there are more. */
  readonly more: boolean;
}

/** Whether a plan is of a job's own runs, and not of the predictions that another job keeps of its challenger. */
const isOwn = (plan: Plan): boolean => !isMarkedKept(plan);

/**
 * Reads at least the `last` runs of the job, if there are so many, by params. Leaves out those of another job with the
 * same name, which keeps the predictions of its challenger under it. @param isMeant tells the job's plans from others
 */
export async function recordedGroups(
  { spec, sink }: Pick<JobContext, "spec" | "sink">,
  request: Omit<HistoryRequest, "job">,
  isMeant = isOwn,
): Promise<RunGroup[]> {
  for (let last = request.last; ; last *= 2) {
    const found = await sink.history({ ...request, job: spec.name, last });
    const groups = groupRuns(found).filter((group) => isOfPlan(group, isMeant));
    const runs = groups.reduce((sum, group) => sum + group.runs.length, 0);
    if (runs >= request.last || found.length < last) {
      return groups;
    }
  }
}

/**
 * Whether a group of runs has a plan that is meant. A group whose plans are all damaged counts, too.
 * @param isMeant default: of a job's own runs, and not of the predictions that another job keeps of its challenger
 */
export function isOfPlan(group: RunGroup, isMeant = isOwn): boolean {
  const plan = planOf(group);
  return plan === undefined || isMeant(plan);
}

/** Returns the latest runs of the job at its target. Writes nothing. */
export async function runHistory(
  job: Pick<JobContext, "spec" | "sink">,
  last: number,
  isMeant = isOwn,
): Promise<History> {
  const groups = await recordedGroups(job, { last: last + 1 }, isMeant);
  const found = latestFirst(groups.flatMap(({ runs }) => runs));
  return { runs: found.slice(0, last), more: found.length > last };
}

/** Returns the latest runs that keep the predictions of the job's challenger; undefined: the spec keeps none. */
export async function keptHistory(context: JobContext, last: number): Promise<History | undefined> {
  await using sink = await context.openChallengerSink?.();
  return sink === undefined ? undefined : await runHistory(keptContext(context, sink), last, isMarkedKept);
}
