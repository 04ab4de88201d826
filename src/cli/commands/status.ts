import { InvalidArgumentError } from "commander";
import { type CommandLine, paramFlag, runFlag, type CommandAnswer } from "../flags.js";
import { firstLine } from "../../duckdb/sql.js";
import { printable, timeOfDay } from "../../base/texts.js";
import { comparisonFields, comparisonLines } from "../../report/agreement.js";
import { checksText, otherRowsText, paidFields, paidLine, rowsOfRunText, verdictFields } from "../../report/report.js";
import { showCount, count } from "../../base/shown-numbers.js";
import { lastErrorFields } from "../../run/lifecycle/recorded-run.js";
import { byChecks, decisionText } from "../../run/lifecycle/lifecycle.js";
import { fitTable, sameValueFirst, table } from "../../report/table.js";
import { type DescribedRun, requireLatest, runState } from "../../run/status.js";
import { timeOfDayAt } from "../../report/calls.js";
import type { Job } from "../../flow/opened-job.js";
import { JobError, messageOf } from "../../base/errors.js";
import { type RunOptions, openJob, openLoaded, readRunSpec } from "../../job/open.js";

export const statusCommand: CommandLine = {
  argument: ["Job specs, YAML files"],
  flags: {
    ...paramFlag,
    ...runFlag,
    "--held": "Show only runs that are held by their checks",
    "--failed": "Show only runs that are neither published nor held, and specs with an error",
    "--expect-by <time>": [
      "After this time of day in the spec's timezone, such as 06:00, end with 67 if the run of a spec is not published, and name each such job",
      timeOf,
    ],
    "--json": "Print one line of JSON for each spec",
  },
  examples: [
    "infer-batch status job.yaml",
    "infer-batch status jobs/*.yaml --held",
    "infer-batch status jobs/*.yaml --expect-by 06:00",
  ],
  run: showStatus,
};

interface StatusOptions extends RunOptions {
  readonly json?: boolean;
  readonly held?: boolean;
  readonly failed?: boolean;
  /** A time of day in each spec's time zone, after which its run should be published. */
  readonly expectBy?: string;
}

async function showStatus(specs: readonly string[], options: StatusOptions): Promise<CommandAnswer> {
  const [spec] = specs;
  const { held, failed, expectBy } = options;
  if (spec === undefined || specs.length > 1 || held === true || failed === true || expectBy !== undefined) {
    if (options.run !== undefined) {
      const doing = `looking for run ${options.run}`;
      throw new JobError("USAGE", `${doing}: --run needs one spec, without --held, --failed and --expect-by`);
    }
    return await statusOfSeveral(specs, options);
  }
  await using opened = await openLoaded(await readRunSpec(spec, options), spec);
  const state = await runState(opened.job, opened.sink, opened.reporter.log, opened.models.lookAtPaid);
  if (state.status !== "damaged") {
    requireLatest(state.runId, options.run); // of a damaged run, the number may not be known
  }
  return { json: () => stateJson(state), text: () => stateText(state), error: state.error };
}

function stateJson(state: DescribedRun): object {
  return {
    run_id: state.runId,
    status: state.status,
    rows_planned: state.rowsPlanned,
    rows_committed: state.rowsCommitted,
    rows: state.rowsOfRun?.output ?? null,
    rows_rejected: state.rowsOfRun?.rejected ?? null,
    rows_filtered: state.rowsOfRun?.filtered ?? null,
    spans_planned: state.spansPlanned,
    spans_committed: state.spansCommitted,
    verdict: verdictFields(state.verdict),
    ...comparisonFields(state.comparison, false),
    decision: state.decision,
    ...(state.paid === undefined ? {} : { paid: paidFields(state.paid) }),
    last_error: lastErrorFields(state.lastFailure ?? undefined),
    commands: state.commands,
    damage: state.damage,
    workers: state.attempts.map(({ worker, workers, writer, provider, batchSize, spans }) => ({
      worker,
      workers,
      writer,
      provider,
      batch_size: batchSize,
      spans,
    })),
    unfinished: state.unfinished.map(({ runId, command }) => ({ run_id: runId, command })),
    output: state.output,
  };
}

interface JobState {
  readonly spec: string;
  /** The state of the run; undefined: `error` says why it is unknown. */
  readonly state?: DescribedRun;
  readonly error?: unknown;
  /** What is expected of it; undefined: nothing was asked, or it is unknown. */
  readonly expected?: Expected;
}

