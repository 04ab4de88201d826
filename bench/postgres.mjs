// npm run bench:postgres [-- --runs N] [--small]: times predictions into Postgres. A server is started here, with its
// default durability, and every contender writes the same rows into a table of its own there.
import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Client } from "pg";
import { findBinaries, startServer } from "../test/support/postgres-server.mjs";
import { prepareData, tables } from "./data.mjs";
import { measureTogether } from "./measure.mjs";
import { sinkOnly, writeCopyFile } from "./postgres-sink.mjs";
import { findPython } from "./python.mjs";
import { machine } from "./report.mjs";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const { values: options } = parseArgs({
  options: { runs: { type: "string", default: "5" }, small: { type: "boolean", default: false } },
});
const runs = Number(options.runs);
const { id: tableId, rows: rowCount, shards } = options.small ? tables.mlpSmall : tables.mlp;
const python = findPython();
const hasPsycopg =
  python.absent === undefined && isFine(python.interpreter, "-c", "import psycopg; psycopg.pq.version()");

function isFine(...[program, ...args]) {
  try {
    execFileSync(program, args, { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

await prepareData(new Set(["mlp"]));
const found = findBinaries();
if (found.native === undefined) {
  throw new Error(found.missing);
}
const scratch = mkdtempSync(join(tmpdir(), "infer-batch-bench-"));
chmodSync(scratch, 0o755); // for the server
const server = await startServer(found.native);
const url = server.url("postgres");
process.env.DATABASE_URL = url; // of the job
const admin = new Client({ connectionString: url });
await admin.connect();

const emptied = "DROP SCHEMA IF EXISTS bench, infer_batch CASCADE; CREATE SCHEMA bench";
const makeTable = async (key) => {
  await admin.query(
    `${emptied}; CREATE TABLE bench.scores (id int8${key ? " PRIMARY KEY" : ""}, score real); CHECKPOINT`,
  );
};
const check = async (id) => {
  const { rows } = await admin.query(
    "SELECT count(*)::int AS n, count(DISTINCT id)::int AS ids, min(id)::int AS low, max(id)::int AS high FROM bench.scores",
  );
  const [{ n, ids, low, high }] = rows;
  if (n !== rowCount || ids !== rowCount || low !== 0 || high !== rowCount - 1) {
    throw new Error(`checking ${id}: ${n} rows with ${ids} ids from ${low} to ${high}, wanted ${rowCount} from 0 on`);
  }
};

/** Of a process, with its memory at its highest, or of work in this one. */
const processSeconds =
  (...commands) =>
  () =>
    measureTogether(commands);
const timed = (work) => async () => {
  const start = performance.now();
  await work();
  return { seconds: (performance.now() - start) / 1000 };
};

const ready = join(scratch, "ready.copy");
await writeCopyFile(ready, rowCount);
const spec = path("jobs/mlp-postgres.yaml");
const job = [process.execPath, path("../bin/infer-batch.js"), "run", spec, "--param", `table=${tableId}`];
const loop = [python.interpreter, path("peers/loop_pg.py"), path("../fixtures/models/bench-mlp.onnx"), "8192", url];

const own = "infer-batch";
const workers = "infer-batch, 2 processes";
const peer = "python, psycopg, COPY BINARY from numpy";
const contenders = [
  { id: own, key: false, seconds: processSeconds(job) },
  {
    id: workers,
    key: false,
    seconds: processSeconds(job.concat("--worker", "0/2"), job.concat("--worker", "1/2")),
  },
  ...(hasPsycopg ? [{ id: peer, key: false, seconds: processSeconds([...loop, ...shards]) }] : []),
  ...[false, true].flatMap((key) => [
    { id: `sink alone${key ? ", primary key" : ""}`, key, seconds: timed(() => sinkOnly(url, rowCount)) },
    {
      id: `COPY FROM a ready file${key ? ", primary key" : ""}`,
      key,
      seconds: timed(() => admin.query(`COPY bench.scores FROM '${ready}' (FORMAT binary)`)),
    },
  ]),
];
if (!hasPsycopg) {
  console.error(`absent: python: ${python.absent ?? "it has no psycopg: pip install -r bench/peers/requirements.txt"}`);
}

const taken = new Map(contenders.map(({ id }) => [id, []]));
try {
  for (let round = 0; round <= runs; round += 1) {
    for (const { id, key, seconds } of contenders) {
      await makeTable(key);
      const one = await seconds();
      await check(id);
      console.error(`${round === 0 ? "warm-up" : `run ${round}`}  ${id}: ${one.seconds.toFixed(2)} s`);
      if (round > 0) {
        taken.get(id).push(one);
      }
    }
  }
} finally {
  await admin.end();
  await server.stop();
  rmSync(scratch, { recursive: true, force: true });
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
const seconds = new Map([...taken].map(([id, all]) => [id, median(all.map((one) => one.seconds))]));
const lines = contenders.map(({ id }) => {
  const peaks = taken.get(id).flatMap(({ peakMiB }) => peakMiB ?? []);
  const peak = peaks.length === 0 ? "" : `${Math.round(Math.max(...peaks))} MiB`;
  return `| ${id} | ${seconds.get(id).toFixed(2)} | ${(rowCount / seconds.get(id) / 1e6).toFixed(2)} | ${peak} |`;
});
/** How the rate of one is to that of another, and what it should be. */
const ratios = [
  [own, peer, "1 or more"],
  [workers, own],
  ["sink alone", "COPY FROM a ready file", "0.5 or more"],
  ["sink alone, primary key", "COPY FROM a ready file, primary key", "near 1"],
]
  .filter(([, to]) => seconds.has(to))
  .map(
    ([of, to, wanted]) =>
      `- ${of} : ${to}: ${(seconds.get(to) / seconds.get(of)).toFixed(2)}, ${wanted === undefined ? "for information" : `wanted ${wanted}`}`,
  );
const report = [
  "# Into Postgres",
  "",
  `- Written by: \`npm run bench:postgres\`, ${new Date().toISOString().slice(0, 10)}`,
  `- Machine: ${machine()}`,
  `- PostgreSQL ${server.version} with its default settings, Node ${process.versions.node}`,
  `- ${rowCount.toLocaleString("en-US")} rows of 32 FLOAT columns, MLP 32-128-64-1; medians of ${runs} runs after one to warm up`,
  "",
  "| what | seconds | Mrows/s | peak memory |",
  "| --- | ---: | ---: | ---: |",
  ...lines,
  "",
  "Ratios of rates:",
  "",
  ...ratios,
  "",
].join("\n");
console.log(report);
if (!options.small) {
  await writeFile(path("results-postgres.md"), report);
}
