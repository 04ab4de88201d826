import { estimateFields } from "../../report/spending/estimate-text.js";
import { planText } from "../../report/plan-text.js";
import { previewPlan } from "../../run/previewing/preview.js";
import type { SafeIo } from "../io.js";
import { openLoaded } from "../../app/job-context.js";
import { type JobOptions, readSpec } from "../../app/reading/read-spec.js";
import { checkTarget } from "../../run/check-target.js";
import { createWarningLog } from "../logger.js";

/** A dry run retries only for a short time, because a person waits for it. */
const mostRetrySeconds = 10;

export async function planCommand(
  spec: string,
  options: JobOptions & { readonly json?: boolean },
  io: SafeIo,
): Promise<void> {
  const loaded = await readSpec(spec, options);
  const retry = { ...loaded.spec.retry, max_seconds: Math.min(loaded.spec.retry.max_seconds, mostRetrySeconds) };
  const log = createWarningLog(io.stderr);
  await using job = await openLoaded({ ...loaded, spec: { ...loaded.spec, retry } }, spec, { log });
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
