import { existsSync } from "node:fs";
import { openJob } from "../../app/job-context.js";
import type { JobOptions } from "../../app/reading/read-spec.js";
import { statsJson, statsText } from "../../report/stats-text.js";
import { runStats } from "../../run/stats.js";
import { JobError } from "../../util/errors.js";
import type { SafeIo } from "../io.js";

export interface StatsOptions extends JobOptions {
  readonly run?: string;
  readonly json?: boolean;
}

const runIdForm = /^[\w-]+-[0-9a-f]{12}(?:-r\d+)?$/;

/** Prints the profiles of a run: of its predictions and, with checks, of its features. */
export async function statsCommand(spec: string, options: StatsOptions, io: SafeIo): Promise<void> {
  if (runIdForm.test(spec) && !existsSync(spec)) {
    throw new JobError("USAGE", `reading the profiles of run ${spec}: only its job spec says where they are`, {
      hint: `infer-batch stats SPEC --run ${spec}`,
    });
  }
  await using job = await openJob(spec, options);
  const stats = await runStats(job, options.run);
  io.stdout.write(`${options.json === true ? statsJson(stats) : statsText(stats)}\n`);
}
