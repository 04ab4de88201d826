import type { JobSpec } from "../job/jobfile/job-spec.js";
import { boundColumns, outputColumns } from "../models/binding/contract.js";
import { showType, type TypedColumn } from "../columns/types.js";
import { type NamedType, reuseCostText, type RunInfo, workOf } from "../report/attempt-record.js";
import type { DueCall, RunReport } from "../report/report.js";
import { spanCount } from "./plan/spans.js";
import type { Attempt, Job, OpenedJob, Reporter } from "../flow/opened-job.js";
import type { RunSink, Sink, StoredPlan } from "../targets/target.js";
import { type DocumentKind, type RunNote, errorsDocument, noteDocument, spendingDocument } from "../stores/ledger.js";
import type { PinnedTable, RunId } from "./plan/plan.js";
import { type AttemptFacts, countSpans } from "./lifecycle/span-record.js";
import { isRolledBack } from "./lifecycle/lifecycle.js";
import { rolledBackReport } from "./hints.js";
import { bestEffort } from "../base/promises.js";
import { JobError, firstError, messageOf } from "../base/errors.js";
import { type AttemptFailure, type RecordedSpending, withBegun, withFailure } from "./lifecycle/recorded-run.js";

/** Returns the facts of a plan that reports show. */
export function runFacts({ plan, planId }: StoredPlan): RunInfo {
  const { runId, input, commitRows, model } = plan;
  return {
    runId,
    planId,
    rows: input.rows,
    spans: spanCount(plan),
    commitRows,
    shards: input.shards.length,
    shardBytes: input.shards.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    modelUri: model.uri,
    modelSha256: model.sha256,
    modelVersion: model.version,
    modelOrigin: model.origin,
    inputColumns: namedTypes(boundColumns(plan.contract).filter(({ computed }) => computed !== true)),
    outputColumns: namedTypes(outputColumns(plan.contract)),
  };
}

function namedTypes(columns: readonly TypedColumn[]): NamedType[] {
  const types = new Map(columns.map(({ name, type }) => [name, showType(type)]));
  return [...types].map(([name, type]) => ({ name, type }));
}

export function attemptFacts(spec: JobSpec, { worker, program }: Attempt, provider: string): AttemptFacts {
  return {
    worker: worker.index,
    workers: worker.count,
    program,
    provider,
    onBadRow: spec.on_bad_row,
  };
}

const alreadyRecorded = new WeakSet<JobError>();

/** Records a failure at the target, where `status` shows it. Nested calls record it once. */
export async function recordingFailure<T>(
  sink: Sink,
  attempt: Attempt,
  run: RunSink,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    const error = firstError(thrown);
    if (error instanceof JobError && !alreadyRecorded.has(error) && run.state.kind !== "published") {
      alreadyRecorded.add(error);
      // Other workers may have committed the rest: then the record says that the run only was not finished. A target that
      // is away has been asked long enough.
      if (attempt.worker.count > 1 && error.exitCode !== 75) {
        await bestEffort(() => run.refresh());
      }
      await recordFailure(sink, attempt, run.plan.runId, { error, spansCommitted: run.spans.size });
    }
    throw error;
  }
}

interface CallNote {
  readonly runId: RunId;
  readonly note: RunNote;
  readonly text: string;
  /** Whether the call counts as made if the target cannot say it. */
  readonly otherwise: boolean;
}

/**
 * Returns the call that this attempt is to make; undefined: none. The attempt that caused the event makes the call. So does
 * an attempt that begins after the event and finds no note of the call: the first attempt may have been killed, may not
 * have reached the URL, or may be calling now, and a second call is better than none. An attempt that began before the
 * event does not call.
 * @param event `isOwn`: this attempt has brought it about; `at`: when, ISO 8601 in UTC
 */
export async function dueCall(
  sink: Sink,
  attempt: Attempt,
  reporter: Reporter,
  event: { readonly isOwn: boolean; readonly at: string },
  { otherwise, ...call }: CallNote,
): Promise<DueCall | undefined> {
  const failed = (failure: unknown): void => {
    reporter.log.debug(`noting a call of report: ${messageOf(failure)}`);
  };
  if (!event.isOwn) {
    const isLater = reporter.record.startedMs > Date.parse(event.at);
    const isMade =
      !isLater ||
      (await timeOfNote(sink, call.runId, call.note).then(
        (at) => at !== undefined,
        (error: unknown) => {
          failed(error);
          return otherwise;
        },
      ));
    if (isMade) {
      return undefined;
    }
  }
  return { done: () => bestEffort(() => addNote(sink, attempt, call).catch(failed)) };
}

/**
 * Has the attempt record that its run is late, and make the call of `report.on_late` if it is the one to make it: the first
 * attempt or worker that is late records it at the target, also before the run is planned. A target that cannot record it does
 * not keep the call from being made.
 */
export function recordLateness(sink: Sink, attempt: Attempt, reporter: Reporter, runId: RunId): void {
  reporter.record.lateCall = async (text) => {
    const isOwn = await addNote(sink, attempt, { runId, note: "late", text });
    const at = isOwn ? undefined : await timeOfNote(sink, runId, "late");
    const about = { isOwn: at === undefined, at: at ?? "" };
    return await dueCall(sink, attempt, reporter, about, { runId, note: "late_told", text, otherwise: false });
  };
}

/** Whether all spans of a run are committed, as far as is known. */
export function isWhole({ plan, spans }: Pick<RunSink, "plan" | "spans">): boolean {
  return spans.size === spanCount(plan);
}

const untold = { errors: [], begun: [] };

