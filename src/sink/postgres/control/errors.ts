import { type AttemptFailure, storedMessage } from "../../../publish/attempt-failure.js";
import type { RunId } from "../../../plan/plan.js";
import { bestEffort } from "../../../util/best-effort.js";
import type { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import type { RunTools } from "../run-tools.js";
import { transact } from "../transaction.js";
import { lock } from "../locks.js";
import { type Control, utcText } from "./control.js";

/**
 * Records the error of an attempt in the control tables, for `status` and `history`. An error of the database itself is
 * not recorded.
 */
export async function recordFailure(tools: RunTools, runId: RunId, { code, message }: JobError): Promise<void> {
  if (code === "DATABASE") {
    return;
  }
  const { control, writer } = tools;
  const text = `INSERT INTO ${control.table("errors")} (run_id, writer, code, message) VALUES ($1, $2, $3, $4)`;
  await bestEffort(() =>
    transact(tools, (session) => session.query({ text, values: [runId, writer, code, storedMessage(message)] })),
  );
}

/** The code of the row that says that a run is late. */
const lateCode = "LATE";

/** Records that a run is late. Returns whether this attempt is the first to do so. */
export async function recordLate(tools: RunTools, runId: RunId, message: string): Promise<boolean> {
  const { control, writer } = tools;
  const errors = control.table("errors");
  return await transact(tools, async (session) => {
    await lock(session, `late ${runId}`);
    const { rowCount } = await session.query({
      text: `INSERT INTO ${errors} (run_id, writer, code, message) SELECT $1, $2, $3, $4
        WHERE NOT EXISTS (SELECT FROM ${errors} WHERE run_id = $1 AND code = $3)`,
      values: [runId, writer, lateCode, storedMessage(message)],
    });
    if (rowCount === 1) {
      return true;
    }
    // The answer to this attempt's own COMMIT may have been lost.
    const { rows } = await session.query({
      text: `SELECT FROM ${errors} WHERE run_id = $1 AND code = $2 AND writer = $3 AND message = $4`,
      values: [runId, lateCode, writer, storedMessage(message)],
    });
    return rows.length > 0;
  });
}

/** Reads the last error of a run, with the number of spans that were committed by then. */
export async function lastFailure(
  session: Session,
  control: Control,
  runId: RunId,
): Promise<AttemptFailure | undefined> {
  const { rows } = await session.query<AttemptFailure>({
    text: `SELECT ${utcText("e.at")} AS at, e.writer, e.code, e.message,
        (SELECT count(*)::integer FROM ${control.table("spans")} s WHERE s.run_id = e.run_id AND s.committed_at <= e.at)
          AS "spansCommitted"
      FROM ${control.table("errors")} e WHERE e.run_id = $1 AND e.code <> '${lateCode}' ORDER BY e.at DESC LIMIT 1`,
    values: [runId],
  });
  return rows[0];
}

/** Whether an attempt has begun of which no error is recorded. */
export async function isWorkedOn(session: Session, control: Control, runId: RunId): Promise<boolean> {
  const { rowCount } = await session.query({
    text: `SELECT FROM ${control.table("attempts")} a WHERE a.run_id = $1 AND NOT EXISTS
        (SELECT FROM ${control.table("errors")} e WHERE e.run_id = a.run_id AND e.writer = a.writer AND e.code <> '${lateCode}')
      LIMIT 1`,
    values: [runId],
  });
  return rowCount === 1;
}
