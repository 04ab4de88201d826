import { estimateFields } from "../../report/spending/estimate-text.js";
import { planText } from "../../report/plan-text.js";
import { previewPlan } from "../../run/previewing/preview.js";
import type { SafeIo } from "../io.js";
import { openLoaded } from "../../app/job-context.js";
import { type JobOptions, readSpec } from "../../app/reading/read-spec.js";
import { checkTarget } from "../../run/check-target.js";
import { forPerson } from "../dry-run.js";
import { createWarningLog } from "../logger.js";

export async function planCommand(
  spec: string,
  options: JobOptions & { readonly json?: boolean },
  io: SafeIo,
): Promise<void> {
  const loaded = forPerson(await readSpec(spec, options));
  const log = createWarningLog(io.stderr);
  await using job = await openLoaded(loaded, spec, { log });
  const { plan, estimate } = await previewPlan(job);
  const { state, untried } = await checkTarget(job, plan);
  io.stdout.write(
    options.json === true
      ? `${JSON.stringify(estimate === undefined ? plan : { ...plan, estimate: estimateFields(estimate) })}\n`
      : planText(plan, { target: job.sink.target, status: state?.status, untried, estimate }),
  );
  if (options.json === true && state === undefined) {
    log.warn(`not checked: ${untried.join("; ")}`);
  }
}
