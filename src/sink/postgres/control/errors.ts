import { type AttemptFailure, storedMessage } from "../../../publish/attempt-failure.js";
import type { RunId } from "../../../plan/plan.js";
import { bestEffort } from "../../../util/best-effort.js";
import { JobError } from "../../../util/errors.js";
import type { RunNote, RunNotes } from "../../run-notes.js";
import type { Session } from "../connections.js";
import type { RunTools } from "../run-tools.js";
import { transact } from "../transaction.js";
import { lock } from "../locks.js";
import { retrying } from "../retry.js";
import { type Control, utcText } from "./control.js";
import { hasControlTables } from "./schema.js";
import { damagedRun, spansMissing } from "../damage.js";

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

/** The codes of rows that are notes, and no errors. */
const noteCodes: Readonly<Record<RunNote, string>> = { late: "LATE", late_told: "LATE_TOLD", told: "TOLD" };
/** The code of a row that lists spans whose control rows an attempt has seen, and which were gone later. */
export const spansGone = "SPANS_GONE";
const isError = (alias: string): string =>
  `${alias}.code NOT IN (${[...Object.values(noteCodes), spansGone].map((code) => `'${code}'`).join(", ")})`;

/**
 * Records which of these spans have no control row any more, so that later attempts do not score them again: their rows
 * may be in the table.
 */
export async function recordSpansGone(tools: RunTools, runId: RunId, known: Iterable<number>): Promise<void> {
  const { control, writer } = tools;
  await bestEffort(async () => {
    await tools.ensureControlTables(undefined);
    await transact(tools, (session) =>
      session.query({
        text: `INSERT INTO ${control.table("errors")} (run_id, writer, code, message)
          SELECT $1, $2, '${spansGone}', json_agg(n ORDER BY n) FROM unnest($3::int4[]) AS n
          WHERE NOT EXISTS (SELECT FROM ${control.table("spans")} WHERE run_id = $1 AND span = n) HAVING count(*) > 0`,
        values: [runId, writer, [...known]],
      }),
    );
  });
}

/**
 * Refuses a run whose control rows are known to be missing. `target`: where their rows are beside those of others;
 * undefined: a new run replaces them. @throws JobError OUTPUT_DAMAGED
 */
export async function refuseSpansGone(
  session: Session,
  control: Control,
  { runId, target }: { readonly runId: RunId; readonly target: string | undefined },
): Promise<void> {
  const errors = control.table("errors");
  const { rows } = await session.query<{ span: number; count: number }>({
    text: `SELECT min(n::int4) AS span, count(DISTINCT n)::int4 AS count
      FROM ${errors} e, json_array_elements_text(CASE WHEN code = '${spansGone}' THEN message::json ELSE '[]' END) AS n
      WHERE e.run_id = $1 AND code = '${spansGone}'
        AND NOT EXISTS (SELECT FROM ${control.table("spans")} s WHERE s.run_id = $1 AND s.span = n::int4) HAVING count(*) > 0`,
    values: [runId],
  });
  const [gone] = rows;
  if (gone !== undefined) {
    const more = gone.count > 1 ? ` and ${gone.count - 1} more` : "";
    const found = `reading ${control.schema}.spans: span ${gone.span}${more} of run ${runId} had been committed, and the control rows are gone`;
    const again = `DELETE FROM ${errors} WHERE run_id = '${runId}' AND code = '${spansGone}'`;
    throw target === undefined
      ? damagedRun(found, { hint: "restore the control tables from a backup", runId })
      : spansMissing(found, { runId, target, notThere: again });
  }
}

/** Notes on a run. The first note on a run that is not planned yet may be the first row of the control tables. */
export function notesOf(tools: RunTools, runId: RunId): RunNotes {
  const { control, retry, target } = tools;
  return {
    add: (note, text) =>
      retrying(`writing to ${target}`, retry, async (last) => {
        await tools.ensureControlTables(last);
        return await addNote(tools, { runId, note, text });
      }),
    timeOf: (note) =>
      retrying(`reading ${target}`, retry, () =>
        transact(tools, async (session) =>
          (await hasControlTables(session, control.schema))
            ? await timeOfNote(session, control, { runId, note })
            : undefined,
        ),
      ),
  };
}

/** Records a note, unless it is there already. Returns whether this attempt has recorded it. */
async function addNote(
  tools: RunTools,
  { runId, note, text }: { readonly runId: RunId; readonly note: RunNote; readonly text: string },
): Promise<boolean> {
  const { control, writer } = tools;
  const errors = control.table("errors");
  return await transact(tools, async (session) => {
    await lock(session, `${note} ${runId}`);
    const { rowCount } = await session.query({
      text: `INSERT INTO ${errors} (run_id, writer, code, message) SELECT $1, $2, $3, $4
        WHERE NOT EXISTS (SELECT FROM ${errors} WHERE run_id = $1 AND code = $3)`,
      values: [runId, writer, noteCodes[note], storedMessage(text)],
    });
    if (rowCount === 1) {
      return true;
    }
    // The answer to this attempt's own COMMIT may have been lost.
    const { rows } = await session.query({
      text: `SELECT FROM ${errors} WHERE run_id = $1 AND code = $2 AND writer = $3 AND message = $4`,
      values: [runId, noteCodes[note], writer, storedMessage(text)],
    });
    return rows.length > 0;
  });
}

/** Returns when a note on a run was recorded, ISO 8601 in UTC; undefined: it was not. */
async function timeOfNote(
  session: Session,
  control: Control,
  { runId, note }: { readonly runId: RunId; readonly note: RunNote },
): Promise<string | undefined> {
  const { rows } = await session.query<{ at: string }>({
    text: `SELECT ${utcText("at")} AS at FROM ${control.table("errors")} WHERE run_id = $1 AND code = $2 LIMIT 1`,
    values: [runId, noteCodes[note]],
  });
  return rows[0]?.at;
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
      FROM ${control.table("errors")} e WHERE e.run_id = $1 AND ${isError("e")} ORDER BY e.at DESC LIMIT 1`,
    values: [runId],
  });
  return rows[0];
}

/** Whether an attempt has begun of which no error is recorded. */
export async function isWorkedOn(session: Session, control: Control, runId: RunId): Promise<boolean> {
  const { rowCount } = await session.query({
    text: `SELECT FROM ${control.table("attempts")} a WHERE a.run_id = $1 AND NOT EXISTS
        (SELECT FROM ${control.table("errors")} e WHERE e.run_id = a.run_id AND e.writer = a.writer AND ${isError("e")})
      LIMIT 1`,
    values: [runId],
  });
  return rowCount === 1;
}
