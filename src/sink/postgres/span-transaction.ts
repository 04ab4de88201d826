import { DatabaseError } from "pg";
import type { RejectedRow } from "../../batch/types.js";
import { JobError } from "../../errors.js";
import type { Span } from "../../plan/plan.js";
import type { PostgresTimeouts } from "../../spec/postgres-spec.js";
import type { CommitOutcome, StoredPlan } from "../port.js";
import { watchBlockers } from "./blockers.js";
import type { Connections, Session } from "./connections.js";
import type { Control } from "./control.js";
import { insertRejects } from "./reject-rows.js";
import { inTransaction } from "./transaction.js";

/** A span that is encoded and ready to be sent. */
export interface SpanCommit {
  readonly stored: StoredPlan;
  readonly span: Span;
  readonly rowCount: number;
  readonly rejects: readonly RejectedRow[];
  /** Sends the rows, in the transaction that the session is in; returns how many the server took. */
  readonly write: (session: Session) => Promise<number>;
}

export interface SpanTools {
  readonly connections: Connections;
  readonly control: Control;
  readonly timeouts: PostgresTimeouts;
  readonly writer: string;
  readonly warn: (message: string) => void;
}

const lockTimeout = "55P03";
const uniqueViolation = "23505";

/**
 * Commits a span's rows and its control row in one transaction, or finds that this was done. Safe to repeat, and
 * repeating is how an unknown outcome is resolved: the first thing it does is to ask the control table, and the
 * control row, which can be there once only, is inserted last, so that nobody who is slow or gone holds it.
 * `last`: why the try before this one failed.
 */
export async function commitSpan(tools: SpanTools, commit: SpanCommit, last: unknown): Promise<CommitOutcome> {
  const { connections, control, timeouts } = tools;
  return await connections.use(async (session) => {
    let watch: { stop(): Promise<void> } | undefined;
    try {
      return await inTransaction(session, timeouts, async () => {
        const seen = await look(session, control, commit);
        if (seen.outcome !== undefined) {
          return seen.outcome === tools.writer ? "committed" : "adopted";
        }
        if (last instanceof DatabaseError && last.code === lockTimeout) {
          watch = watchBlockers(connections, { pid: seen.pid, lockSeconds: timeouts.lock, warn: tools.warn });
        }
        await publish(session, tools, commit);
        return "committed";
      });
    } catch (error) {
      throw await explain(tools, commit, error);
    } finally {
      await watch?.stop();
    }
  });
}

interface Look {
  /** The writer that committed the span. */
  readonly outcome: string | undefined;
  /** Of the session that holds the transaction; behind a pooler, the connection does not know it. */
  readonly pid: number;
}

/** @throws JobError OUTPUT_DAMAGED when the plan at the target is gone or another one */
async function look(session: Session, control: Control, { stored, span }: SpanCommit): Promise<Look> {
  const { rows } = await session.query<{ plan_id: string | null; writer: string | null; pid: number }>({
    text: `SELECT r.plan_id, s.writer, pg_backend_pid() AS pid FROM (SELECT 1) AS one
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
  return { outcome: row.writer ?? undefined, pid: row.pid };
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

/** A key that is taken may mean that another attempt committed this very span a moment ago: that is asked first. */
async function explain(tools: SpanTools, commit: SpanCommit, error: unknown): Promise<unknown> {
  if (!(error instanceof DatabaseError) || error.code !== uniqueViolation) {
    return error;
  }
  const seen = await tools.connections.use((session) => look(session, tools.control, commit)).catch(() => undefined);
  return seen === undefined || seen.outcome !== undefined
    ? new TakenMeanwhile("another attempt was there first", { cause: error })
    : error;
}

/** Try again: the next look finds the span committed. */
class TakenMeanwhile extends Error {
  readonly code = "ECONNABORTED";
}
