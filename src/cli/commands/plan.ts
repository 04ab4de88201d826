import { dirname, resolve } from "node:path";
import { checkReports } from "../../app/reports/check-reports.js";
import { checkSpools } from "../../app/check-spools.js";
import { estimateFields } from "../../report/spending/estimate-text.js";
import { planText } from "../../report/plan-text.js";
import { type PreviewedPlan, previewPlan } from "../../run/previewing/preview.js";
import type { RunState } from "../../run/state.js";
import type { SafeIo } from "../io.js";
import { alone, openLoaded } from "../../app/job-context.js";
import { type JobOptions, readSpec } from "../../app/reading/read-spec.js";
import { checkStanding, checkTarget } from "../../run/check-target.js";
import { type EngineSpec, withProviders } from "../../spec/engine-spec.js";
import { findWorker } from "../../app/worker.js";
import { forPerson, foundText } from "../dry-run.js";
import { createWarningLog } from "../logger.js";

interface PlanOptions extends JobOptions {
  readonly json?: boolean;
  readonly onlyRejects?: boolean;
  /** In place of `engine.providers`. */
  readonly provider?: EngineSpec["providers"];
}

/** Prints a plan and ends as the run would end now: with exit code 0, or with the error that the run meets at once. */
export async function planCommand(spec: string, options: PlanOptions, io: SafeIo): Promise<void> {
  const loaded = forPerson(withProviders(await readSpec(spec, options), options.provider));
  const log = createWarningLog(io.stderr);
  const folder = dirname(resolve(spec));
  await checkReports({ loaded, folder, log });
  const attempt = {
    ...alone,
    worker: findWorker(undefined, process.env), // in a pod of several, as its run does
    onlyRejects: options.onlyRejects === true,
  };
  await using job = await openLoaded(loaded, spec, { log, attempt });
  const planned = await previewPlan(job);
  const ofSpools = await checkSpools(job.spec, planned.plan, folder);
  const { state, untried: ofTarget } = await checkTarget(job, planned.plan);
  const hasRun = state !== undefined && state.status !== "not_planned";
  const { refusal, untried: ofRun } = hasRun ? await checkStanding(job) : { refusal: undefined, untried: [] };
  const untried = [...planned.untried, ...ofSpools, ...ofTarget, ...ofRun];
  const { plan, estimate, rejectedRows } = planned;
  io.stdout.write(
    options.json === true
      ? `${JSON.stringify(planJson(planned, { state, untried }))}\n`
      : planText(plan, {
          target: job.sink.target,
          found: state && foundText(plan.runId, state),
          untried,
          estimate,
          rejectedRows,
        }),
  );
  if (refusal !== undefined) {
    throw refusal;
  }
}

interface Findings {
  readonly state: RunState | undefined;
  readonly untried: readonly string[];
}

function planJson({ plan, estimate, rejectedRows }: PreviewedPlan, { state, untried }: Findings): object {
  const isThere = state !== undefined && state.status !== "not_planned";
  return {
    ...plan,
    ...(rejectedRows === undefined ? {} : { rejected_rows: rejectedRows }),
    ...(estimate === undefined ? {} : { estimate: estimateFields(estimate) }),
    found: isThere ? { run_id: state.runId, status: state.status } : null,
    untried,
  };
}
