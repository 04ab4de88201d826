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
  await session.query(`CREATE TABLE ${table} (request bytea, writer text, answer text NOT NULL, kept_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (request, writer));
    COMMENT ON TABLE ${table} IS 'Answers that an unfinished run has paid for; goes when it is published or discarded';
    COMMENT ON COLUMN ${table}.request IS 'SHA-256 of the request';
    COMMENT ON COLUMN ${table}.writer IS 'the attempt that paid for the answer';
    COMMENT ON COLUMN ${table}.answer IS 'the answer, JSON';
    COMMENT ON COLUMN ${table}.kept_at IS 'when'`);
}

/** Inserts answers of an attempt. Those that it has inserted before are left as they are: an insert can be repeated. */
export async function insertAnswers(
  session: Session,
  name: TableName,
  { writer, answers }: { readonly writer: string; readonly answers: readonly KeptAnswer[] },
): Promise<void> {
  // Two attempts that paid for the same request keep both answers, since both cost money.
  await session.query({
    text: `INSERT INTO ${quoteTable(name)} (request, writer, answer)
      SELECT decode(a.request, 'hex'), $1, a.answer FROM unnest($2::text[], $3::text[]) AS a (request, answer)
      ON CONFLICT DO NOTHING`,
    values: [writer, answers.map(({ request }) => request), answers.map(({ answer }) => answer)],
  });
}

/** An answer in the table, with what tells it from another one to the same request. */
export interface StoredAnswer extends KeptAnswer {
  readonly writer: string;
}

/** Reads answers that come after one, ordered by request and writer; at most `limit`. */
export async function answersAfter(
  session: Session,
  name: TableName,
  { after, limit }: { readonly after: Pick<StoredAnswer, "request" | "writer">; readonly limit: number },
): Promise<readonly StoredAnswer[]> {
  const { rows } = await session.query<StoredAnswer>({
    text: `SELECT encode(request, 'hex') AS request, writer, answer FROM ${quoteTable(name)}
      WHERE (request, writer) > (decode($1, 'hex'), $2) ORDER BY request, writer LIMIT ${limit}`,
    values: [after.request, after.writer],
  });
  return rows;
}
