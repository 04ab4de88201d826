import { latestFirst, type RecordedRun } from "../publish/recorded-run.js";
import type { JobContext } from "../scoring/context.js";
import { keptContext } from "./challenger/keep-predictions.js";

export interface History {
  /** The latest first. */
  readonly runs: readonly RecordedRun[];
  /** Whether there are more. */
  readonly more: boolean;
}

/** Returns the latest runs of the job at its target. Writes nothing. */
export async function runHistory({ spec, sink }: Pick<JobContext, "spec" | "sink">, last: number): Promise<History> {
  const found = latestFirst((await sink.history?.({ job: spec.name, last: last + 1 })) ?? []);
  return { runs: found.slice(0, last), more: found.length > last };
}

/** Returns the latest runs that keep the predictions of the job's challenger; undefined: the spec keeps none. */
export async function keptHistory(context: JobContext, last: number): Promise<History | undefined> {
  await using sink = await context.openChallengerSink?.();
  return sink === undefined ? undefined : await runHistory(keptContext(context, sink), last);
}
