import { looking, ofNextRun } from "../../job/chain.js";
import { type CommandLine, paramFlag, providerFlag, type CommandAnswer } from "../flags.js";
import { stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { findWorker } from "../../job/attempt.js";
import { alone, openLoaded } from "../../job/open.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import { type CallContext, placeReports, plainUrlAt, tokenOf } from "../../job/reporting.js";
import { nextRunId } from "../../run/plan/identity.js";
import type { Plan } from "../../run/plan/plan.js";
import {
  type SecondPlan,
  checkLines,
  contractLines,
  estimateFields,
  planLines,
  secondPlanFields,
  secondPlanLines,
  secondPlanOf,
  targetLines,
} from "../../report/plan-text.js";
import {
  checkStoredRun,
  checkTarget,
  plannedChecks,
  type Preview,
  previewFirst,
  previewPlan,
  untriedGolden,
} from "../../run/preview.js";
import type { DescribedRun } from "../../run/status.js";
import { type EngineSpec, withProviders } from "../../job/jobfile/engine-spec.js";
import type { JobSpec } from "../../job/jobfile/job-spec.js";
import type { LoadedSpec } from "../../job/jobfile/load.js";
import { isObjectUri } from "../../job/jobfile/uri.js";
import { JobError, errnoOf, messageOf } from "../../base/errors.js";
import { type SpoolOptions, checkSpool, nearestExisting, requireWritableFolder, spoolRoot } from "../../base/spool.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

export const validateCommand: CommandLine = {
  flags: paramFlag,
  run: validate,
};

export const planCommand: CommandLine = {
  flags: { ...paramFlag, ...providerFlag, "--json": "Print the plan as JSON, with what was not checked" },
  examples: ["infer-batch plan job.yaml --param ds=2026-01-31"],
  run: showPlan,
};

interface PlanOptions extends JobOptions {
  readonly json?: boolean;
  readonly provider?: EngineSpec["providers"];
}

/** Ends as the run would end now: with exit code 0, or with the error that the run meets at once. */
async function showPlan(spec: string, options: PlanOptions, io: SafeIo): Promise<CommandAnswer> {
  const whole = forPerson(withProviders(await readSpec(spec, options), options.provider));
  const { loaded, chain } = await ofNextRun(whole, spec, looking);
  const log = createWarningLog(io.stderr);
  const folder = dirname(resolve(spec));
  await checkReports({ loaded, folder, log });
  const attempt = {
    ...alone,
    worker: findWorker(undefined, process.env), // in a pod of several, as its run does
  };
  await using opened = await openLoaded(loaded, spec, { log, attempt, chain });
  const storedRun = await checkStoredRun(opened);
  const { next, stored, refusal } = storedRun;
  const planned = await previewPlan(opened, storedRun);
  const writing = next === "end" ? undefined : (planned.plan ?? stored?.plan);
  const ofSpools = writing === undefined ? [] : await checkSpools(loaded.spec, writing, folder);
  const { state, untried: ofTarget } = storedRun.isReached
    ? await checkTarget(opened.job, opened.sink, log, writing, next === "plan")
    : { state: undefined, untried: [] };
  const untried = [...planned.untried, ...ofSpools, ...storedRun.untried, ...ofTarget];
  const runId = planned.plan?.runId ?? opened.job.base;
  const target = { target: opened.sink.target, found: state && foundText(runId, state), untried };
  const second = planned.plan && secondPlanOf(planned.plan, planned.second);
  const lines =
    planned.plan === undefined
      ? targetLines(target)
      : planLines(planned.plan, {
          ...target,
          ...planned,
          untried,
          second,
          checks: plannedChecks(loaded.spec, planned.plan),
        });
  return { json: () => planJson(planned, state, untried, second), text: () => lines, error: refusal };
}

function planJson(
  planned: Preview,
  state: DescribedRun | undefined,
  untried: readonly string[],
  second: SecondPlan | undefined,
): object {
  const isThere = state !== undefined && state.status !== "not_planned";
  return {
    ...(planned.plan !== undefined && {
      ...planned.plan,
      ...secondPlanFields(second),
      ...(planned.estimate && { estimate: estimateFields(planned.estimate) }),
    }),
    found: isThere ? { run_id: state.runId, status: state.status } : null,
    untried,
  };
}

/** Makes nothing. Returns the checks that would have failed and that may not matter, a line each. */
async function checkSpools(spec: JobSpec, plan: Plan, folder: string): Promise<readonly string[]> {
  const { input, output, checks } = spec;
  const inFiles = output.parquet !== undefined;
  const check = (use: SpoolOptions["use"], path?: string): Promise<void> =>
    checkSpool({ root: spoolRoot(folder, path), use });
  if (plan.input.shards.some(({ uri }) => isObjectUri(uri))) {
    await check("in", input.spool.path);
  }
  if (output.parquet !== undefined && isObjectUri(output.parquet.path)) {
    await check("out", output.parquet.spool?.path);
  }
  if (inFiles && checks?.unique !== undefined) {
    await check("keys");
  }
  if (inFiles) {
    return [];
  }
  // Rows go to a database through a file only if a span does not fit into its share of the memory.
  try {
    await check("rows");
    return [];
  } catch (error) {
    if (error instanceof JobError) {
      return [`whether each span fits into memory: ${error.message}`];
    }
    throw error;
  }
}

/** Warns of files that cannot be written, and of secrets that cannot be read. Writes nothing and calls nothing. */
async function checkReports(context: Pick<CallContext, "loaded" | "folder" | "log">): Promise<void> {
  const { loaded, folder, log } = context;
  const { report } = loaded.spec;
  const files = await placeReports(loaded, { folder, worker: { index: 0, count: 1 } });
  for (const key of ["html", "metrics"] as const) {
    const path = files[key];
    const why = path === undefined ? undefined : await whyUnwritable(path);
    if (why !== undefined) {
      log.warn(
        `checking report.${key}: ${path} cannot be written (${why}), and a run goes on without it; grant this user write access, or change report.${key}`,
      );
    }
  }
  for (const key of ["on_success", "on_failure", "on_held", "on_late"] as const) {
    await (report[key] === "" ? undefined : plainUrlAt(context, [key], report[key]));
  }
  const { openlineage } = report;
  if (openlineage !== undefined && openlineage.url !== "") {
    await plainUrlAt(context, ["openlineage", "url"], openlineage.url);
    await tokenOf(context, openlineage);
  }
}

/** @returns the error that writing the file would end with; undefined: none was found */
async function whyUnwritable(path: string): Promise<string | undefined> {
  try {
    if ((await stat(path).catch(() => undefined))?.isDirectory() === true) {
      return "EISDIR";
    }
    await requireWritableFolder(await nearestExisting(dirname(path)));
    return undefined;
  } catch (error) {
    return errnoOf(error) ?? messageOf(error);
  }
}

async function validate(spec: string, options: JobOptions, io: SafeIo): Promise<CommandAnswer> {
  const log = createWarningLog(io.stderr);
  const { loaded } = await ofNextRun(forPerson(await readSpec(spec, options)), spec, looking);
  await using opened = await openLoaded(loaded, spec, { log });
  const planned = await previewFirst(opened);
  if (planned === undefined) {
    const text = `${spec} is valid; no shard is there yet, so the binding and the target were not checked`;
    return { json: () => text, text: () => text };
  }
  const { plan, second } = planned;
  const golden = await untriedGolden(opened.job, opened.input, opened.attempt.signal);
  const { next, stored, refusal } = await checkStoredRun(opened);
  const isNew = next === "plan" && stored !== undefined; // `run` abandons the stored run
  const tried = isNew ? { ...plan, runId: nextRunId(stored.plan.runId) } : plan;
  const { state, untried } = await checkTarget(opened.job, opened.sink, log, tried, isNew);
  if (state?.error !== undefined) {
    throw refusal ?? state.error; // `state.error` of a held run: it has lost spans
  }
  const found = state && foundText(plan.runId, state);
  const lines = [
    `${spec} is valid`,
    ...contractLines(plan.contract),
    ...secondPlanLines(secondPlanOf(plan, second)),
    ...checkLines(plannedChecks(loaded.spec, plan)),
    ...targetLines({ target: opened.sink.target, found, untried: [...golden, ...untried] }),
  ];
  return { json: () => lines, text: () => lines };
}

/** A dry run retries only for a short time, because a person waits for it. */
const mostRetrySeconds = 10;

function forPerson(loaded: LoadedSpec): LoadedSpec {
  const { retry } = loaded.spec;
  const maxSeconds = Math.min(retry.max_seconds, mostRetrySeconds);
  return { ...loaded, spec: { ...loaded.spec, retry: { ...retry, max_seconds: maxSeconds } } };
}

/** undefined: the target has none. A run after `--new-run` has another id. */
function foundText(planned: string, { runId, status }: DescribedRun): string | undefined {
  return status === "not_planned"
    ? undefined
    : `${runId === planned ? "this run" : `run ${runId}`}: ${status.replaceAll("_", " ")}`;
}
