import type { Stage } from "./stage-times.js";

/** What one attempt did; its JSON is the last line that `run --json` prints. */
export interface RunReport {
  readonly runId: string;
  /** partial: this worker's share is done, that of others is not. */
  readonly status: "complete" | "already_complete" | "partial";
  readonly rowsPlanned: number;
  /** By this attempt. */
  readonly rowsScored: number;
  /** By this attempt. */
  readonly rowsRejected: number;
  /** By this attempt. */
  readonly rowsFiltered: number;
  /** Of those that it scored, the ones that took the prediction of a row before them. */
  readonly rowsDeduplicated: number;
  readonly spansPlanned: number;
  /** All that stand at the target now. */
  readonly spansCommitted: number;
  /** Found committed by another attempt. */
  readonly spansResumed: number;
  /** Files that came after the run was planned and are not part of it. */
  readonly shardsUnplanned: number;
  /** How long this attempt waited for its input, before `seconds` begin. */
  readonly inputWaitSeconds: number;
  readonly seconds: number;
  readonly batchSize: number | null;
  readonly provider: string | null;
  /** Those that were asked for before it and that the machine cannot run. */
  readonly providersMissing: readonly string[];
  /** Of the time between the first row and the last commit, the share that a session of the model spent on rows. */
  readonly engineBusy: number | null;
  /** Where that time went: see `stages`. */
  readonly stageSeconds: Readonly<Record<Stage, number>> | null;
  /** Units that workers did not read to their end, by why: the main thread read the rest of their rows, slower. */
  readonly unitsReadAgain: Readonly<Record<string, number>>;
  readonly output: string;
}

/** The names and order of design: one line, stable, for scripts. */
export function reportJson(report: RunReport): string {
  return JSON.stringify(reportFields(report));
}

export function reportFields(report: RunReport): Readonly<Record<string, unknown>> {
  return {
    run_id: report.runId,
    status: report.status,
    rows_planned: report.rowsPlanned,
    rows_scored: report.rowsScored,
    rows_rejected: report.rowsRejected,
    rows_filtered: report.rowsFiltered,
    rows_deduplicated: report.rowsDeduplicated,
    spans_planned: report.spansPlanned,
    spans_committed: report.spansCommitted,
    spans_resumed: report.spansResumed,
    shards_unplanned: report.shardsUnplanned,
    input_wait_seconds: rounded(report.inputWaitSeconds),
    seconds: rounded(report.seconds),
    rows_per_second: Math.round(rate(report)),
    batch_size: report.batchSize,
    provider: report.provider,
    providers_missing: report.providersMissing,
    engine_busy: rounded(report.engineBusy),
    stage_seconds: report.stageSeconds,
    units_read_again: report.unitsReadAgain,
    output: report.output,
  };
}

/** To three places: milliseconds, thousandths of a share. */
export function rounded(value: number | null): number | null {
  return value === null ? null : Math.round(value * 1000) / 1000;
}

/** One line for people. */
export function reportText(report: RunReport): string {
  const { runId, output } = report;
  if (report.status === "already_complete") {
    return `${runId}: already complete, ${count(report.rowsPlanned, "row")} in ${output}`;
  }
  const resumed = report.spansResumed === 0 ? "" : `, ${count(report.spansResumed, "span")} found committed`;
  const filtered = report.rowsFiltered === 0 ? "" : `, ${count(report.rowsFiltered, "row")} filtered out`;
  const rejected = report.rowsRejected === 0 ? "" : `, ${count(report.rowsRejected, "row")} rejected`;
  const seconds = report.seconds.toFixed(report.seconds < 10 ? 1 : 0);
  const status =
    report.status === "complete"
      ? "complete"
      : `partial, ${report.spansPlanned - report.spansCommitted} of ${count(report.spansPlanned, "span")} left to other workers`;
  return `${runId}: ${status}, ${count(report.rowsScored, "row")} scored in ${seconds} s (${showRate(rate(report))})${repeatedText(report.rowsDeduplicated)}${rejected}${filtered}${resumed} -> ${output}`;
}

/** Of rows that were scored: what follows their count. */
export function repeatedText(rows: number): string {
  return rows === 0 ? "" : `, ${showCount(rows)} of them as repeats`;
}

function rate({ rowsScored, seconds }: RunReport): number {
  return seconds > 0 ? rowsScored / seconds : 0;
}

/** "1,797 rows". */
export function count(value: number, noun: string): string {
  return `${showCount(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** "1,797": of a whole number, without `Intl`, whose first use takes 15 ms. */
export function showCount(value: number): string {
  return String(value).replaceAll(/\B(?=(?:\d{3})+$)/g, ",");
}

/** "45 s", "12 min", "3 h 40 min". */
export function showDuration(seconds: number): string {
  if (seconds < 120) {
    return `${Math.round(seconds)} s`;
  }
  const minutes = Math.round(seconds / 60);
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
  return minutes < 120 ? `${minutes} min` : rest === 0 ? `${hours} h` : `${hours} h ${rest} min`;
}

/** "2.4 M rows/s". */
export function showRate(rowsPerSecond: number): string {
  if (rowsPerSecond >= 1e6) {
    return `${(rowsPerSecond / 1e6).toFixed(2)} M rows/s`;
  }
  return rowsPerSecond >= 1e4 ? `${(rowsPerSecond / 1e3).toFixed(0)} k rows/s` : `${rowsPerSecond.toFixed(0)} rows/s`;
}
