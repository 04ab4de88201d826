import type { RecordedSpending } from "../run/lifecycle/recorded-run.js";
import type { RunComparison } from "../run/lifecycle/erasure.js";
import type { RowsOfRun } from "../run/lifecycle/span-record.js";
import type { ExitCode, JobError } from "../base/errors.js";
import { count, rounded, showCost, showCount, showRate } from "../base/shown-numbers.js";
import { comparisonFields } from "./agreement.js";
import type { Stage } from "./stage-times.js";

/** How a person scores a published or discarded run again. */
export interface ScoreAgain {
  /** What to do before, if anything. It ends with what the command does: "if …, then score again". */
  readonly text: string;
  readonly command: string;
}

/** What comes before the command that scores a discarded run again. */
export const toScoreAgain = "to score again";

/** What an attempt did; as JSON it is the last line of `run --json`. */
export interface RunReport extends AttemptWork {
  readonly runId: string;
  /**
   * `partial`: this worker's share is done, that of other workers is not. `held`: the checks hold the run until a person
   * decides. `discarded`: a person has discarded it. `nothing_new`: no row came since the last run, and none is planned.
   */
  readonly status: "complete" | "already_complete" | "nothing_new" | "partial" | "held" | "discarded";
  /** null: the run has no checks, or no verdict yet. */
  readonly verdict: VerdictReport | null;
  /** How a second model agrees; undefined: the run has none, or is not scored to its end. */
  readonly comparison?: RunComparison | undefined;
  /** How to score a run again that was discarded, or published although its input may be that of an earlier run; undefined: it is neither. */
  readonly scoreAgain?: ScoreAgain | undefined;
  /** Set for a run that is held or discarded. */
  readonly decided?: DecidedReport | undefined;
  /** Set for a run that is already complete, and whose rows a person has taken out of the table: `rollback`. */
  readonly rolledBack?: RolledBackReport | undefined;
  readonly rowsPlanned: number;
  readonly spansPlanned: number;
  /** All spans that are committed at the target. */
  readonly spansCommitted: number;
  /** Spans that another attempt had committed. */
  readonly spansResumed: number;
  /** What all attempts have made of the run's rows; undefined: this attempt has not counted them. */
  readonly rowsOfRun?: RowsOfRun | undefined;
  /** Files that were added after the run was planned, and are not part of it. */
  readonly shardsUnplanned: number;
  readonly output: string;
}

/** The work of an attempt. */
export interface AttemptWork {
  readonly rowsScored: number;
  readonly rowsRejected: number;
  readonly rowsFiltered: number;
  /** Scored rows that took the prediction of an earlier run. */
  readonly rowsReused: number;
  /** The scored rows that the model's compiled trees computed. */
  readonly rowsByTrees: number;
  /** Time spent waiting for input, before `seconds`. */
  readonly inputWaitSeconds: number;
  readonly seconds: number;
  readonly batchSize: number | null;
  readonly provider: string | null;
  /** Providers that the spec prefers and that this machine cannot run. */
  readonly providersMissing: readonly string[];
  /** What computed the model's trees, and why if it was ONNX Runtime; null: it has none, or too few rows came. */
  readonly trees: string | null;
  /** The share of the time between first row and last commit in which sessions were busy. */
  readonly engineBusy: number | null;
  /** How that time was spent, by stage. */
  readonly stageSeconds: Readonly<Record<Stage, number>> | null;
  /** Units that workers could not read to the end, by reason; the main thread read the rest, more slowly. */
  readonly unitsReadAgain: Readonly<Record<string, number>>;
  /** The requests to the server of the model; undefined: the model is on this machine, or no row was left to score. */
  readonly server?: ServerReport | undefined;
  /** What answers cost; undefined: predictions are free, or no row was left to score. */
  readonly spending?: SpendingReport | undefined;
}

