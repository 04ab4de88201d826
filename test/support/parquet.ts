import { DuckDBInstance } from "@duckdb/node-api";

export type Row = Readonly<Record<string, unknown>>;

/** Rows of Parquet files in file order, through a DuckDB of the test's own. int64 comes as bigint. */
export async function readRows(glob: string): Promise<Row[]> {
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  try {
    const result = await connection.runAndReadAll(`SELECT * FROM read_parquet('${glob}', hive_partitioning = false)`);
    return result.getRowObjects();
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}
