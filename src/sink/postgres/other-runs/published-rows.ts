import { createWriteStream } from "node:fs";
import { dirname } from "node:path";
import { pipeline } from "node:stream/promises";
import { to as copyTo } from "pg-copy-streams";
import type { PublishedRowsRequest, StoredFiles } from "../../../publish/published-files.js";
import type { Session } from "../connections.js";
import type { RowSpool } from "../copy/spilled-copy.js";
import { finishSeconds } from "../finish-run.js";
import { quoteName, quoteTable } from "../names.js";
import { retrying } from "../retry.js";
import type { RunTools } from "../run-tools.js";
import { transact } from "../transaction.js";

/** Where the rows of published runs are. */
export interface PublishedTable
  extends Pick<RunTools, "connections" | "timeouts" | "warn" | "retry" | "name" | "target"> {
  /** Whether the table has the rows of several runs, which `run_id` tells apart. */
  readonly hasRowsOfAllRuns: boolean;
  readonly spool: RowSpool;
}

/** Copies rows of the table, as texts, into a file of the spool. */
export async function readPublishedRows(
  tools: PublishedTable,
  { run, columns }: PublishedRowsRequest,
): Promise<StoredFiles> {
  const { spool, target, retry } = tools;
  await spool.prepare();
  const path = spool.newPath();
  const copied = await retrying(`reading ${target}`, retry, (last) =>
    transact(
      tools,
      async (session) => {
        await session.query(textSettings);
        const names = columns.map(({ name }) => name);
        const arrays = await arrayColumns(session, tools, names);
        const values = names.map((name) => (arrays.has(name) ? `array_to_json(${quoteName(name)})` : quoteName(name)));
        const where = tools.hasRowsOfAllRuns ? ` WHERE run_id = '${run.runId.replaceAll("'", "''")}'` : "";
        const selected = `SELECT ${values.join(", ")} FROM ${quoteTable(tools.name)}${where}`;
        const rows = session.query(copyTo(`COPY (${selected}) TO STDOUT (FORMAT csv, NULL '\\N')`));
        await pipeline(rows, createWriteStream(path, { mode: 0o600 }));
        return rows;
      },
      { last, silentSeconds: finishSeconds },
    ),
  );
  // Told behind the last row: the transaction has ended since.
  return { format: "csv", rows: copied.rowCount, folder: dirname(path), groups: oneGroup(path) };
}

/** Texts are the same on every server, and floats have all their digits. */
const textSettings = `SET LOCAL statement_timeout = 0; SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC';
  SET LOCAL extra_float_digits = 1`;

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

// oxlint-disable-next-line require-await -- the port reads groups asynchronously
async function* oneGroup(path: string): AsyncGenerator<readonly string[]> {
  yield [path];
}
