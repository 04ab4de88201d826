import { DuckDBInstance } from "@duckdb/node-api";

export type Row = Readonly<Record<string, unknown>>;

/** Rows of Parquet files in file order, through a DuckDB of the test's own. int64 comes as bigint. */
export async function readRows(glob: string): Promise<Row[]> {
  return await query(`SELECT * FROM read_parquet('${glob}', hive_partitioning = false)`);
}

/** Rows of exactly these files, one after the other. */
export async function readFiles(paths: readonly string[]): Promise<Row[]> {
  if (paths.length === 0) {
    return [];
  }
  const list = paths.map((path) => `'${path.replaceAll("'", "''")}'`).join(", ");
  return await query(`SELECT * FROM read_parquet([${list}], hive_partitioning = false)`);
}

/** Writes the rows of a SELECT to a Parquet file; `options` as DuckDB's COPY takes them. */
export async function writeRows(path: string, select: string, options = "COMPRESSION snappy"): Promise<void> {
  await query(`COPY (${select}) TO '${path}' (FORMAT parquet, ${options})`);
}

/** Runs one SQL statement in a DuckDB of its own. */
export async function query(sql: string): Promise<Row[]> {
  const instance = await DuckDBInstance.create(":memory:", { threads: "1" });
  const connection = await instance.connect();
  try {
    const result = await connection.runAndReadAll(sql);
    return result.getRowObjects();
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}
