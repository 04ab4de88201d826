import { boundColumns, outputColumns } from "../binding/contract.js";
import { type ColumnType, showType } from "../columnar/types.js";
import type { NamedType, RunInfo } from "../report/attempt-record.js";
import type { DueCall } from "../report/report.js";
import { spanCount } from "../plan/spans.js";
import type { JobContext } from "../scoring/context.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import type { RunNote } from "../sink/ledger.js";
import type { RunId } from "../plan/plan.js";
import type { AttemptFacts } from "../publish/span-record.js";
import { bestEffort } from "../util/promises.js";
import { firstError, JobError, messageOf } from "../util/errors.js";
import { addNote, recordFailure, timeOfNote } from "./notes.js";

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

/** Returns the columns with their types as reports show them, without duplicates. */
function namedTypes(columns: readonly { readonly name: string; readonly type: ColumnType }[]): NamedType[] {
  const types = new Map(columns.map(({ name, type }) => [name, showType(type)]));
  return [...types].map(([name, type]) => ({ name, type }));
}

export function attemptFacts({ spec, worker, program }: JobContext, provider: string): AttemptFacts {
  return {
    worker: worker.index,
    workers: worker.count,
    program,
    provider,
    onBadRow: spec.on_bad_row,
  };
}

const recorded = new WeakSet<JobError>();

/** Records a failure at the target, where `status` shows it. Nested calls record it once. */
export async function recordingFailure<T>(
  context: JobContext,
  { stored, run }: { readonly stored: StoredPlan; readonly run: RunSink },
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    const error = firstError(thrown);
    if (error instanceof JobError && !recorded.has(error) && run.state.kind !== "published") {
      recorded.add(error);
      // Other workers may have committed the rest: then the record says that the run only was not finished. A target that
      // is away has been asked long enough.
      if (context.worker.count > 1 && error.exitCode !== 75) {
        await bestEffort(() => run.refresh());
      }
      await recordFailure(context, stored.plan.runId, { error, spansCommitted: countCommitted(run) });
    }
    throw error;
  }
}

/** What a person is called about. */
interface CalledAbout {
  /** Whether this attempt has brought it about. */
  readonly isOwn: boolean;
  /** When it came about, ISO 8601 in UTC. */
  readonly at: string;
}

/** Which note on which run says that the call was made, and what it contains. */
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
 */
export async function dueCall(
  context: JobContext,
  { isOwn, at }: CalledAbout,
  { runId, note, text, otherwise }: CallNote,
): Promise<DueCall | undefined> {
  const { record, log } = context;
  if (!isOwn && record.startedMs <= Date.parse(at)) {
    return undefined;
  }
  const failed = (failure: unknown): void => {
    log.debug(`noting a call of report: ${messageOf(failure)}`);
  };
  const isMade = async (): Promise<boolean> => {
    try {
      return (await timeOfNote(context, runId, note)) !== undefined;
    } catch (error) {
      failed(error);
      return otherwise;
    }
  };
  if (!isOwn && (await isMade())) {
    return undefined;
  }
  return { done: () => bestEffort(() => addNote(context, { runId, note, text }).catch(failed)) };
}

/**
 * Returns the call of `report.on_late` that this attempt is to make. The first attempt or worker that is late records it
 * at the target, also before the run is planned. A target that cannot record it does not keep the call from being made.
 */
async function dueLateCall(context: JobContext, runId: RunId, text: string): Promise<DueCall | undefined> {
  const isOwn = await addNote(context, { runId, note: "late", text });
  const at = isOwn ? undefined : await timeOfNote(context, runId, "late");
  const about = { isOwn: at === undefined, at: at ?? "" };
  return await dueCall(context, about, { runId, note: "late_told", text, otherwise: false });
}

/** Has the attempt record that its run is late. */
export function recordLateness(context: JobContext, runId: RunId): void {
  context.record.lateCall = (text) => dueLateCall(context, runId, text);
}

export function countCommitted(run: RunSink): number {
  return run.spans.size;
}
