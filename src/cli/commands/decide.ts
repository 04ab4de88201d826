import { InvalidArgumentError } from "commander";
import { type CommandLine, paramAs, jsonFlag, type CommandAnswer } from "../flags.js";
import { dirname, resolve } from "node:path";
import { reportDecision } from "../../job/reporting.js";
import { type DecisionReport, type DecisionRequest, approveRun, discardRun } from "../../run/decide.js";
import { spellOut } from "../../run/hints.js";
import { everyRun } from "../../run/lifecycle/recorded-run.js";
import { sameSeries } from "../../run/plan/identity.js";
import { findRange, hasRange } from "../../run/series/backfill.js";
import { JobError } from "../../base/errors.js";
import { alone, openLoaded, readRunSpec } from "../../job/open.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import type { OpenedJob } from "../../flow/opened-job.js";
import { rowsOfRunText } from "../../report/report.js";
import { printable } from "../../base/texts.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

const paramsFlag = paramAs("Set a param of the spec; may be repeated. ds=2026-01-01..2026-01-31 means all held runs");

const deciding: CommandLine["flags"] = {
  "--reason <text>": ["Why; recorded with the decision", onceNotEmpty],
  "--by <name>": "Who decides, other than `checks`. Default: the Airflow task, else the user of this process",
  "--run <id>":
    "The run, as history lists it, in place of --param; with --param: refuse to decide if the latest run of these params has another id",
  ...jsonFlag,
};

export const discardCommand: CommandLine = {
  flags: {
    ...paramsFlag,
    ...deciding,
    "--skip": "Of a job with input.since: no later run reads the rows of this one. By default the next run does",
  },
  examples: ['infer-batch discard job.yaml --reason "features in grams"'],
  run: discard,
};

export const approveCommand: CommandLine = {
  flags: {
    ...paramsFlag,
    ...deciding,
    "--not-normal":
      "Compare no later run with this one, so that the next one like it is held, too. By default later runs may resemble it",
    "--allow-older": "Overwrite the rows of a newer run of this job (Postgres: upsert, replace)",
  },
  examples: ['infer-batch approve job.yaml --reason "prices rose on purpose"'],
  run: approve,
};

interface DecideOptions extends JobOptions {
  readonly reason?: string;
  readonly by?: string;
  readonly run?: string;
  readonly json?: boolean;
  readonly allowOlder?: boolean;
  readonly notNormal?: boolean;
  readonly skip?: boolean;
}

type Decide = (opened: OpenedJob, request: DecisionRequest) => Promise<DecisionReport>;

async function approve(spec: string, options: DecideOptions, io: SafeIo): Promise<CommandAnswer> {
  return await decideAll(spec, options, io, "approving", approveRun);
}

async function discard(spec: string, options: DecideOptions, io: SafeIo): Promise<CommandAnswer> {
  return await decideAll(spec, options, io, "discarding", discardRun);
}

/** The earliest first, until one fails. */
async function decideAll(
  spec: string,
  options: DecideOptions,
  io: SafeIo,
  act: string,
  work: Decide,
): Promise<CommandAnswer> {
  if (!hasRange(options.param)) {
    return await decide(spec, options, io, act, work);
  }
  const answers: CommandAnswer[] = [];
  const answer = {
    json: () => answers.map((each) => each.json()),
    text: () => answers.flatMap((each) => each.text(undefined)),
  };
  for (const param of await heldIn(spec, options, act)) {
    try {
      answers.push(await decide(spec, { ...options, param }, io, act, work));
    } catch (error) {
      return { ...answer, error };
    }
  }
  return answer;
}

async function heldIn(spec: string, options: DecideOptions, act: string): Promise<(readonly string[])[]> {
  const { range, others } = findRange(options.param);
  const { param, first, last } = range;
  const doing = `${act} the runs of ${param}=${first}..${last}`;
  if (options.run !== undefined) {
    throw new JobError("USAGE", `${doing}: --run names one run`, { hint: "leave out --run, or give one date" });
  }
  await readSpec(spec, { param: [...others, `${param}=${first}`] }); // refuses what is no date
  const loaded = await readSpec(spec, { param: [...others, `${param}=${last}`] });
  await using opened = await openLoaded(loaded, spec);
  const { name, params } = loaded.spec;
  const runs = await opened.sink.history({ job: name, last: everyRun });
  const held = runs.flatMap(({ plan, status }) => {
    const date = plan?.params[param] ?? "";
    // The hours of a range of days are meant, too; the days of a range of hours are not.
    const isOfRange = first <= date && date.length >= last.length && date.slice(0, last.length) <= last;
    const isMeant = (status === "held" || status === "approved") && isOfRange;
    return isMeant && sameSeries(plan?.params ?? {}, params) ? [`${param}=${date}`] : [];
  });
  if (held.length === 0) {
    throw new JobError("USAGE", `${doing}: none is held`, { hint: "infer-batch history lists the runs of all dates" });
  }
  return [...new Set(held)].toSorted().map((date) => others.concat(date));
}

async function decide(
  spec: string,
  options: DecideOptions,
  io: SafeIo,
  act: string,
  work: Decide,
): Promise<CommandAnswer> {
  const loaded = await readRunSpec(spec, options);
  const [fromClock] = loaded.clock;
  if (fromClock !== undefined) {
    const name = fromClock.replace(/^params\./, "");
    throw new JobError(
      "USAGE",
      `${act} a run of ${spec}: ${fromClock} comes from the clock, so it is not certain which run is meant`,
      {
        hint: `name it, as the message of the held run does: --param ${name}=2026-01-31`,
      },
    );
  }
  const log = createWarningLog(io.stderr);
  await using opened = await openLoaded(loaded, spec, {
    log,
    attempt: { ...alone, allowOlder: options.allowOlder === true },
  });
  const { by, reason, run: runId, notNormal = false, skip: skips = false } = options;
  const report = await work(opened, { by, reason, runId, notNormal, skips }).catch((error: unknown) => {
    throw spellOut(opened.job, error);
  });
  await reportDecision(
    { loaded, folder: dirname(resolve(spec)), record: opened.reporter.record, log, signal: opened.attempt.signal },
    report,
  );
  const { target } = opened.sink;
  return { json: () => decisionJson(report, target), text: () => decisionText(report, target) };
}

function decisionJson({ runId, state, already, rows, decision }: DecisionReport, output: string): object {
  const { output: written, rejected, filtered } = rows;
  const counts = { rows: written, rows_rejected: rejected, rows_filtered: filtered };
  return {
    run_id: runId,
    status: state,
    already,
    ...(state === "published" && counts),
    decision,
    output,
  };
}

function decisionText(report: DecisionReport, output: string): string[] {
  const { runId, state, carriedOut, rows, readers, isNeighbour, held } = report;
  const what =
    state === "published" ? `, ${rowsOfRunText(rows)} -> ${output}` : `; ${readers ?? "nothing of it is published"}`;
  const baseline = isNeighbour ? "; later runs may resemble it" : "";
  return [`${runId}: ${carriedOut ? "" : "already "}${state}${what}${baseline}`, ...held].map(printable);
}

function onceNotEmpty(value: string, before: string | undefined): string {
  if (before !== undefined) {
    throw new InvalidArgumentError("expected one text: the option was given before");
  }
  if (value.trim() === "") {
    throw new InvalidArgumentError("expected a text that is not empty, or no such option");
  }
  return value;
}
