import { type ValueEnd, type ValueStatus, valueStatuses } from "../jobs/backfill.js";
import type { ExitCode } from "../util/errors.js";
import type { RowsOfRun } from "../publish/span-record.js";
import { count, reportFields, type RunReport, showCount } from "./report.js";
import { fitTable, sameValueFirst } from "./table.js";

/** The run of one value of a backfill. */
export interface BackfillRun extends ValueEnd {
  readonly value: string;
  readonly runId: string;
  /** The report of the attempt; undefined: it failed or was not started. */
  readonly report?: RunReport | undefined;
  readonly failure?: BackfillFailure | undefined;
  /** The digest of the model that the run's plan pins; undefined: there is no plan. */
  readonly modelSha256?: string | undefined;
}

export interface BackfillFailure {
  /** The code of a JobError, or BUG. */
  readonly code: string;
  readonly message: string;
  readonly hint: string | undefined;
}

export interface Backfill {
  readonly param: string;
  readonly first: string;
  readonly last: string;
  readonly runs: readonly BackfillRun[];
  /** The model of the runs that this command planned; undefined: it planned none. */
  readonly model?: { readonly uri: string; readonly version?: string | undefined; readonly sha256: string } | undefined;
}

const words: Readonly<Record<ValueStatus, string>> = {
  complete: "complete",
  already_complete: "already complete",
  partial: "partial",
  held: "held",
  discarded: "discarded",
  pruned: "pruned",
  failed: "failed",
  no_input: "without input",
  stopped: "stopped",
  not_started: "not started",
};

/**
 * The largest number of values for which the table shows all runs. With more values, it shows only the runs that are
 * not complete or have warnings.
 */
const mostShown = 400;

/** Lists the values with a status, at most the first `most`. */
export function valuesText(runs: readonly BackfillRun[], status: ValueStatus, most = 40): string {
  const values = runs.filter((run) => run.status === status).map(({ value }) => value);
  const more = values.length > most ? [`and ${count(values.length - most, "more value")}`] : [];
  return [...values.slice(0, most), ...more].join(", ");
}

/** Counts the runs by status: "90 runs: 87 complete, 1 held, 2 without input; 3 with warnings". */
export function totalsText(runs: readonly BackfillRun[]): string {
  const parts = valueStatuses.flatMap((status) => {
    const number = runs.filter((run) => run.status === status).length;
    return number === 0 ? [] : [`${showCount(number)} ${words[status]}`];
  });
  const warned = runs.filter(hasWarnings).length;
  return `${count(runs.length, "run")}: ${parts.join(", ")}${warned === 0 ? "" : `; ${showCount(warned)} with warnings`}`;
}

/** Whether its checks warned of a run, and did not hold it. */
function hasWarnings({ report }: BackfillRun): boolean {
  return report?.verdict?.warned !== undefined;
}

/**
 * The result of a backfill for people: a line for each value, the values without input, and the number of runs by
 * status.
 * @param width characters in a line of the terminal; undefined: there is none
 */
export function backfillText({ param, runs, model }: Backfill, width: number | undefined): string {
  const shown = runs.length <= mostShown ? runs : runs.filter((run) => !isComplete(run.status) || hasWarnings(run));
  const rows = shown.map(({ value, status, report, failure }) => [
    value,
    words[status],
    shownCount(writtenRows(report)?.output),
    shownCount(writtenRows(report)?.rejected),
    report === undefined || report.seconds === 0 ? "" : report.seconds.toFixed(1),
    firstLine(report?.verdict?.warned ?? report?.verdict?.failed[0] ?? failure?.message ?? ""),
  ]);
  const missing = valuesText(runs, "no_input");
  const others = model === undefined ? 0 : otherModels(runs, model.sha256);
  return [
    ...fitTable([[param, "status", "rows", "rejected", "seconds", ""], ...rows], {
      right: [2, 3, 4],
      width,
      leaveOut: sameValueFirst(rows, [4, 3, 2]),
      hasNotes: true,
    }),
    ...(others === 0
      ? []
      : [`${count(others, "run")} of these ${others === 1 ? "has" : "have"} the predictions of another model`]),
    ...(missing === "" ? [] : [`no input: ${missing}`]),
    totalsText(runs),
  ].join("\n");
}

/**
 * What all attempts together have made of a run's rows, also of a held run, whose rows are staged; undefined: the run is
 * discarded or rolled back, or its attempt has no report.
 */
function writtenRows(report: RunReport | undefined): RowsOfRun | undefined {
  return report?.status === "discarded" || report?.rolledBack !== undefined ? undefined : report?.rowsOfRun;
}

function shownCount(value: number | undefined): string {
  return value === undefined ? "" : showCount(value);
}

function isComplete(status: ValueStatus): boolean {
  return status === "complete" || status === "already_complete";
}

function otherModels(runs: readonly BackfillRun[], sha256: string): number {
  return runs.filter(({ modelSha256 }) => modelSha256 !== undefined && modelSha256 !== sha256).length;
}

function firstLine(text: string): string {
  const [line = ""] = text.split("\n");
  return line;
}

/** One value as a line of JSON. */
export function backfillRunJson(param: string, run: BackfillRun): string {
  const { value, runId, status, exitCode, report, failure, modelSha256 } = run;
  return JSON.stringify({
    param,
    value,
    ...(report === undefined ? { run_id: runId } : reportFields(report)),
    status,
    exit_code: exitCode,
    rows: writtenRows(report)?.output ?? null,
    model_sha256: modelSha256 ?? null,
    ...(failure === undefined ? {} : { code: failure.code, message: failure.message, hint: failure.hint ?? null }),
  });
}

/** The whole backfill as a line of JSON. */
export function backfillJson({ param, first, last, runs, model }: Backfill, exitCode: ExitCode): string {
  const valuesOf = (status: ValueStatus): string[] =>
    runs.filter((run) => run.status === status).map(({ value }) => value);
  const counts = valueStatuses.map((status) => [status, valuesOf(status).length]);
  return JSON.stringify({
    param,
    first,
    last,
    runs: runs.length,
    ...(Object.fromEntries(counts) as Record<ValueStatus, number>),
    values_failed: valuesOf("failed"),
    values_held: valuesOf("held"),
    values_no_input: valuesOf("no_input"),
    values_warned: runs.filter(hasWarnings).map(({ value }) => value),
    model: model === undefined ? null : { uri: model.uri, version: model.version ?? null, sha256: model.sha256 },
    exit_code: exitCode,
  });
}
