import { DatabaseError } from "pg";
import type { RejectedRow } from "../../batch/types.js";
import { JobError } from "../../errors.js";
import type { Span } from "../../plan/plan.js";
import type { CommitOutcome, StoredPlan } from "../port.js";
import type { Session } from "./connections.js";
import type { Control } from "./control.js";
import { classify } from "./failures.js";
import { insertRejects } from "./reject-rows.js";
import { TakenMeanwhile } from "./taken.js";
import { transact, type TransactionTools } from "./transaction.js";

/** A span that is encoded and ready to be sent. */
export interface SpanCommit {
  readonly stored: StoredPlan;
  readonly span: Span;
  readonly rowCount: number;
  readonly rejects: readonly RejectedRow[];
  /** Sends the rows, in the transaction that the session is in; returns how many the server took. */
  readonly write: (session: Session) => Promise<number>;
}

export interface SpanTools extends TransactionTools {
  readonly control: Control;
  readonly writer: string;
}

/**
 * Commits a span's rows and its control row in one transaction, or finds that this was done. Safe to repeat, and
 * repeating is how an unknown outcome is resolved: the first thing it does is to ask the control table, and the
 * control row, which can be there once only, is inserted last, so that nobody who is slow or gone holds it.
 * `last`: why the try before this one failed.
 */
export async function commitSpan(tools: SpanTools, commit: SpanCommit, last: unknown): Promise<CommitOutcome> {
  const work = async (session: Session): Promise<CommitOutcome> => {
    const writer = await look(session, tools.control, commit);
    if (writer !== undefined) {
      return writer === tools.writer ? "committed" : "adopted";
    }
    await publish(session, tools, commit);
    return "committed";
  };
  try {
    return await transact(tools, work, { last });
  } catch (error) {
    const writer = await takenBy(tools, commit, error);
    if (writer === undefined) {
      throw error;
    }
    return writer === tools.writer ? "committed" : "adopted";
  }
}

/**
 * The writer that committed the span, if one did.
 * @throws JobError OUTPUT_DAMAGED when the plan at the target is gone or another one
 */
async function look(session: Session, control: Control, { stored, span }: SpanCommit): Promise<string | undefined> {
  const { rows } = await session.query<{ plan_id: string | null; writer: string | null }>({
    text: `SELECT r.plan_id, s.writer FROM (SELECT 1) AS one
      LEFT JOIN ${control.table("runs")} r ON r.run_id = $1
      LEFT JOIN ${control.table("spans")} s ON s.run_id = $1 AND s.span = $2`,
    values: [stored.plan.runId, span.index],
  });
  const [row] = rows;
  if (row?.plan_id !== stored.planId) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `looking at ${control.schema}.runs: the plan of run ${stored.plan.runId} is ${row?.plan_id === null ? "gone" : "another one"}`,
      { hint: "somebody changed the control tables under the run; run the same command again" },
    );
  }
  return row.writer ?? undefined;
}

async function publish(session: Session, { control, writer }: SpanTools, commit: SpanCommit): Promise<void> {
  const { stored, span, rowCount, rejects } = commit;
  const { runId } = stored.plan;
  const taken = rowCount === 0 ? 0 : await commit.write(session);
  if (taken !== rowCount || rowCount + rejects.length !== span.rowEnd - span.rowStart) {
    throw new Error(`${taken} of ${rowCount} rows were taken and ${rejects.length} rejected for span ${span.index}`);
  }
  await insertRejects(session, control, { runId, span: span.index, rejects });
  await session.query({
    text: `INSERT INTO ${control.table("spans")} (run_id, span, plan_id, row_start, row_end, rows, rejected, writer)
      VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
    values: [runId, span.index, stored.planId, span.rowStart, span.rowEnd, rowCount, rejects.length, writer],
  });
}

/**
 * What the server refuses, such as a key that is taken or a table that is gone, may mean that another attempt
 * committed this very span a moment ago: then, that attempt.
 */
async function takenBy(tools: SpanTools, commit: SpanCommit, error: unknown): Promise<string | undefined> {
  const isRefusal = error instanceof DatabaseError && classify(error).kind === "permanent";
  if (!isRefusal && !(error instanceof TakenMeanwhile)) {
    return undefined;
  }
  try {
    return await tools.connections.use((session) => look(session, tools.control, commit));
  } catch (cause) {
    throw new TakenMeanwhile({ cause });
  }
}