interface Expected {
  readonly by: string;
  readonly timezone: string;
  /** null: it is not that late yet. */
  readonly isMet: boolean | null;
  readonly command: string;
}

async function statusOfSeveral(specs: readonly string[], options: StatusOptions): Promise<CommandAnswer> {
  const jobs: JobState[] = [];
  for (const spec of specs) {
    jobs.push(await stateOf(spec, options));
  }
  const listed = jobs.filter((job) => isShown(job, options));
  return {
    json: () =>
      listed.map(({ spec, state, error, expected }) => {
        const described = state === undefined ? { status: "error", error: messageOf(error) } : stateJson(state);
        return { spec, ...described, ...expectedJson(expected) };
      }),
    text(width) {
      const rows = listed.map(cellsOf);
      const fit = { right: [3, 4], width, leaveOut: sameValueFirst(rows, dispensable), hasNotes: true };
      return [...(rows.length === 0 ? [] : fitTable([headings, ...rows], fit)), totals(jobs)];
    },
    error:
      notPublished(jobs) ?? jobs.map(({ state, error = state?.error }) => error).find((error) => error !== undefined),
  };
}

function expectedJson(expected: Expected | undefined): object {
  return expected === undefined
    ? {}
    : { expected_by: { time: expected.by, timezone: expected.timezone, met: expected.isMet } };
}

/** undefined: all are published. The code is NOT_PUBLISHED, or that of a spec that cannot be read. */
function notPublished(jobs: readonly JobState[]): JobError | undefined {
  const missing = jobs.filter(({ expected }) => expected?.isMet === false);
  const [first] = missing;
  if (first?.expected === undefined) {
    return undefined;
  }
  const unknown = jobs.filter(({ error }) => error !== undefined);
  const wrong = unknown.map(({ error }) => error).find((error) => error instanceof JobError && error.exitCode === 64);
  const lines = [
    `looking for runs that should be published by ${first.expected.by}: ${missing.length} of ${count(jobs.length, "job")} ${missing.length === 1 ? "has" : "have"} none`,
    ...missing.map((job) => {
      const [spec, runId, status, , , why] = cellsOf(job);
      return `${spec}: run ${runId} is ${status}${why === "" ? "" : `: ${why}`}`;
    }),
    ...unknown.map(({ error }) => messageOf(error).replaceAll("\n", "\n  ")),
  ];
  return new JobError(wrong instanceof JobError ? wrong.code : "NOT_PUBLISHED", lines.join("\n  "), {
    hint: missing.map(({ expected }) => expected?.command).join("\n    "),
  });
}

async function stateOf(spec: string, options: StatusOptions): Promise<JobState> {
  try {
    await using opened = await openJob(spec, options);
    const state = await runState(opened.job, opened.sink, opened.reporter.log);
    return {
      spec,
      state,
      ...(options.expectBy && { expected: expectedOf(opened.job, opened.attempt.dateMs(), state, options.expectBy) }),
    };
  } catch (error) {
    if (error instanceof JobError) {
      return { spec, error };
    }
    throw error;
  }
}

function expectedOf({ spec, dateParam, command }: Job, nowMs: number, state: DescribedRun, by: string): Expected {
  if (dateParam === undefined && spec.input.since === undefined) {
    throw new JobError("USAGE", `expecting a run of ${spec.name} by ${by}: the job has no date`, {
      hint: "a run that was published once would count on every day: give the job a param such as ds: ${today}",
    });
  }
  const { timezone, params } = spec;
  const isDue = timeOfDayAt(nowMs, timezone) >= by;
  const [next, ...more] = state.commands;
  return {
    by,
    timezone,
    isMet: isDue ? state.status === "published" || state.status === "pruned" : null,
    command: next === undefined || more.length > 0 ? command(params, { verb: "status" }) : next,
  };
}

function isShown({ state }: JobState, { held = false, failed = false }: StatusOptions): boolean {
  const isHeld = state?.status === "held";
  const isFailed = !isHeld && state?.status !== "published" && state?.status !== "pruned";
  return held || failed ? (held && isHeld) || (failed && isFailed) : true;
}

const headings = ["spec", "run", "status", "rows committed", "planned", ""];

/** A narrow terminal may do without these columns, the least important first. */
const dispensable = ["planned", "rows committed", "run"].map((name) => headings.indexOf(name));

