import { latestFirst, type RecordedRun } from "../publish/recorded-run.js";
import type { JobContext } from "../scoring/context.js";

/** Returns the latest runs of the job at its target, the latest first, and whether it has more. Writes nothing. */
export async function runHistory(
  { spec, sink }: Pick<JobContext, "spec" | "sink">,
  last: number,
): Promise<{ readonly runs: readonly RecordedRun[]; readonly more: boolean }> {
  const found = latestFirst((await sink.history?.({ job: spec.name, last: last + 1 })) ?? []);
  return { runs: found.slice(0, last), more: found.length > last };
}
