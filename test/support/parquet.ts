import { type DuckDBConnection, DuckDBInstance } from "@duckdb/node-api";

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

/**
 * One for all statements of a process: to open and close it takes longer than most of them. It keeps nothing of files,
 * which tests write to again within a second.
 */
let instance: Promise<DuckDBInstance> | undefined;

/** A connection to it; who asks for one closes it. */
export async function connectToDuckDb(): Promise<DuckDBConnection> {
  instance ??= DuckDBInstance.create(":memory:", { threads: "1", enable_external_file_cache: "false" });
  return await (await instance).connect();
}

export async function query(sql: string): Promise<Row[]> {
  const connection = await connectToDuckDb();
  try {
    const result = await connection.runAndReadAll(sql);
    return result.getRowObjects();
  } finally {
    connection.closeSync();
  }
}
