import { dirname, resolve } from "node:path";
import { checkReports } from "../../app/reports/check-reports.js";
import { checkSpools } from "../../app/check-spools.js";
import { estimateFields } from "../../report/spending/estimate-text.js";
import { runIdOf } from "../../plan/identity.js";
import { secondPlanOf, secondPlanFields, type SecondPlan, planText, targetText } from "../../report/plan-text.js";
import { plannedChecks } from "../../run/previewing/planned-checks.js";
import { type Preview, type PreviewedPlan, previewPlan } from "../../run/previewing/preview.js";
import type { RunState } from "../../run/state.js";
import type { SafeIo } from "../io.js";
import { alone, openLoaded } from "../../app/job-context.js";
import { type JobOptions, readSpec } from "../../app/reading/read-spec.js";
import { checkStoredRun, checkTarget } from "../../run/check-target.js";
import { type EngineSpec, withProviders } from "../../spec/engine-spec.js";
import { findWorker } from "../../app/worker.js";
import { forPerson, foundText } from "../dry-run.js";
import { createWarningLog } from "../logger.js";

interface PlanOptions extends JobOptions {
  readonly json?: boolean;
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
  };
  await using job = await openLoaded(loaded, spec, { log, attempt });
  const storedRun = await checkStoredRun(job);
  const { next, stored, refusal } = storedRun;
  const planned = await previewPlan(job, storedRun);
  const writing = next === "end" ? undefined : (planned.plan ?? stored?.plan);
  const ofSpools = writing === undefined ? [] : await checkSpools(job.spec, writing, folder);
  const { state, untried: ofTarget } = storedRun.isReached
    ? await checkTarget(job, writing, next === "plan")
    : { state: undefined, untried: [] };
  const untried = [...planned.untried, ...ofSpools, ...storedRun.untried, ...ofTarget];
  const runId = planned.plan?.runId ?? runIdOf(job.spec.name, job.spec.params, job.sha256);
  const target = { target: job.sink.target, found: state && foundText(runId, state), untried };
  const second = planned.plan && secondPlanOf(planned.plan, planned.second);
  io.stdout.write(
    options.json === true
      ? `${JSON.stringify(planJson(planned, { state, untried, second }))}\n`
      : planned.plan === undefined
        ? targetText(target)
        : planText(planned.plan, {
            ...target,
            ...planned,
            untried,
            second,
            checks: plannedChecks(job, planned.plan),
          }),
  );
  if (refusal !== undefined) {
    throw refusal;
  }
}

interface Findings {
  readonly state: RunState | undefined;
  readonly untried: readonly string[];
  readonly second: SecondPlan | undefined;
}

function planJson(planned: Preview, { state, untried, second }: Findings): object {
  const isThere = state !== undefined && state.status !== "not_planned";
  return {
    ...(planned.plan === undefined ? {} : previewJson(planned, second)),
    found: isThere ? { run_id: state.runId, status: state.status } : null,
    untried,
  };
}

function previewJson({ plan, estimate }: PreviewedPlan, second: SecondPlan | undefined): object {
  return {
    ...plan,
    ...secondPlanFields(second),
    ...(estimate === undefined ? {} : { estimate: estimateFields(estimate) }),
  };
}