/** The results of a run's checks. */
export interface VerdictReport {
  readonly outcome: "publish" | "hold";
  /** The checks that hold the run, a line each. */
  readonly failed: readonly string[];
  /** The checks that warn, a line each. */
  readonly warnings: readonly string[];
  /** For a list of runs, how many warnings a run has that was not held, and the first; undefined: none, or it was held. */
  readonly warned: string | undefined;
  /** How many checks passed, warned and failed, for people: "64 checks passed, 3 warned". */
  readonly counts: string;
  /** What may have to be corrected before a held run is scored again: "the input", "the model". */
  readonly toCorrect: string;
  /** The runs that it was compared with, the latest last. */
  readonly comparedWith: readonly string[];
  /** What was not compared or measured, and why, a line each. */
  readonly notes: readonly string[];
}

interface DecidedReport {
  /** The error that the attempt ends with: exit code 67. */
  readonly error: JobError;
  readonly isOwnVerdict: boolean;
  /** Set if this attempt is to call `report.on_held`. */
  readonly heldCall?: DueCall | undefined;
  /** The commands that decide; undefined: the run was discarded. */
  readonly commands?: DecidingCommands | undefined;
  /** What readers have, of a run that was discarded; undefined: it is not known. */
  readonly readers?: string | undefined;
}

/** What a report says of a run that was rolled back. */
export interface RolledBackReport {
  /** The run whose rows readers have, as "run daily-0123456789ab of 2026-11-21"; undefined: none, or it is not known. */
  readonly readersHave: string | undefined;
  readonly newRun: string;
}

/** A call of `report.on_held` or `report.on_late` that is due. */
export interface DueCall {
  /** Records at the target that the URL was called, so that no later attempt calls it. Never fails. */
  done(): Promise<void>;
}

/** The command lines that decide on a held run. */
export interface DecidingCommands {
  readonly approve: string;
  readonly discard: string;
  /** Scores the input again, as another run. */
  readonly newRun: string;
  /** The command that shows the rejected rows; undefined: they do not hold the run. */
  readonly rejects?: string | undefined;
  /** Whether later runs are compared with published ones, so that `--not-normal` has a meaning. */
  readonly joinsBaseline: boolean;
  /** Says when deciding takes --allow-older; undefined: never. */
  readonly newer?: string | undefined;
  /** Whether the run has no rows to publish. Default: it has some. */
  readonly isEmpty?: boolean | undefined;
}

/** What the commands that decide on a held run do. */
export function decidingTexts({ isEmpty = false }: DecidingCommands): {
  readonly approve: string;
  readonly notNormal: string;
  readonly discard: string;
} {
  return isEmpty
    ? {
        approve: "to publish it without rows",
        notNormal: "hold the next one like it, too",
        discard: "to throw it away",
      }
    : {
        approve: "to publish the predictions",
        notNormal: "hold the next ones like them, too",
        discard: "to throw the predictions away",
      };
}

/** The report as one line of JSON. Names and order are stable, for scripts. */
export function reportJson(report: RunReport): string {
  return JSON.stringify(reportFields(report));
}

/** The report's fields under their JSON names. */
export function reportFields(report: RunReport): Readonly<Record<string, unknown>> {
  return {
    run_id: report.runId,
    status: report.status,
    ...(report.rolledBack === undefined ? {} : { rolled_back: true }),
    rows_planned: report.rowsPlanned,
    spans_planned: report.spansPlanned,
    spans_committed: report.spansCommitted,
    spans_resumed: report.spansResumed,
    shards_unplanned: report.shardsUnplanned,
    ...workFields(report),
    verdict: verdictFields(report.verdict),
    // A scheduler keeps this line in its log, where no keys belong.
    ...comparisonFields(report.comparison, false),
    ...(report.decided?.commands === undefined ? {} : { commands: commandList(report.decided.commands) }),
    output: report.output,
  };
}

