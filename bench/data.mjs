// The table that every contender scores: made once, the same bytes each time, kept in bench/data/.
import { mkdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { DuckDBInstance, version } from "@duckdb/node-api";

export const dataFolder = fileURLToPath(new URL("data", import.meta.url));
export const rowCount = 4_000_000;
export const smallRowCount = 100_000;

const shardCount = 8;
const rowsPerShard = rowCount / shardCount;
const featureCount = 32;
const stampFile = join(dataFolder, "stamp.json");

/** 8 shards of 500,000 rows: id BIGINT (0 to 3,999,999), f0 to f31 FLOAT within -5..5. */
export const shards = Array.from({ length: shardCount }, (_, index) =>
  join(dataFolder, "shards", `part-${String(index).padStart(5, "0")}.parquet`),
);

/** The first 100,000 rows again in a shard of their own, for the contender that would take minutes over them all. */
export const smallShard = join(dataFolder, "small", "part-00000.parquet");

// DuckDB writes version 1 pages here, PLAIN and snappy, which parquetjs-lite reads.
const format = "(FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 122880, PARQUET_VERSION V1)";

/** Makes the shards unless they are there. */
export async function prepareData() {
  if (await isReady()) {
    return;
  }
  console.error(`making ${rowCount} rows in ${dataFolder} (once; about 540 MB)`);
  await rm(stampFile, { force: true });
  for (const folder of ["shards", "small"]) {
    await rm(join(dataFolder, folder), { recursive: true, force: true });
    await mkdir(join(dataFolder, folder), { recursive: true });
  }
  const instance = await DuckDBInstance.create(":memory:", { threads: "1" }); // several would draw random() in any order
  const connection = await instance.connect();
  try {
    for (const [index, shard] of shards.entries()) {
      await connection.run(`SELECT setseed(${(0.1 + index * 0.1).toFixed(1)})`);
      await connection.run(`COPY (${shardSql(index)}) TO ${quote(shard)} ${format}`);
    }
    const first = `SELECT * FROM read_parquet(${quote(shards[0])}) WHERE id < ${smallRowCount}`;
    await connection.run(`COPY (${first}) TO ${quote(smallShard)} ${format}`);
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
  await writeFile(stampFile, await stamp());
}

async function isReady() {
  try {
    return (await readFile(stampFile, "utf8")) === (await stamp());
  } catch (error) {
    if (error.code === "ENOENT") {
      return false;
    }
    throw error;
  }
}

/** What made the files, and their sizes: written last, so a half-made table has none. */
async function stamp() {
  const sizes = [];
  for (const file of [...shards, smallShard]) {
    sizes.push((await stat(file)).size);
  }
  return `${JSON.stringify({ duckdb: version(), recipe: [shardSql(0), smallRowCount, format], sizes }, undefined, 2)}\n`;
}

/** The features share a factor g with weights from 0.1 to 0.45, so that they correlate. */
function shardSql(index) {
  const features = Array.from({ length: featureCount }, (_, feature) => {
    const weight = 0.1 + (0.4 * (feature % 8)) / 8;
    const own = 1 - weight;
    return `(random() * ${(10 * own).toFixed(4)} - ${(5 * own).toFixed(4)} + g * ${weight.toFixed(4)})::FLOAT AS f${feature}`;
  });
  const ids = `SELECT range AS id, random() * 10 - 5 AS g FROM range(${index * rowsPerShard}, ${(index + 1) * rowsPerShard})`;
  return `SELECT id, ${features.join(", ")} FROM (${ids})`;
}

/** An SQL text literal. */
export function quote(text) {
  return `'${text.replaceAll("'", "''")}'`;
}
