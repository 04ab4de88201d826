// A floor: DuckDB reads all columns of the shards and adds them up; nothing is scored or written.
// usage: floor_read.mjs ROWS SHARD...
import { DuckDBInstance } from "@duckdb/node-api";

const [rows, ...shards] = process.argv.slice(2);
const files = shards.map((shard) => `'${shard.replaceAll("'", "''")}'`);
const instance = await DuckDBInstance.create(":memory:");
const connection = await instance.connect();
const sums = ["id", ...Array.from({ length: 32 }, (_, index) => `f${index}`)].map((name) => `sum(${name})`);
const result = await connection.runAndReadAll(
  `SELECT count(*)::INTEGER, ${sums.join(", ")} FROM read_parquet([${files.join(", ")}])`,
);
const [[found]] = result.getRows();
if (found !== Number(rows)) {
  throw new Error(`reading ${shards.length} shards: ${Number(found)} rows, expected ${rows}`);
}
connection.closeSync();
instance.closeSync();
