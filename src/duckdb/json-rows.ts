import type { DuckDbAccess } from "./instance.js";
import { quotePath } from "./sql.js";

/** What SQL makes of the rows of a Parquet file on this machine, one JSON text each. */
export async function jsonRows(
  duckdb: DuckDbAccess,
  path: string,
  { select, where }: { readonly select: string; readonly where: string },
): Promise<string[]> {
  const connection = await duckdb.connect();
  try {
    const rows = `SELECT ${select} FROM read_parquet(${quotePath(path)}, hive_partitioning = false) WHERE ${where}`;
    const read = await connection.runAndReadAll(`SELECT to_json(t)::VARCHAR FROM (${rows}) t`);
    return read.getRows().map(([line]) => String(line));
  } finally {
    connection.closeSync();
  }
}
