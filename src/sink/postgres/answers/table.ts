import type { RunId } from "../../../plan/plan.js";
import type { KeptAnswer } from "../../answers.js";
import type { Session } from "../connections.js";
import { shortHash } from "../modes/upsert.js";
import { quoteTable, type TableName } from "../names.js";

/** Name of the table that holds the answers of an unfinished run. */
export function answersTable(schema: string, runId: RunId): TableName {
  return { schema, table: `answers_${shortHash(runId)}` };
}

/** Makes the table of a run's answers unless it is there. The caller has locked the run: one attempt at a time does this. */
export async function makeAnswersTable(session: Session, name: TableName): Promise<void> {
  const table = quoteTable(name);
  await session.query(`CREATE TABLE ${table} (request bytea PRIMARY KEY, answer text NOT NULL, kept_at timestamptz NOT NULL DEFAULT clock_timestamp());
    COMMENT ON TABLE ${table} IS 'Answers that an unfinished run has paid for; goes when it is published or discarded';
    COMMENT ON COLUMN ${table}.request IS 'SHA-256 of the request';
    COMMENT ON COLUMN ${table}.answer IS 'the answer, JSON';
    COMMENT ON COLUMN ${table}.kept_at IS 'when'`);
}

/** Inserts answers whose requests are not there. */
export async function insertAnswers(session: Session, name: TableName, answers: readonly KeptAnswer[]): Promise<void> {
  // In order, so that two workers with the same requests wait for each other and do not deadlock.
  await session.query({
    text: `INSERT INTO ${quoteTable(name)} (request, answer)
      SELECT decode(a.request, 'hex'), a.answer FROM unnest($1::text[], $2::text[]) AS a (request, answer) ORDER BY a.request
      ON CONFLICT DO NOTHING`,
    values: [answers.map(({ request }) => request), answers.map(({ answer }) => answer)],
  });
}

/** Reads answers whose requests come after one, in order; at most `limit`. */
export async function answersAfter(
  session: Session,
  name: TableName,
  { after, limit }: { readonly after: string; readonly limit: number },
): Promise<readonly KeptAnswer[]> {
  const { rows } = await session.query<KeptAnswer>({
    text: `SELECT encode(request, 'hex') AS request, answer FROM ${quoteTable(name)}
      WHERE request > decode($1, 'hex') ORDER BY request LIMIT ${limit}`,
    values: [after],
  });
  return rows;
}