/** The work of an attempt under its JSON names. */
export function workFields(work: AttemptWork): Readonly<Record<string, unknown>> {
  return {
    rows_scored: work.rowsScored,
    rows_rejected: work.rowsRejected,
    rows_filtered: work.rowsFiltered,
    rows_reused: work.rowsReused,
    rows_by_trees: work.rowsByTrees,
    input_wait_seconds: rounded(work.inputWaitSeconds),
    seconds: rounded(work.seconds),
    rows_per_second: Math.round(rate(work)),
    batch_size: work.batchSize,
    provider: work.provider,
    providers_missing: work.providersMissing,
    trees: work.trees,
    engine_busy: rounded(work.engineBusy),
    stage_seconds: work.stageSeconds,
    units_read_again: work.unitsReadAgain,
    ...(work.server && { server: serverFields(work.server) }),
    ...(work.spending && { spending: spendingFields(work.spending) }),
  };
}

/** The commands that decide on a held run, as `status` lists them. */
export function commandList({ approve, discard, newRun }: DecidingCommands): readonly string[] {
  return [approve, discard, newRun];
}

/** A verdict under its JSON names. */
export function verdictFields(verdict: VerdictReport | null): Readonly<Record<string, unknown>> | null {
  if (verdict === null) {
    return null;
  }
  const { outcome, failed, warnings, comparedWith, notes } = verdict;
  return { outcome, failed, warnings, compared_with: comparedWith, notes };
}

/** The part of a line about a run that counts its checks; nothing for a run without checks, or without a verdict. */
export function checksText(verdict: VerdictReport | null): string {
  return verdict === null ? "" : `; ${verdict.counts}`;
}

function rate({ rowsScored, seconds }: AttemptWork): number {
  return seconds > 0 ? rowsScored / seconds : 0;
}

/** What a run paid for, in a line: "20 answers, 1,204 tokens in (12 cached), 80 out, cost 0.0021". */
export function spentText({ answers, cost, ...tokens }: RecordedSpending): string {
  const cached = tokens.cached_tokens === 0 ? "" : ` (${showCount(tokens.cached_tokens)} cached)`;
  const money = cost === null ? "" : `, cost ${showCost(cost)}`;
  return `${count(answers, "answer")}, ${showCount(tokens.prompt_tokens)} tokens in${cached}, ${showCount(tokens.completion_tokens)} out${money}`;
}

/** "6,177 rows, 2,676 rejected". */
export function rowsOfRunText(rows: RowsOfRun): string {
  return [count(rows.output, "row"), ...otherRowsText(rows)].join(", ");
}

/** The rows of a run that are not in its output: "2,676 rejected". */
export function otherRowsText({ rejected, filtered }: RowsOfRun): string[] {
  return [
    ...(rejected === 0 ? [] : [`${showCount(rejected)} rejected`]),
    ...(filtered === 0 ? [] : [`${showCount(filtered)} filtered out`]),
  ];
}

/** The report as one line for people. */
export function reportText(report: RunReport): string {
  const { runId, output, rolledBack } = report;
  const counted = report.rowsOfRun ?? { output: report.rowsPlanned, rejected: 0, filtered: 0 };
  const rows = count(counted.output, "row");
  const others = otherRowsText(counted).length === 0 ? "" : ` (${otherRowsText(counted).join(", ")})`;
  if (rolledBack !== undefined) {
    const { readersHave, newRun } = rolledBack;
    const readers = readersHave === undefined ? "" : `; readers have ${readersHave}`;
    return `${runId}: rolled back, its rows are not in ${output}${readers}; to score it again: ${newRun}`;
  }
  if (report.status === "already_complete") {
    return `${runId}: already complete, ${rows} in ${output}${others}${checksText(report.verdict)}`;
  }
  if (report.status === "nothing_new") {
    return `nothing new since the last run; nothing is added to ${output}`;
  }
  if (report.status === "discarded") {
    return `${runId}: discarded; ${report.decided?.readers ?? `nothing of it is published in ${output}`}`;
  }
  if (report.status === "held" && report.rowsScored === 0) {
    return `${runId}: held, ${rows} wait for a decision${others}`;
  }
  const status =
    report.status !== "partial"
      ? report.status
      : `partial, ${report.spansPlanned - report.spansCommitted} of ${count(report.spansPlanned, "span")} left to other workers`;
  return `${runId}: ${status}, ${attemptText(report)}${endText(report)}`;
}

