import type { Column } from "../../columnar/types.js";
import type { ConnectionPool } from "../../duckdb/instance.js";
import { readColumn } from "../../duckdb/vectors.js";
import { columnSql } from "./cast-sql.js";
import type { SliceRequest } from "../port.js";

/** Values from folder names, as columns of so many rows, up to 2,048. */
export async function folderConstants(
  pool: ConnectionPool,
  { projection, partitions }: SliceRequest,
  rows: number,
): Promise<ReadonlyMap<string, Column>> {
  const refs = projection.passthrough.flatMap(({ source }) => (source.partition === true ? [source] : []));
  if (refs.length === 0) {
    return new Map();
  }
  const sql = refs.map((ref) => columnSql(ref, partitions)).join(", ");
  const chunk = await pool.use(async (connection) => {
    const result = await connection.run(`SELECT ${sql} FROM range(${rows})`);
    return await result.fetchChunk();
  });
  if (chunk?.rowCount !== rows) {
    throw new Error(`DuckDB gave ${chunk?.rowCount} rows of constants`);
  }
  return new Map(refs.map((ref, index) => [ref.path[0] ?? "", readColumn(chunk, index, ref.type)]));
}
