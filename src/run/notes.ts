import type { RunId } from "../plan/plan.js";
import { type AttemptFailure, type RecordedSpending, withBegun, withFailure } from "../publish/recorded-run.js";
import type { JobContext } from "../scoring/context.js";
import { type DocumentKind, errorsDocument, noteDocument, type RunNote, spendingDocument } from "../sink/ledger.js";
import type { Sink } from "../sink/port.js";
import { bestEffort } from "../util/best-effort.js";
import type { JobError } from "../util/errors.js";

const untold = { errors: [], begun: [] };

type Attempt = Pick<JobContext, "sink" | "writer" | "dateMs">;

/** Makes a note on a run, which need not be planned yet, unless there is one. Returns whether this attempt has made it. */
export async function addNote(
  { sink, writer, dateMs }: Attempt,
  { runId, note, text }: { readonly runId: RunId; readonly note: RunNote; readonly text: string },
): Promise<boolean> {
  const own = { at: new Date(dateMs()).toISOString(), writer, text };
  const stored = await sink.ledger.create(runId, noteDocument(note), own);
  return stored.writer === own.writer && stored.at === own.at && stored.text === own.text;
}

/** When a note on a run was made, ISO 8601 in UTC; undefined: it was not. */
export async function timeOfNote(
  { sink }: Pick<Attempt, "sink">,
  runId: RunId,
  note: RunNote,
): Promise<string | undefined> {
  return (await sink.ledger.read(runId, noteDocument(note)))?.at;
}

/** Changes a document that only informs people. Never fails, and takes a few seconds at most. */
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

/** Records the error that an attempt ends with. Never fails. */
export async function recordFailure(
  { sink, writer, dateMs }: Attempt,
  runId: RunId,
  { error: { code, message }, spansCommitted }: { readonly error: JobError; readonly spansCommitted: number },
): Promise<void> {
  const at = new Date(dateMs()).toISOString();
  const failure = { at, writer, code, message, spansCommitted };
  await inform(sink, runId, errorsDocument, (known = untold) => withFailure(known, failure));
}

/** Records that an attempt resumes a run of which an error is recorded: only then somebody asks. Never fails. */
export async function recordBegun({ sink, writer }: Attempt, runId: RunId): Promise<void> {
  await inform(sink, runId, errorsDocument, (known = untold) =>
    known.errors.length === 0 ? undefined : withBegun(known, writer),
  );
}

/** Whether another attempt has resumed a run after an error, and may be at work. */
export async function isWorkedOn(
  { sink: { ledger }, isDead }: Pick<JobContext, "sink" | "isDead">,
  runId: RunId,
): Promise<boolean> {
  return (await ledger.read(runId, errorsDocument))?.begun.some((writer) => !isDead(writer)) === true;
}

/** Records what a run has paid for, as an attempt knows it: it may not know the answers of other workers. Never fails. */
export async function recordSpending(sink: Sink, runId: RunId, spending: RecordedSpending): Promise<void> {
  await inform(sink, runId, spendingDocument, (known) =>
    spending.answers > (known?.answers ?? 0) ? spending : undefined,
  );
}

/** What a run has paid for. undefined: no attempt has told, or it cannot be read */
export async function recordedSpending({ ledger }: Sink, runId: RunId): Promise<RecordedSpending | undefined> {
  let recorded: RecordedSpending | undefined;
  await bestEffort(async () => {
    recorded = await ledger.read(runId, spendingDocument);
  });
  return recorded;
}