function attemptText(report: RunReport): string {
  const { rowsRejected, rowsFiltered, rowsReused, spansResumed } = report;
  const reused = rowsReused === 0 ? "" : `, ${showCount(rowsReused)} of them reused`;
  const rejected = rowsRejected === 0 ? "" : `, ${count(rowsRejected, "row")} rejected`;
  const filtered = rowsFiltered === 0 ? "" : `, ${count(rowsFiltered, "row")} filtered out`;
  const resumed = spansResumed === 0 ? "" : `, ${count(spansResumed, "span")} found committed`;
  const seconds = report.seconds.toFixed(report.seconds < 10 ? 1 : 0);
  return `${count(report.rowsScored, "row")} scored in ${seconds} s (${showRate(rate(report))})${reused}${rejected}${filtered}${resumed}`;
}

function endText({ status, output, spending, verdict }: RunReport): string {
  const spent = spending === undefined ? "" : `; ${spentText(spending.run)}${lostText(spending.requestsLost)}`;
  const where = status === "held" ? `; nothing of it is published in ${output}` : `${checksText(verdict)} -> ${output}`;
  return `${spent}${where}`;
}

/** How an attempt ended. */
export type Outcome = { readonly kind: "done"; readonly report: RunReport } | FailedOutcome;

/** How an attempt failed. */
export interface FailedOutcome {
  readonly kind: "failed";
  /** The code of a JobError, or BUG. */
  readonly code: string;
  readonly message: string;
  readonly hint: string | undefined;
  readonly exitCode: ExitCode;
}

/** The exit code of an attempt. */
export function exitCodeOfOutcome(outcome: Outcome): ExitCode {
  return outcome.kind === "done" ? (outcome.report.decided?.error.exitCode ?? 0) : outcome.exitCode;
}

/** The outcome as one word: the status of the report, or "failed". */
export function statusOfOutcome(outcome: Outcome): RunReport["status"] | "failed" {
  return outcome.kind === "done" ? outcome.report.status : "failed";
}

/**
 * Returns a failure's fields under their JSON names. The message and the hint are the same as on stderr.
 * @param runId undefined: the attempt has found no run
 */
export function failureFields(
  { code, message, hint, exitCode }: FailedOutcome,
  runId: string | undefined,
): Readonly<Record<string, unknown>> {
  return { run_id: runId ?? null, status: "failed", exit_code: exitCode, code, message, hint: hint ?? null };
}

/** The requests of an attempt to the server that has the model. */
export interface ServerReport {
  /** The number of all requests, retries included. */
  readonly requests: number;
  readonly retries: number;
  /** The most requests that were in flight at once. */
  readonly mostInFlight: number;
  readonly latencyMs: Latency;
  /** Each server, if the spec names several URLs. */
  readonly urls: readonly UrlReport[];
}

interface UrlReport {
  readonly url: string;
  readonly requests: number;
  /** Requests without answer, and those that an overloaded or failing server refused. */
  readonly failures: number;
  readonly mostInFlight: number;
  readonly latencyMs: Latency;
}

/** Milliseconds that half of the answers, 95% and 99% of them did not exceed; null without answers. */
type Latency = Readonly<Record<(typeof percentiles)[number], number | null>>;

const percentiles = ["p50", "p95", "p99"] as const;

