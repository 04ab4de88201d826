import { openJob } from "../../app/job-context.js";
import type { JobOptions } from "../../app/reading/read-spec.js";
import { statsJson, statsText } from "../../report/stats-text.js";
import { runStats } from "../../run/stats.js";
import { type SafeIo, terminalWidth } from "../io.js";

export interface StatsOptions extends JobOptions {
  readonly run?: string;
  readonly json?: boolean;
}

/** Prints the profiles of a run: of its predictions and, with checks, of its features. */
export async function statsCommand(spec: string, options: StatsOptions, io: SafeIo): Promise<void> {
  await using job = await openJob(spec, options);
  const stats = await runStats(job, options.run);
  io.stdout.write(`${options.json === true ? statsJson(stats) : statsText(stats, terminalWidth(io.stdout))}\n`);
}
