// The tables that the contenders score: made once, the same bytes each time, kept in bench/data/.
import { mkdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { DuckDBInstance, version } from "@duckdb/node-api";
import { writeArrowShard } from "./arrow-data.mjs";

export const dataFolder = fileURLToPath(new URL("data", import.meta.url));
const penguins = fileURLToPath(new URL("../fixtures/data/penguins_complete", import.meta.url));

/**
 * @typedef {object} Table
 * @property {string} id also the folder's name
 * @property {string} job whose table it is
 * @property {number} rows ids from 0 on
 * @property {string} size of its files, for people
 * @property {readonly string[]} shards paths
 * @property {readonly string[]} madeFrom files that its rows come from
 * @property {(rowStart: number, rowEnd: number) => string} sql makes a shard's rows
 * @property {{ batchRows: number, list?: string }} [arrow] its shards are Arrow files: rows a batch, and the name of the
 *   fixed-size list that all columns but the first make together, where they do
 * @property {string} [parquet] how DuckDB writes its shards, if they are Parquet; default: `parquetFormat`
 */

/** @returns {Table} */
function table({ id, job = id, rows, shardCount, size, madeFrom = [], arrow, parquet, sql }) {
  const end = arrow === undefined ? "parquet" : "arrow";
  const shards = Array.from({ length: shardCount }, (_, index) =>
    join(dataFolder, id, `part-${String(index).padStart(5, "0")}.${end}`),
  );
  return { id, job, rows, size, shards, madeFrom, arrow, parquet, sql };
}

/** The rows of another table as Arrow files. */
function asArrow({ rows, shards }, { as, batchRows, size }) {
  const sql = (rowStart, rowEnd) => `SELECT * FROM ${readSql(...shards)} WHERE id >= ${rowStart} AND id < ${rowEnd}`;
  return table({ id: as, rows, shardCount: shards.length, size, madeFrom: shards, arrow: { batchRows }, sql });
}

/** id BIGINT, f0 to f31 FLOAT within -5..5. */
const mlp = table({ id: "mlp", rows: 4_000_000, shardCount: 8, size: "540 MB", sql: featuresSql(32) });

/** Its first rows again in a shard of their own, for the contender that would take minutes over them all. */
const mlpSmall = table({
  id: "mlp-small",
  job: "mlp",
  rows: 100_000,
  shardCount: 1,
  size: "14 MB",
  madeFrom: mlp.shards.slice(0, 1),
  sql: (rowStart, rowEnd) => `SELECT * FROM ${readSql(mlp.shards[0])} WHERE id >= ${rowStart} AND id < ${rowEnd}`,
});

/** id BIGINT, f0 to f31 of the types that a warehouse has: most repeat their values, some have NULLs. */
const mixed = table({ id: "mixed", rows: 4_000_000, shardCount: 8, size: "310 MB", sql: mixedSql });

/** id BIGINT, f0 to f199 FLOAT within -5..5. */
const wide = table({ id: "wide", rows: 500_000, shardCount: 4, size: "400 MB", sql: featuresSql(200) });

/** id BIGINT and what the model reads of the penguins. */
const strings = table({
  id: "strings",
  rows: 1_000_000,
  shardCount: 4,
  size: "35 MB",
  madeFrom: ["part-00000.parquet", "part-00001.parquet"].map((file) => join(penguins, file)),
  sql: penguinsSql,
});

/** The rows of `mlp` and of `wide` once more. */
const arrow = asArrow(mlp, { as: "arrow", batchRows: 65_536, size: "540 MB" });
const arrowWide = asArrow(wide, { as: "arrow-wide", batchRows: 16_384, size: "400 MB" });

/** id BIGINT, embedding: fixed-size lists of 384 FLOAT. */
const lists = { arrow: { batchRows: 8192, list: "embedding" }, sql: featuresSql(384) };
const embeddings = table({ id: "embeddings", rows: 200_000, shardCount: 4, size: "310 MB", ...lists });

/** The same in Parquet files with row groups of 2,048 lists, each in a page of 3 MiB. */
const embeddingsParquet = table({
  id: "embeddings-parquet",
  rows: 200_000,
  shardCount: 4,
  size: "310 MB",
  parquet: "(FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 2048, PARQUET_VERSION V1)",
  sql: (rowStart, rowEnd) =>
    `SELECT id, list_value(*COLUMNS('^f')) AS embedding FROM (${featuresSql(384)(rowStart, rowEnd)})`,
});

/** As many rows as a job takes seconds for: of the shorter ones, half is starting. */
const arrowWideLong = table({
  id: "arrow-wide-long",
  rows: 2_000_000,
  shardCount: 8,
  size: "1.6 GB",
  arrow: { batchRows: 16_384 },
  sql: featuresSql(200),
});
const embeddingsLong = table({ id: "embeddings-long", rows: 1_600_000, shardCount: 8, size: "2.5 GB", ...lists });

/** Rows that are asked for one by one. */
const serve = table({ id: "serve", rows: 10_000, shardCount: 1, size: "2 MB", sql: featuresSql(32) });

/** In the order in which they are made: those that others are made from come before them. */
export const tables = {
  mlp,
  mlpSmall,
  mixed,
  wide,
  strings,
  arrow,
  arrowWide,
  arrowWideLong,
  embeddings,
  embeddingsParquet,
  embeddingsLong,
  serve,
};

/** Jobs that take the table of another, or whose own is made from it. */
const parents = {
  arrow: "mlp",
  forest: "mlp",
  oblivious: "mlp",
  "arrow-wide": "wide",
  linear: "mlp",
  lightgbm: "mlp",
  "mlp-big": "mlp",
  scaling: "mlp",
};

// DuckDB writes version 1 pages here, PLAIN and snappy, which parquetjs-lite reads.
export const parquetFormat = "(FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 122880, PARQUET_VERSION V1)";

/**
 * Makes the tables of these jobs unless they are there.
 * @param {ReadonlySet<string>} jobs
 */
export async function prepareData(jobs) {
  const needed = new Set([...jobs].flatMap((job) => [job, parents[job] ?? job]));
  for (const wanted of Object.values(tables)) {
    if (needed.has(wanted.job) && !(await isReady(wanted))) {
      await make(wanted);
    }
  }
}

async function make(wanted) {
  const folder = join(dataFolder, wanted.id);
  console.error(`making ${wanted.rows} rows in ${folder} (once; about ${wanted.size})`);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const instance = await DuckDBInstance.create(":memory:", { threads: "1" }); // several would draw random() in any order
  const connection = await instance.connect();
  try {
    for (const [index, shard] of wanted.shards.entries()) {
      await connection.run(`SELECT setseed(${(0.1 + index * 0.1).toFixed(1)})`);
      await (wanted.arrow === undefined
        ? connection.run(`COPY (${shardSql(wanted, index)}) TO ${quote(shard)} ${wanted.parquet ?? parquetFormat}`)
        : writeArrowShard(connection, shardSql(wanted, index), { path: shard, ...wanted.arrow }));
    }
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
  await writeFile(stampFile(wanted), await stamp(wanted));
}

async function isReady(wanted) {
  try {
    return (await readFile(stampFile(wanted), "utf8")) === (await stamp(wanted));
  } catch (error) {
    if (error.code === "ENOENT") {
      return false;
    }
    throw error;
  }
}

function stampFile({ id }) {
  return join(dataFolder, id, "stamp.json");
}

/** What made the files, and their sizes: written last, so a half-made table has none. */
async function stamp(wanted) {
  const sizes = [];
  for (const file of [...wanted.madeFrom, ...wanted.shards]) {
    sizes.push((await stat(file)).size);
  }
  return `${JSON.stringify({ duckdb: version(), recipe: [shardSql(wanted, 0), wanted.arrow ?? wanted.parquet ?? parquetFormat], sizes }, undefined, 2)}\n`;
}

function shardSql({ rows, shards, sql }, index) {
  const rowsPerShard = rows / shards.length;
  return sql(index * rowsPerShard, (index + 1) * rowsPerShard);
}

/** The features share a factor g with weights from 0.1 to 0.45, so that they correlate. */
function featuresSql(featureCount) {
  const features = Array.from({ length: featureCount }, (_, feature) => {
    const weight = 0.1 + (0.4 * (feature % 8)) / 8;
    const own = 1 - weight;
    return `(random() * ${(10 * own).toFixed(4)} - ${(5 * own).toFixed(4)} + g * ${weight.toFixed(4)})::FLOAT AS f${feature}`;
  });
  return (rowStart, rowEnd) => {
    const ids = `SELECT range AS id, random() * 10 - 5 AS g FROM range(${rowStart}, ${rowEnd})`;
    return `SELECT id, ${features.join(", ")} FROM (${ids})`;
  };
}

/** Amounts, counts, codes that may be missing, ratings that may be, and measurements. */
function mixedSql(rowStart, rowEnd) {
  const kinds = [
    { count: 8, sql: () => "round(exp(random() * 6), 2)::DOUBLE" },
    { count: 6, sql: (index) => `floor(random() * random() * ${20 * (index - 7)})::BIGINT` },
    { count: 6, sql: () => "CASE WHEN random() < 0.1 THEN NULL ELSE floor(random() * 100)::INTEGER END" },
    { count: 6, sql: () => "CASE WHEN random() < 0.05 THEN NULL ELSE round(random() * 10 - 5, 1)::FLOAT END" },
    { count: 6, sql: () => "(random() * 10 - 5)::FLOAT" },
  ];
  const columns = kinds.flatMap(({ count, sql }) => Array.from({ length: count }, () => sql));
  const features = columns.map((sql, index) => `${sql(index)} AS f${index}`);
  return `SELECT range AS id, ${features.join(", ")} FROM range(${rowStart}, ${rowEnd})`;
}

/**
 * The penguins over and over, each time of a slightly different size. One row in ten has an island of its own, which
 * the model does not know: real texts repeat, but not all of them.
 */
function penguinsSql(rowStart, rowEnd) {
  const sizes = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"];
  const source = readSql(...strings.madeFrom);
  return `
    SELECT id, CASE WHEN id % 10 = 3 THEN island || ' ' || id ELSE island END AS island, sex,
      ${sizes.map((size) => `${size} * (0.98 + random() * 0.04) AS ${size}`).join(", ")}, year
    FROM (
      SELECT range AS id, penguins.*
      FROM range(${rowStart}, ${rowEnd})
        JOIN (SELECT *, row_number() OVER (ORDER BY row_id) - 1 AS place FROM ${source}) AS penguins
        ON place = range % (SELECT count(*) FROM ${source})
      ORDER BY id
    )`;
}

/** These Parquet files as a table. */
function readSql(...files) {
  return `read_parquet([${files.map(quote).join(", ")}])`;
}

/** An SQL text literal. */
export function quote(text) {
  return `'${text.replaceAll("'", "''")}'`;
}