function serverFields({ requests, retries, mostInFlight, latencyMs, urls }: ServerReport): object {
  const byUrl = urls.map(({ url, requests: sent, failures, mostInFlight: atOnce, latencyMs: took }) => {
    return { url, requests: sent, failures, most_in_flight: atOnce, latency_ms: latencyFields(took) };
  });
  return {
    requests,
    retries,
    most_in_flight: mostInFlight,
    latency_ms: latencyFields(latencyMs),
    ...(urls.length === 0 ? {} : { urls: byUrl }),
  };
}

function latencyFields(latencyMs: Latency): object {
  return Object.fromEntries(percentiles.map((name) => [name, rounded(latencyMs[name], 1)]));
}

/** The report for people: "1,204 requests, 3 of them retries, 16 in flight; 21 ms (p95 40 ms, p99 61 ms)". */
export function requestsText({
  requests,
  retries,
  mostInFlight,
  latencyMs: { p50, p95, p99 },
  urls,
}: ServerReport): string {
  const byUrl = urls.map((each) => `; ${each.url}: ${each.requests} requests, ${each.failures} failed`).join("");
  const took = p50 === null ? "" : `; ${ms(p50)} each (95%: ${ms(p95)}, 99%: ${ms(p99)})`;
  return `${requests} requests, ${retries} of them retries, at most ${mostInFlight} in flight${took}${byUrl}`;
}

function ms(value: number | null): string {
  return value === null ? "–" : `${Math.round(value)} ms`;
}

/** What an attempt, and its run, paid for. */
export interface SpendingReport {
  /** Answers that this attempt paid for. */
  readonly attempt: RecordedSpending;
  /** Answers that all attempts and workers of the run paid for, as far as they are known. */
  readonly run: RecordedSpending;
  /** Rows of this attempt that took an answer which was there already. */
  readonly rowsReused: number;
  /** Requests of this attempt whose answer was lost. They may have cost something. */
  readonly requestsLost: number;
}

function spendingFields({ attempt, run, rowsReused, requestsLost }: SpendingReport): object {
  return { ...attempt, rows_reused: rowsReused, requests_lost: requestsLost, run };
}

/** What a run paid for, and how, for people. */
export function spendingText({ attempt, run, rowsReused, requestsLost }: SpendingReport): string {
  const own = attempt.answers === run.answers ? "" : `; ${count(attempt.answers, "answer")} of them in this attempt`;
  const reused = rowsReused === 0 ? "" : `; ${count(rowsReused, "row")} took an answer that was there`;
  return `${spentText(run)}${own}${reused}${lostText(requestsLost)}`;
}

function lostText(requestsLost: number): string {
  return requestsLost === 0 ? "" : `; ${count(requestsLost, "request")} got no answer, and may have been paid for`;
}

/** What an unfinished run has paid for so far; or why it is not known. */
export type PaidReport = RecordedSpending | string;

/** The answers that a run has kept, as a line for people. */
export function paidLine(paid: PaidReport): string {
  return `kept     ${typeof paid === "string" ? `unknown: ${paid}` : spentText(paid)}`;
}

/** The same under its JSON names. */
export function paidFields(paid: PaidReport): object {
  return typeof paid === "string" ? { kept: null, kept_error: paid } : { kept: paid };
}

/** Counts of a pipe's rows. */
export interface PipeReport {
  readonly rowsRead: number;
  readonly rowsScored: number;
  readonly rowsRejected: number;
  readonly rowsFiltered: number;
  readonly seconds: number;
}

/** The report as one line for people. */
export function pipeText(report: PipeReport): string {
  const { rowsRead, rowsScored, rowsRejected, rowsFiltered, seconds } = report;
  const others = [
    rowsRejected === 0 ? "" : `, ${count(rowsRejected, "row")} rejected`,
    rowsFiltered === 0 ? "" : `, ${count(rowsFiltered, "row")} filtered out`,
  ].join("");
  return `${count(rowsScored, "row")} of ${count(rowsRead, "row")} scored${others}, in ${seconds.toFixed(1)} s`;
}
