import { groupRuns, type RunGroup } from "../jobs/prune-choice.js";
import { type HistoryRequest, latestFirst, type RecordedRun } from "../publish/recorded-run.js";
import type { JobContext } from "../scoring/context.js";

export interface History {
  /** The latest first. */
  readonly runs: readonly RecordedRun[];
  /** Whether there are more. */
  readonly more: boolean;
}

/** Reads at least the `last` runs of the job, if there are so many, by params. */
export async function recordedGroups(
  { spec, sink }: Pick<JobContext, "spec" | "sink">,
  request: Omit<HistoryRequest, "job">,
): Promise<RunGroup[]> {
  return groupRuns(await sink.history({ ...request, job: spec.name }));
}

/** Returns the latest runs of the job at its target. Writes nothing. */
export async function runHistory(job: Pick<JobContext, "spec" | "sink">, last: number): Promise<History> {
  const groups = await recordedGroups(job, { last: last + 1 });
  const found = latestFirst(groups.flatMap(({ runs }) => runs));
  return { runs: found.slice(0, last), more: found.length > last };
}