/** Makes a note on a run, which need not be planned yet, unless there is one. Returns whether this attempt has made it. @public so that tests call it */
export async function addNote(
  sink: Sink,
  { writer, dateMs }: Attempt,
  { runId, note, text }: { readonly runId: RunId; readonly note: RunNote; readonly text: string },
): Promise<boolean> {
  const own = { at: new Date(dateMs()).toISOString(), writer, text };
  const stored = await sink.ledger.create(runId, noteDocument(note), own);
  return stored.writer === own.writer && stored.at === own.at && stored.text === own.text;
}

/** When a note on a run was made, ISO 8601 in UTC; undefined: it was not. @public so that tests call it */
export async function timeOfNote(sink: Sink, runId: RunId, note: RunNote): Promise<string | undefined> {
  return (await sink.ledger.read(runId, noteDocument(note)))?.at;
}

/** Never fails, and takes a few seconds at most. */
async function inform<T>(
  { ledger }: Sink,
  runId: RunId,
  kind: DocumentKind<T>,
  next: (known: T | undefined) => T | undefined,
): Promise<void> {
  await bestEffort((stop) => ledger.change(runId, kind, next, stop));
}

/** The last error that an attempt has recorded. */
export async function lastFailure({ ledger }: Sink, runId: RunId): Promise<AttemptFailure | undefined> {
  return (await ledger.read(runId, errorsDocument))?.errors.at(-1);
}

/** Records the error that an attempt ends with. Never fails. @public so that tests call it */
export async function recordFailure(
  sink: Sink,
  { writer, dateMs }: Attempt,
  runId: RunId,
  { error: { code, message }, spansCommitted }: { readonly error: JobError; readonly spansCommitted: number },
): Promise<void> {
  const at = new Date(dateMs()).toISOString();
  const failure = { at, writer, code, message, spansCommitted };
  await inform(sink, runId, errorsDocument, (known = untold) => withFailure(known, failure));
}

/** Records that an attempt resumes a run of which an error is recorded: only then somebody asks. Never fails. */
export async function recordBegun(sink: Sink, { writer }: Attempt, runId: RunId): Promise<void> {
  await inform(sink, runId, errorsDocument, (known = untold) =>
    known.errors.length === 0 ? undefined : withBegun(known, writer),
  );
}

/** Whether another attempt has resumed a run after an error, and may be at work. */
export async function isWorkedOn({ ledger }: Sink, { isDead }: Attempt, runId: RunId): Promise<boolean> {
  return (await ledger.read(runId, errorsDocument))?.begun.some((writer) => !isDead(writer)) === true;
}

/** Records what a run has paid for, as an attempt knows it: it may not know the answers of other workers. Never fails. */
export async function recordSpending(sink: Sink, runId: RunId, spending: RecordedSpending): Promise<void> {
  await inform(sink, runId, spendingDocument, (known) =>
    spending.answers > (known?.answers ?? 0) ? spending : undefined,
  );
}

/** What a run has paid for. undefined: no attempt has told, or it cannot be read */
export async function readSpending({ ledger }: Sink, runId: RunId): Promise<RecordedSpending | undefined> {
  let recorded: RecordedSpending | undefined;
  await bestEffort(async () => {
    recorded = await ledger.read(runId, spendingDocument);
  });
  return recorded;
}

export type AttemptEnd = Pick<RunReport, "status" | "verdict" | "scoreAgain" | "comparison" | "decided">;

export function attemptReport(
  sink: Sink,
  { record, log }: Reporter,
  { plan, spans }: RunSink,
  end: AttemptEnd & Pick<RunReport, "shardsUnplanned">,
): RunReport {
  record.finish();
  const reuseCost = reuseCostText(record);
  if (reuseCost !== undefined) {
    log.info(reuseCost);
  }
  return {
    ...workOf(record),
    runId: plan.runId,
    ...end,
    rowsPlanned: plan.input.rows,
    rowsOfRun: countSpans(spans),
    spansPlanned: spanCount(plan),
    spansCommitted: spans.size,
    spansResumed: spans.size - record.counts.spansCommitted,
    output: sink.target,
  };
}

/** Reports an attempt that found all spans of a run committed, and scored none. */
export function unscored(sink: Sink, reporter: Reporter, run: RunSink): RunReport {
  return attemptReport(sink, reporter, run, { status: "already_complete", verdict: null, shardsUnplanned: 0 });
}

/** Tells those who watch the input how far published runs have read it. A failure is a warning. */
export async function tellInput(
  { input: { source }, reporter: { record, log } }: OpenedJob,
  table: PinnedTable | undefined,
): Promise<void> {
  if (table !== undefined) {
    record.inputState = await source.published(table);
    const { warning } = record.inputState;
    if (warning !== undefined) {
      log.warn(warning);
    }
  }
}

/** Reports that no row came since the last run of a chain, so that none is planned. */
export function nothingNew({ base }: Job, sink: Sink, { record }: Reporter): RunReport {
  record.finish();
  const none = { rowsPlanned: 0, spansPlanned: 0, spansCommitted: 0, spansResumed: 0, shardsUnplanned: 0 };
  return { ...workOf(record), ...none, runId: base, status: "nothing_new", verdict: null, output: sink.target };
}

/** Reports a run that was complete when the command came. Removes its files that killed commands have left. */
export async function alreadyComplete(job: Job, sink: Sink, reporter: Reporter, run: RunSink): Promise<RunReport> {
  await run.finish();
  const rolledBack = isRolledBack(run.state) ? await rolledBackReport(job, sink, reporter.log, run.plan) : undefined;
  return { ...unscored(sink, reporter, run), rolledBack };
}
