import { DatabaseError } from "pg";
import type { RejectedRow } from "../../columnar/types.js";
import { JobError } from "../../util/errors.js";
import type { Span } from "../../plan/plan.js";
import type { CommitOutcome, StoredPlan } from "../port.js";
import type { CommittedBy } from "../../publish/committed-by.js";
import { type Session, transact, type TransactionTools } from "./connections.js";
import type { Control } from "./control/control.js";
import { classify, isMissingTable } from "./failures.js";
import { lockRuns, refuseStopped } from "./locks.js";
import { insertRejects } from "./control/reject-rows.js";
import { type CommittedSpan, committedSpan, insertSpan, type SeenSwaps, spanColumns } from "./control/spans.js";
import { KeyTakenConcurrently } from "./modes/mode.js";

/** A span that is encoded and ready to be sent. */
export interface SpanCommit {
  readonly stored: StoredPlan;
  readonly span: Span;
  readonly rowCount: number;
  readonly rejects: readonly RejectedRow[];
  readonly filtered: number;
  readonly committedBy: CommittedBy;
  /** JSON. */
  readonly profile: string;
  /** OID of the table that takes the rows. */
  readonly table: number;
  /** Undefined if the run stages its rows outside the target. */
  readonly swaps: SeenSwaps | undefined;
  /** Sends the rows in the session's transaction; returns how many the server took. */
  readonly write: (session: Session) => Promise<number>;
  /** Throws where the table's columns differ from those that the rows were encoded for. */
  readonly refuseChanged: (session: Session) => Promise<void>;
  /** Throws if a swap has taken the run's rows out of the target. */
  readonly refuseSwappedOut: (session: Session) => Promise<void>;
}

export interface SpanTools extends TransactionTools {
  readonly control: Control;
}

/**
 * Commits a span's rows and its control row in one transaction, or finds that this was done. Safe to repeat: repeating
 * resolves an unknown outcome, since the control table is read first. The control row, which is unique, is inserted
 * last, so that a slow or dead attempt does not hold it for long. `last`: the error of the previous try.
 */
export async function commitSpan(
  tools: SpanTools,
  commit: SpanCommit,
  last: unknown,
): Promise<{ outcome: CommitOutcome; committed: CommittedSpan }> {
  const { span, rowCount, rejects, filtered, committedBy, table } = commit;
  const work = async (session: Session): Promise<CommittedSpan> => {
    const found = await readControlRow(session, tools.control, commit);
    if (found === undefined) {
      await publish(session, tools.control, commit);
    }
    const counts = { rows: rowCount, rejected: rejects.length, filtered };
    return found ?? { span: span.index, ...counts, committedBy, table };
  };
  let committed: CommittedSpan;
  try {
    committed = await transact(tools, work, { last });
  } catch (error) {
    const found = await explainRefusal(tools, commit, error);
    if (found === undefined) {
      throw error;
    }
    committed = found;
  }
  return { outcome: committed.committedBy.writer === committedBy.writer ? "committed" : "adopted", committed };
}

/**
 * Reads the span's control row; undefined when it is not committed.
 * @throws JobError OUTPUT_DAMAGED when the stored plan is gone or another one
 */
async function readControlRow(
  session: Session,
  control: Control,
  { stored, span }: SpanCommit,
): Promise<CommittedSpan | undefined> {
  const { rows } = await session.query<{ stored_plan_id: string | null; span: number | null }>({
    text: `SELECT r.plan_id AS stored_plan_id, ${spanColumns} FROM (SELECT 1) AS one
      LEFT JOIN ${control.table("runs")} r ON r.run_id = $1
      LEFT JOIN ${control.table("spans")} s ON s.run_id = $1 AND s.span = $2`,
    values: [stored.plan.runId, span.index],
  });
  const [row] = rows;
  if (row?.stored_plan_id !== stored.planId) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `reading ${control.schema}.runs: the plan of run ${stored.plan.runId} is ${row?.stored_plan_id === null ? "gone" : "another one"}`,
      {
        hint: "the control tables were changed during the run; restore them from a backup, and look in the table for rows of this run before they are scored again",
      },
    );
  }
  return row.span === null ? undefined : committedSpan(control, stored, row);
}

async function publish(session: Session, control: Control, commit: SpanCommit): Promise<void> {
  const { stored, span, rowCount, rejects, filtered, committedBy, profile, table, swaps } = commit;
  const { runId } = stored.plan;
  const taken = rowCount === 0 ? 0 : await commit.write(session);
  if (taken !== rowCount) {
    throw new JobError("OUTPUT_REFUSED", `writing span ${span.index}: the table took ${taken} of ${rowCount} rows`, {
      hint: "a trigger of the table keeps rows out or takes them elsewhere; committed spans are kept",
    });
  }
  if (rowCount + rejects.length + filtered !== span.rowEnd - span.rowStart) {
    throw new Error(`${rowCount} rows, ${rejects.length} rejected and ${filtered} filtered out for span ${span.index}`);
  }
  await insertRejects(session, control, { runId, span: span.index, rejects });
  // As late as possible: from here on, a later run waits for the end of this transaction.
  await lockRuns(session, runId, { shared: true });
  await refuseStopped(session, control, stored.plan);
  const isSwapped = await insertSpan(session, control, {
    stored,
    span,
    counts: { rows: rowCount, rejected: rejects.length, filtered },
    committedBy,
    profile,
    table,
    swaps,
  });
  // The rows are sent: from here on, a swap of the table that took them waits for the end of this transaction.
  if (isSwapped) {
    await commit.refuseSwappedOut(session);
  }
}

/**
 * Explains an error of the server, such as a key conflict or a missing table: another attempt may have committed this
 * span (then, that span is returned), a later run may have removed this one's table, or a column may have changed its
 * type, which a server reports as "insufficient data left in message".
 */
async function explainRefusal(
  tools: SpanTools,
  commit: SpanCommit,
  error: unknown,
): Promise<CommittedSpan | undefined> {
  const isRefusal = error instanceof DatabaseError && classify(error).kind === "permanent";
  if (!isRefusal && !(error instanceof KeyTakenConcurrently)) {
    return undefined;
  }
  const { control } = tools;
  try {
    return await transact(tools, async (session) => {
      const found = await readControlRow(session, control, commit);
      if (found === undefined) {
        await refuseStopped(session, control, commit.stored.plan);
        await commit.refuseChanged(session);
      }
      return found;
    });
  } catch (cause) {
    if (cause instanceof JobError || isMissingTable(cause)) {
      throw cause;
    }
    // What cannot be explained stays what it was: a permanent error does not become one that is tried again.
    throw isRefusal ? error : new KeyTakenConcurrently({ cause });
  }
}
