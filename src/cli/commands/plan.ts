import { planText } from "../../report/plan-text.js";
import { previewPlan } from "../../run/preview.js";
import type { SafeIo } from "../io.js";
import { openJob } from "../../app/job-context.js";
import type { JobOptions } from "../../app/read-spec.js";
import { createWarningLog } from "../logger.js";

export async function planCommand(
  spec: string,
  options: JobOptions & { readonly json?: boolean },
  io: SafeIo,
): Promise<void> {
  await using job = await openJob(spec, options, { log: createWarningLog(io.stderr) });
  const plan = await previewPlan(job);
  io.stdout.write(options.json === true ? `${JSON.stringify(plan)}\n` : planText(plan, job.sink.target));
}