function cellsOf({ spec, state, error }: JobState): string[] {
  if (state === undefined) {
    return [spec, "", "error", "", "", firstLine(messageOf(error))];
  }
  const { runId, status, rowsCommitted, rowsPlanned, verdict, damage, lastFailure } = state;
  const rows = [rowsCommitted, rowsPlanned].map((value) =>
    value === null || status === "not_planned" ? "" : showCount(value),
  );
  const why = status === "published" ? verdict?.warned : (verdict?.failed[0] ?? damage[0] ?? lastFailure?.message);
  return [spec, runId, shownStatus(status), ...rows, firstLine(why ?? "")];
}

function totals(jobs: readonly JobState[]): string {
  const counts = new Map<string, number>();
  for (const { state } of jobs) {
    const status = state === undefined ? "error" : shownStatus(state.status);
    counts.set(status, (counts.get(status) ?? 0) + 1);
  }
  return `${count(jobs.length, "job")}: ${[...counts].map(([status, number]) => `${showCount(number)} ${status}`).join(", ")}`;
}

function stateText(state: DescribedRun): string[] {
  return [
    summary(state),
    ...reviewText(state),
    ...(state.paid === undefined ? [] : [`  ${paidLine(state.paid)}`]),
    ...failureText(state),
    ...commandsText(state),
    ...state.damage,
    ...attemptsText(state),
    ...state.unfinishedLines,
  ].map(printable);
}

function reviewText({ verdict, comparison, decision, readers }: DescribedRun): string[] {
  const failed = verdict?.outcome === "hold" ? "failed" : "failed (on_fail: warn)";
  return [
    ...(verdict?.failed ?? []).map((line) => `  ${failed}: ${line}`),
    ...(verdict?.warnings ?? []).map((line) => `  warning: ${line}`),
    ...(verdict?.notes ?? []).map((line) => `  note: ${line}`),
    ...(comparison === undefined ? [] : comparisonLines(comparison).map((line) => `  ${line}`)),
    ...(decision === null || decision.by === byChecks ? [] : [`  ${decisionText(decision, true)}`]),
    ...readers.map((line) => `  ${line}`),
  ];
}

function commandsText({ commands, purpose }: DescribedRun): string[] {
  return commands.map((command) => `  ${purpose === undefined ? "" : `${purpose}: `}${command}`);
}

function failureText({ lastFailure }: DescribedRun): string[] {
  if (lastFailure === null) {
    return [];
  }
  const [first = "", ...more] = lastFailure.message.split("\n");
  return [`  last error, at ${lastFailure.at}: ${first}`, ...more.map((line) => `  ${line}`)];
}

function summary(state: DescribedRun): string {
  const { runId, status, rowsPlanned, spansPlanned, spansCommitted, verdict, output } = state;
  if (status === "not_planned") {
    return `${runId}: not planned yet; nothing of it is in ${output}; to score it, or see why an attempt failed before it was planned:`;
  }
  if (status === "pruned") {
    return `${runId}: pruned, its output was removed -> ${output}`;
  }
  if (spansPlanned === null || rowsPlanned === null) {
    return `${runId}: damaged, its plan is gone or unreadable -> ${output}`;
  }
  if (spansCommitted === null) {
    return `${runId}: damaged, ${count(spansPlanned, "span")} planned (${count(rowsPlanned, "row")}) -> ${output}`;
  }
  const progress = `${showCount(spansCommitted)} of ${count(spansPlanned, "span")} committed (${rowsText(state, rowsPlanned)})`;
  return `${runId}: ${shownStatus(status)}, ${progress}${checksText(verdict)} -> ${output}`;
}

function shownStatus(status: DescribedRun["status"]): string {
  return status.replaceAll("_", " ");
}

/** Of a run whose spans are all committed, the rows of its output; before, how many of the planned rows are committed. */
function rowsText({ rowsCommitted, rowsOfRun }: DescribedRun, planned: number): string {
  const rows = rowsOfRun ?? { output: planned, rejected: 0, filtered: 0 };
  return rowsCommitted === planned
    ? rowsOfRunText(rows)
    : `${showCount(rowsCommitted ?? 0)} of ${[count(planned, "row"), ...otherRowsText(rows)].join(", ")}`;
}

function attemptsText({ attempts }: DescribedRun): string[] {
  if (attempts.length < 2) {
    return [];
  }
  return table(
    attempts.map(({ worker, workers, writer, spans }) => [`worker ${worker}/${workers}`, writer, count(spans, "span")]),
    { right: [2] },
  );
}

function timeOf(value: string): string {
  if (!timeOfDay.test(value)) {
    throw new InvalidArgumentError("expected a time of day such as 06:00");
  }
  return value;
}
