import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { Client } from "pg";
import { from as copyFrom } from "pg-copy-streams";
import type { NamedColumn } from "#src/columns/types.js";
import { copyStream, encodeRows } from "#src/targets/postgres/copy-binary.js";
import type { PgType } from "#src/targets/postgres/table.js";

/** Sends columns to a table as the sink encodes them; returns the rows that the server counted. */
export async function copyColumns(
  url: string,
  into: string,
  {
    columns,
    types,
    rowCount,
  }: { columns: readonly Omit<NamedColumn, "name">[]; types: readonly PgType[]; rowCount: number },
): Promise<number> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const copy = client.query(copyFrom(`COPY ${into} FROM STDIN (FORMAT binary)`));
    await pipeline(Readable.from(copyStream(encodeRows(columns, types, rowCount))), copy);
    return copy.rowCount;
  } finally {
    await client.end();
  }
}
