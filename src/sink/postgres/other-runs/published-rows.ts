import type { PublishedRowsRequest, StoredFiles } from "../../../publish/published-files.js";
import type { Session } from "../connections.js";
import { quoteName, quoteTable } from "../names.js";
import { type CopiedTable, copyRows } from "./copy-rows.js";

/** Where the rows of published runs are. */
export interface PublishedTable extends CopiedTable {
  /** Whether the table has the rows of several runs, which `run_id` distinguishes. */
  readonly hasRowsOfAllRuns: boolean;
}

/** Copies rows of the table, as texts, into a file of the spool. */
export async function readPublishedRows(
  tools: PublishedTable,
  { run, columns }: PublishedRowsRequest,
): Promise<StoredFiles> {
  return await copyRows(tools, async (session) => {
    const names = columns.map(({ name }) => name);
    const arrays = await arrayColumns(session, tools, names);
    const values = names.map((name) => (arrays.has(name) ? `array_to_json(${quoteName(name)})` : quoteName(name)));
    const where = tools.hasRowsOfAllRuns ? ` WHERE run_id = '${run.runId.replaceAll("'", "''")}'` : "";
    return `SELECT ${values.join(", ")} FROM ${quoteTable(tools.name)}${where}`;
  });
}

/** The columns that are arrays, whose texts only Postgres reads. */
async function arrayColumns(
  session: Session,
  { name }: Pick<PublishedTable, "name">,
  columns: readonly string[],
): Promise<ReadonlySet<string>> {
  const { rows } = await session.query<{ attname: string }>({
    text: `SELECT a.attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
      WHERE a.attrelid = $1::regclass AND a.attname = ANY ($2) AND t.typcategory = 'A'`,
    values: [quoteTable(name), columns],
  });
  return new Set(rows.map(({ attname }) => attname));
}
