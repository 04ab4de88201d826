import { openLoaded, readSpecOfRun } from "../../job/job-context.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import { type RunStats, statsJson, statsText } from "../../report/stats-text.js";
import { runStats } from "../../run/history.js";
import { JobError } from "../../base/errors.js";
import { type SafeIo, terminalWidth } from "../io.js";

interface StatsOptions extends JobOptions {
  readonly run?: string;
  readonly json?: boolean;
}

/** Prints the profiles of a run: of its predictions and, with checks, of its features. */
export async function statsCommand(spec: string, options: StatsOptions, io: SafeIo): Promise<void> {
  const { run } = options;
  const loaded = await readSpec(spec, options, run === undefined ? {} : { standIns: "dates" });
  await using job = await openLoaded(loaded, spec);
  const stats = (await runStats(job, run)) ?? (await statsElsewhere(spec, { ...options, run: run ?? "" }));
  io.stdout.write(`${options.json === true ? statsJson(stats) : statsText(stats, terminalWidth(io.stdout))}\n`);
}

/** The profiles of a run with other params, which is not published. @throws JobError USAGE, DISCARDED, PRUNED */
async function statsElsewhere(spec: string, options: StatsOptions & { readonly run: string }): Promise<RunStats> {
  await using job = await openLoaded(await readSpecOfRun(spec, options), spec);
  const stats = await runStats(job, options.run);
  if (stats === undefined) {
    throw new JobError("USAGE", `reading the profiles of run ${options.run}: it has no profiles`, {
      hint: "infer-batch history shows its state",
    });
  }
  return stats;
}
