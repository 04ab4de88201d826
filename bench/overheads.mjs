// What spans, shards and rows cost: runs that differ in one of them only, in turn.
import { copyFile, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { Client } from "pg";
import { findBinaries, startServer } from "../test/support/postgres-server.mjs";
import { dataFolder, parquetFormat, prepareData, quote, tables } from "./data.mjs";
import { measure, median } from "./measure.mjs";
import { machine } from "./report.mjs";

const usage = `Usage: node bench/overheads.mjs [options]

Makes tables in bench/data/overheads/, times runs over them, and prints what a span and a shard cost; removes them again.

  --rows <n>  also so many million rows, against 4 million (40: 5.3 GB of disk, 5 minutes); writes results-overheads.md
  --runs <n>  medians of so many, after one to warm up (default 3)
  --help      show this
`;

const { values: options } = parseArgs({
  options: {
    rows: { type: "string" },
    runs: { type: "string", default: "3" },
    help: { type: "boolean", default: false },
  },
});

const program = fileURLToPath(new URL("../bin/infer-batch.js", import.meta.url));
const model = fileURLToPath(new URL("../fixtures/models/bench-mlp.onnx", import.meta.url));
const resultsFile = fileURLToPath(new URL("results-overheads.md", import.meta.url));
const folder = join(dataFolder, "overheads");
const runs = Number(options.runs);

const spanCount = 1000;
const spanLimitMs = 5;
const shardCount = 10_000;
const shardRows = 10;
const shardLimitMs = 2;
/** More memory than this for more rows would mean that it grows with them. */
const growthLimitMiB = 120;
/** A longer run spares its start, so its rate should be no less. */
const rateLimit = 0.95;

/**
 * @typedef {object} Run
 * @property {string} name as the table shows it
 * @property {string} input glob of its shards
 * @property {number} rows
 * @property {number} [repeats] how often each id is there; default 1
 * @property {number | "auto"} [commitRows]
 */

/** Each run in turn, so that what else the machine does falls on all alike. @param {readonly Run[]} all */
async function timeInTurn(all, target = files) {
  const taken = new Map(all.map((run) => [run, []]));
  for (let round = 0; round <= runs; round += 1) {
    for (const run of all) {
      const spec = await writeSpec(run, target);
      await target.empty();
      const one = await measure([process.execPath, program, "run", spec, "--quiet"]);
      await checkOutput(run, target);
      console.error(`  ${round === 0 ? "warm-up" : `run ${round}`}  ${run.name}: ${one.seconds.toFixed(2)} s`);
      if (round > 0) {
        taken.get(run).push(one);
      }
    }
  }
  return all.map((run) => {
    const seconds = taken.get(run).map((one) => one.seconds);
    return {
      ...run,
      seconds: median(seconds),
      least: Math.min(...seconds),
      most: Math.max(...seconds),
      peakMiB: median(taken.get(run).map((one) => one.peakMiB)),
    };
  });
}

async function writeSpec({ input, commitRows = "auto" }, target) {
  const path = join(folder, "job.json");
  const spec = {
    version: 1,
    name: "bench-overheads",
    input: { path: input },
    model: { path: model },
    output: { columns: ["id"], ...target.output },
    commit_rows: commitRows,
  };
  await writeFile(path, JSON.stringify(spec));
  return path;
}

/**
 * Where rows go.
 * @typedef {object} Target
 * @property {object} output of the spec
 * @property {() => Promise<void>} empty
 * @property {(sql: string) => Promise<number>} ask answers about the table `predictions`, by its only value
 */

/** @type {Target} */
const files = {
  output: { parquet: { path: "out" } },
  empty: () => rm(join(folder, "out"), { recursive: true, force: true }),
  ask: (sql) => query(`WITH predictions AS (FROM read_parquet(${quote(join(folder, "out", "*.parquet"))})) ${sql}`),
};

/** @returns {Target} */
function tableOf(client) {
  return {
    output: { postgres: { url: "${DATABASE_URL}", table: "predictions" } },
    empty: () => client.query("DROP TABLE IF EXISTS predictions; DROP SCHEMA IF EXISTS infer_batch CASCADE"),
    ask: async (sql) => Number(Object.values((await client.query(sql)).rows[0])[0]),
  };
}

async function checkOutput({ name, rows, repeats = 1 }, target) {
  const counts = `SELECT id FROM predictions GROUP BY id HAVING count(*) <> ${repeats}`;
  const wrong = await target.ask(`SELECT count(*) FROM (${counts}) AS wrong`);
  const found = await target.ask("SELECT count(*) FROM predictions");
  if (wrong !== 0 || found !== rows) {
    throw new Error(`checking ${name}: ${found} rows, ${wrong} ids not ${repeats} times, expected ${rows} rows`);
  }
}

/** The only value of its answer. */
async function query(sql) {
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  try {
    const [[value]] = (await connection.runAndReadAll(sql)).getRows();
    return Number(value);
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

async function measureSpans(where, target) {
  const shards = tables.mlp.shards.slice(0, 2);
  const rows = (tables.mlp.rows / tables.mlp.shards.length) * shards.length;
  const input = shards;
  const [many, few] = await timeInTurn(
    [
      { name: `${grouped(spanCount)} spans`, input, rows, commitRows: rows / spanCount },
      { name: "4 spans", input, rows, commitRows: rows / 4 },
    ],
    target,
  );
  const each = ((many.seconds - few.seconds) * 1000) / (spanCount - 4);
  return {
    title: `Spans: ${grouped(rows)} rows in ${grouped(spanCount)} of them, ${where}`,
    taken: [few, many],
    findings: [limited("each further span", each, spanLimitMs)],
  };
}

async function measureSpansInPostgres() {
  const found = findBinaries();
  if (found.native === undefined) {
    return { title: "Spans, into Postgres", taken: [], findings: [`- absent: ${found.missing}`] };
  }
  const server = await startServer(found.native);
  const url = server.url("postgres");
  process.env.DATABASE_URL = url; // of the jobs
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return await measureSpans(`into PostgreSQL ${server.version} with its default settings`, tableOf(client));
  } finally {
    await client.end();
    await server.stop();
  }
}

async function measureShards() {
  const small = tables.mlpSmall;
  const shard = join(folder, "shards", "part-00000.parquet");
  await mkdir(join(folder, "shards"));
  await query(`COPY (FROM ${quote(small.shards[0])} LIMIT ${shardRows}) TO ${quote(shard)} ${parquetFormat}`);
  for (let index = 1; index < shardCount; index += 1) {
    await copyFile(shard, join(folder, "shards", `part-${String(index).padStart(5, "0")}.parquet`));
  }
  const rows = shardCount * shardRows;
  const [many, one] = await timeInTurn([
    { name: `${grouped(shardCount)} shards`, input: "shards/*.parquet", rows, repeats: shardCount },
    { name: "1 shard", input: small.shards[0], rows: small.rows },
  ]);
  await rm(join(folder, "shards"), { recursive: true, force: true });
  const each = ((many.seconds - one.seconds) * 1000) / (shardCount - 1);
  return {
    title: `Shards: ${grouped(rows)} rows in ${grouped(shardCount)} of them`,
    taken: [one, many],
    findings: [limited("each further shard, planned and run", each, shardLimitMs)],
  };
}

async function measureRows(million) {
  const { shards: originals, rows: originalRows } = tables.mlp;
  const times = Math.round((million * 1e6) / originalRows);
  await mkdir(join(folder, "rows"));
  for (let copy = 0; copy < times; copy += 1) {
    console.error(`  making rows: ${copy + 1} of ${times}`);
    for (const [index, original] of originals.entries()) {
      const shard = join(folder, "rows", `part-${String(copy * originals.length + index).padStart(5, "0")}.parquet`);
      const select = `SELECT id + ${copy * originalRows} AS id, * EXCLUDE (id) FROM ${quote(original)}`;
      await query(`COPY (${select}) TO ${quote(shard)} ${parquetFormat}`);
    }
  }
  const [few, many] = await timeInTurn([
    { name: `${grouped(originalRows)} rows`, input: originals, rows: originalRows },
    { name: `${grouped(times * originalRows)} rows`, input: "rows/*.parquet", rows: times * originalRows },
  ]);
  const grown = many.peakMiB - few.peakMiB;
  const rate = (many.rows / many.seconds) * (few.seconds / few.rows);
  return {
    title: `Rows: ${grouped(many.rows)} against ${grouped(few.rows)}`,
    taken: [few, many],
    findings: [
      `- memory: ${grown.toFixed(0)} MiB more (wanted: less than ${growthLimitMiB}; ${verdict(grown < growthLimitMiB)})`,
      `- rate: ${rate.toFixed(2)} times (wanted: at least ${rateLimit}; ${verdict(rate >= rateLimit)})`,
    ],
  };
}

function limited(what, ms, limitMs) {
  return `- ${what}: ${ms.toFixed(2)} ms (wanted: less than ${limitMs}; ${verdict(ms < limitMs)})`;
}

function verdict(fine) {
  return fine ? "reached" : "missed";
}

function formatReport(sections, command) {
  return [
    "# What spans, shards and rows cost",
    "",
    `- Written by: \`${command}\`, ${new Date().toISOString().slice(0, 10)}`,
    `- Machine: ${machine()}, Node ${process.versions.node}`,
    `- 32 FLOAT columns, MLP 32-128-64-1, Parquet shards on local disk, Parquet output where nothing else is said; medians`,
    `  of ${runs} after one to warm up, in turn; whole processes. Every output was checked: each id as often as it was put in.`,
    "",
    ...sections.flatMap(formatSection),
  ].join("\n");
}

function formatSection({ title, taken, findings }) {
  return [
    `## ${title}`,
    "",
    ...(taken.length === 0 ? [] : ["| run | seconds (min..max) | rows/s | peak MiB |", "| --- | ---: | ---: | ---: |"]),
    ...taken.map(({ name, rows: count, seconds, least, most, peakMiB }) => {
      const spread = `${seconds.toFixed(2)} (${least.toFixed(2)}..${most.toFixed(2)})`;
      return `| ${name} | ${spread} | ${grouped(count / seconds)} | ${peakMiB?.toFixed(0) ?? "–"} |`;
    }),
    "",
    ...findings,
    "",
  ];
}

function grouped(value) {
  return Math.round(value).toLocaleString("en-US");
}

async function main() {
  await prepareData(new Set(["mlp"]));
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  try {
    const sections = [
      await measureSpans("Parquet on local disk", files),
      await measureSpansInPostgres(),
      await measureShards(),
    ];
    if (options.rows !== undefined) {
      sections.push(await measureRows(Number(options.rows)));
    }
    const own = options.rows === undefined ? "" : ` -- --rows ${options.rows}`;
    const report = formatReport(sections, `npm run bench:overheads${own}`);
    if (options.rows !== undefined) {
      await writeFile(resultsFile, report);
    }
    console.log(report);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

if (options.help) {
  process.stdout.write(usage);
} else {
  await main();
}
