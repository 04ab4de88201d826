import { DatabaseError } from "pg";
import type { RejectedRow } from "../../columnar/types.js";
import { JobError } from "../../util/errors.js";
import type { Span } from "../../plan/plan.js";
import type { CommitOutcome, StoredPlan } from "../port.js";
import { type Session, transact } from "./connections.js";
import type { Control } from "./control/control.js";
import { classify, isMissingTable } from "./failures.js";
import { lockRuns, refuseStopped } from "./locks.js";
import { insertRejects } from "./control/reject-rows.js";
import { type CommittedSpan, committedSpan, insertSpan, spanColumns } from "./control/spans.js";
import { type EncodedRows, KeyTakenConcurrently } from "./modes/mode.js";
import { findTable, refuseChanged } from "./table.js";
import type { RunTools } from "./run-tools.js";
import { refuseSwappedOut } from "./control/swaps.js";

/** A span that is encoded and ready to be sent. */
export interface SpanCommit {
  readonly stored: StoredPlan;
  readonly span: Span;
  readonly rows: EncodedRows;
  readonly rejects: readonly RejectedRow[];
  /** What its control row will say. */
  readonly due: CommittedSpan;
  /** JSON. */
  readonly profile: string;
  /** The number of the target's last swap when the attempt began; undefined: the run stages its rows outside the target. */
  readonly lastSwap: string | undefined;
}

/**
 * Commits a span's rows and its control row in one transaction, or finds that this was done. Safe to repeat: repeating
 * resolves an unknown outcome, since the control table is read first. The control row, which is unique, is inserted
 * last, so that a slow or dead attempt does not hold it for long. `last`: the error of the previous try.
 */
export async function commitSpan(
  tools: RunTools,
  commit: SpanCommit,
  last: unknown,
): Promise<{ outcome: CommitOutcome; committed: CommittedSpan }> {
  const work = async (session: Session): Promise<CommittedSpan> => {
    const stored = await readControlRow(session, tools.control, commit);
    if (stored === undefined) {
      await publish(session, tools, commit);
    }
    return stored ?? commit.due;
  };
  let committed: CommittedSpan | undefined;
  try {
    committed = await transact(tools, work, { last });
  } catch (error) {
    committed = await explainRefusal(tools, commit, error);
    if (committed === undefined) {
      throw error;
    }
  }
  const isOwn = committed.maker.writer === commit.due.maker.writer;
  return { outcome: isOwn ? "committed" : "adopted", committed };
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

async function publish(session: Session, tools: RunTools, commit: SpanCommit): Promise<void> {
  const { control } = tools;
  const { stored, span, rejects, due } = commit;
  const { plan } = stored;
  const { runId } = plan;
  const rowCount = due.rows;
  const taken = rowCount === 0 ? 0 : await tools.modeOf(plan).write(session, commit.rows);
  if (taken !== rowCount) {
    throw new JobError("OUTPUT_REFUSED", `writing span ${span.index}: the table took ${taken} of ${rowCount} rows`, {
      hint: "a trigger of the table keeps rows out or takes them elsewhere; committed spans are kept",
    });
  }
  if (rowCount + rejects.length + due.filtered !== span.rowEnd - span.rowStart) {
    const found = `${rowCount} rows, ${rejects.length} rejected and ${due.filtered} filtered out`;
    throw new Error(`${found} for span ${span.index}`);
  }
  await insertRejects(session, control, runId, span.index, rejects);
  // As late as possible: from here on, a later run waits for the end of this transaction.
  await lockRuns(session, runId, { shared: true });
  await refuseStopped(session, control, plan);
  const isSwapped = await insertSpan(session, tools, commit);
  // The rows are sent: from here on, a swap of the table that took them waits for the end of this transaction.
  if (isSwapped) {
    await refuseSwappedOut(session, tools, plan);
  }
}

/**
 * Explains an error of the server, such as a key conflict or a missing table: another attempt may have committed this
 * span (then, that span is returned), a later run may have removed this one's table, or a column may have changed its
 * type, which a server reports as "insufficient data left in message".
 */
async function explainRefusal(tools: RunTools, commit: SpanCommit, error: unknown): Promise<CommittedSpan | undefined> {
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
        await refuseOther(session, tools, commit);
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

/** Refuses a table that is not the one which the rows were encoded for. @throws JobError */
async function refuseOther(
  session: Session,
  { modeOf }: RunTools,
  { stored: { plan }, rows }: SpanCommit,
): Promise<void> {
  const mode = modeOf(plan);
  const name = mode.rowsAt(plan, { finished: false });
  if ((await findTable(session, name)) !== undefined) {
    await refuseChanged(session, name, rows.columns); // for a table that is gone, the server has reported it
    await mode.checkRows?.(session, plan, "writing"); // rows of a span whose control row is gone may be in the way
  }
}
