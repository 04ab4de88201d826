import type { KeyCounts } from "../../../checks/rules/unique.js";
import type { Session } from "../connections.js";
import { quoteName, quoteTable, type TableName } from "../names.js";

/** The number of repeated keys that a verdict names. */
const shownKeys = 3;

/** Counts how often keys repeat in a table that holds the rows of one run only. */
export async function countKeys(session: Session, table: TableName, columns: readonly string[]): Promise<KeyCounts> {
  const names = columns.map(quoteName);
  const isNull = names.map((name) => `${name} IS NULL`).join(" OR ");
  const shown = `concat_ws(', ', ${names.map((name) => `left(${name}::text, 60)`).join(", ")})`;
  const from = quoteTable(table);
  await session.query("SET LOCAL statement_timeout = 0"); // counting all rows may take longer than the limit of a statement
  const { rows } = await session.query<KeyCounts>(
    `WITH counts AS MATERIALIZED (
       SELECT ${names.join(", ")}, count(*) AS copies FROM ${from} WHERE NOT (${isNull})
       GROUP BY ${names.join(", ")} HAVING count(*) > 1)
     SELECT (SELECT coalesce(sum(copies - 1), 0)::float8 FROM counts) AS repeated,
       (SELECT count(*)::float8 FROM ${from} WHERE ${isNull}) AS nulls,
       ARRAY(SELECT ${shown} FROM counts ORDER BY 1 LIMIT ${shownKeys}) AS examples`,
  );
  return rows[0] ?? { repeated: 0, nulls: 0, examples: [] };
}
