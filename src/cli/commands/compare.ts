import { compareModels } from "../../run/compare.js";
import { resolveCompared } from "../../app/compared-models.js";
import { openJob } from "../../app/job-context.js";
import type { JobOptions } from "../../app/reading/read-spec.js";
import { comparisonJson, comparisonText } from "../texts/compare-text.js";
import { type SafeIo, terminalWidth } from "../io.js";
import { createWarningLog } from "../logger.js";

export interface CompareCommandOptions extends JobOptions {
  readonly model: readonly string[];
  readonly limit: number;
  readonly tolerance: number;
  readonly json?: boolean;
}

/** Scores the first rows of a job with two models, and prints how fast they are and how far they agree. */
export async function compareCommand(spec: string, options: CompareCommandOptions, io: SafeIo): Promise<void> {
  await using job = await openJob(spec, options, { log: createWarningLog(io.stderr) });
  const [one, other] = await resolveCompared(job, options.model);
  const { limit, tolerance } = options;
  await using joiner = await job.openRowJoiner([]);
  const comparison = await compareModels(job, joiner, { one, other, limit, tolerance });
  const width = terminalWidth(io.stdout);
  io.stdout.write(
    options.json === true ? comparisonJson(comparison) : comparisonText(comparison, { tolerance, width }),
  );
}
