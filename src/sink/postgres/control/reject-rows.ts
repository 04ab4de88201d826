import { z } from "../../../util/zod.js";
import { type RejectedRow, rejectReasons } from "../../../columnar/types.js";
import type { RunId } from "../../../plan/plan.js";
import type { Connections, Session } from "../connections.js";
import type { Control } from "./control.js";

/** Replaces the character with code 0, which Postgres text cannot hold, with a visible symbol. */
function showNul(text: string): string {
  return text.replaceAll("\u0000", "\u2400");
}

const rowsPerInsert = 5000;

/** Inserts a span's rejected rows in the session's transaction. */
export async function insertRejects(
  session: Session,
  { table }: Control,
  runId: RunId,
  span: number,
  rejects: readonly RejectedRow[],
): Promise<void> {
  // In groups: millions of rejects exceed the longest text of JavaScript, and the largest jsonb value.
  for (let from = 0; from < rejects.length; from += rowsPerInsert) {
    const rows = rejects
      .slice(from, from + rowsPerInsert)
      .map(({ shard, row, columns, column, reason, value }, index) => ({
        n: from + index,
        shard: showNul(shard),
        row,
        column_name: column,
        reason,
        value: value === null ? null : showNul(value),
        columns: Object.fromEntries(
          Object.entries(columns).map(([name, text]) => [name, text === null ? null : showNul(text)]),
        ),
      }));
    await session.query({
      text: `INSERT INTO ${table("rejects")} (run_id, span, n, shard, row, column_name, reason, value, columns)
        SELECT $1, $2, r.* FROM jsonb_to_recordset($3::jsonb) AS
          r (n int, shard text, "row" bigint, column_name text, reason text, value text, columns jsonb)`,
      values: [runId, span, JSON.stringify(rows)],
    });
  }
}

const rowsPerQuery = 1000;

const schema = z.object({
  span: z.int(),
  n: z.int(),
  shard: z.string(),
  row: z.coerce.number(),
  column_name: z.string().nullable(),
  reason: z.enum(rejectReasons),
  value: z.string().nullable(),
  columns: z.record(z.string(), z.string().nullable()),
});

/** Yields the rejected rows of a run's committed spans, in span order. Reads a bounded number at a time. */
export async function* readRejects(
  connections: Connections,
  control: Control,
  runId: RunId,
): AsyncGenerator<RejectedRow> {
  let after: readonly [number, number] = [-1, -1];
  for (;;) {
    const [span, n] = after;
    const { rows } = await connections.use((session) =>
      session.query({
        text: `SELECT span, n, shard, row, column_name, reason, value, columns FROM ${control.table("rejects")}
          WHERE run_id = $1 AND (span, n) > ($2, $3) ORDER BY span, n LIMIT ${rowsPerQuery}`,
        values: [runId, span, n],
      }),
    );
    for (const row of rows) {
      const { column_name: column, ...rejected } = schema.parse(row);
      after = [rejected.span, rejected.n];
      const { shard, row: number, columns, reason, value } = rejected;
      yield { shard, row: number, columns, column, reason, value };
    }
    if (rows.length < rowsPerQuery) {
      return;
    }
  }
}
