import { estimateFields } from "../../report/spending/estimate-text.js";
import { planText } from "../../report/plan-text.js";
import { previewPlan } from "../../run/previewing/preview.js";
import type { Plan } from "../../plan/plan.js";
import type { RunState } from "../../run/state.js";
import type { SafeIo } from "../io.js";
import { alone, openLoaded } from "../../app/job-context.js";
import { type JobOptions, readSpec } from "../../app/reading/read-spec.js";
import { checkTarget } from "../../run/check-target.js";
import { forPerson } from "../dry-run.js";
import { createWarningLog } from "../logger.js";

export async function planCommand(
  spec: string,
  options: JobOptions & { readonly json?: boolean; readonly onlyRejects?: boolean },
  io: SafeIo,
): Promise<void> {
  const loaded = forPerson(await readSpec(spec, options));
  const log = createWarningLog(io.stderr);
  await using job = await openLoaded(loaded, spec, {
    log,
    attempt: { ...alone, onlyRejects: options.onlyRejects === true },
  });
  const { plan, estimate, rejectedRows } = await previewPlan(job);
  const { state, untried } = await checkTarget(job, plan);
  io.stdout.write(
    options.json === true
      ? `${JSON.stringify({ ...plan, ...(rejectedRows === undefined ? {} : { rejected_rows: rejectedRows }), ...(estimate === undefined ? {} : { estimate: estimateFields(estimate) }) })}\n`
      : planText(plan, {
          target: job.sink.target,
          found: state && foundText(plan, state),
          untried,
          estimate,
          rejectedRows,
        }),
  );
  if (options.json === true && state === undefined) {
    log.warn(`not checked: ${untried.join("; ")}`);
  }
}

/** The run that the target has, with its status; undefined: it has none. A run after `--new-run` has another id. */
function foundText({ runId }: Plan, found: RunState): string | undefined {
  return found.status === "not_planned"
    ? undefined
    : `${found.runId === runId ? "this run" : `run ${found.runId}`}: ${found.status.replaceAll("_", " ")}`;
}
