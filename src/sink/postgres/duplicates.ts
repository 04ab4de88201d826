import { JobError } from "../../util/errors.js";
import type { Session } from "./connections.js";
import { quoteTable, showTable, type TableName } from "./names.js";
import { readsAllRows } from "./table.js";

/**
 * Refuses a new run in mode append where the table holds rows: the new run would add the same rows again. Only an empty
 * table has none of them. The attempt that plans the run checks this alone behind the fence around the runs, so that no
 * row of an earlier run can come later.
 * @throws JobError USAGE
 */
export async function refuseDuplicates(session: Session, name: TableName): Promise<void> {
  // A role that may not read all rows cannot tell that there are none.
  const readable = await session.query<{ readable: boolean }>({
    text: `SELECT ${readsAllRows} AS readable
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`,
    values: [name.schema, name.table],
  });
  const [table] = readable.rows;
  if (table === undefined || (table.readable && !(await holdsRows(session, name)))) {
    return;
  }
  throw new JobError(
    "USAGE",
    `opening a new run: output.postgres.mode is append, and ${showTable(name)} keeps the rows of the runs before`,
    {
      hint: "use mode upsert or replace, which accept new runs; or empty the table; or delete those rows, or accept each row twice, and add --allow-duplicates",
    },
  );
}

async function holdsRows(session: Session, name: TableName): Promise<boolean> {
  const { rows } = await session.query(`SELECT FROM ${quoteTable(name)} LIMIT 1`);
  return rows.length > 0;
}
