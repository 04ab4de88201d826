// npm run bench:postgres [-- --runs N]: times predictions into Postgres. A server is started here, with its default
// durability, and every contender writes the same rows into a table of its own there.
import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Client } from "pg";
import { findBinaries, startServer } from "../test/support/postgres-server.mjs";
import { findContenders } from "./contenders.mjs";
import { prepareData, rowCount, shards } from "./data.mjs";
import { measure } from "./measure.mjs";
import { sinkOnly, writeCopyFile } from "./postgres-sink.mjs";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const { values: options } = parseArgs({ options: { runs: { type: "string", default: "5" } } });
const runs = Number(options.runs);
const python = findContenders().contenders.find(({ id }) => id === "python");

await prepareData();
const scratch = mkdtempSync(join(tmpdir(), "infer-batch-bench-"));
const found = findBinaries();
if (found.native === undefined) {
  throw new Error(found.missing);
}
const server = await startServer(found.native);
const url = server.url("postgres");
process.env.DATABASE_URL = url; // of the job
const admin = new Client({ connectionString: url });
await admin.connect();

const tables = "DROP SCHEMA IF EXISTS bench, infer_batch CASCADE; CREATE SCHEMA bench";
const makeTable = async (key) => {
  await admin.query(
    `${tables}; CREATE TABLE bench.scores (id int8${key ? " PRIMARY KEY" : ""}, score real); CHECKPOINT`,
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
const processSeconds = (command) => () => measure(command);
const timed = (work) => async () => {
  const start = performance.now();
  await work();
  return { seconds: (performance.now() - start) / 1000 };
};

const ready = join(scratch, "ready.copy");
await writeCopyFile(ready, rowCount);
chmodSync(scratch, 0o755); // for the server
const program = [process.execPath, path("../bin/infer-batch.js"), "run", path("jobs/mlp-postgres.yaml")];
const loop = [
  python.command[0],
  path("peers/loop_pg.py"),
  path("../fixtures/models/bench-mlp.onnx"),
  "8192",
  url,
  ...shards,
];
const hasPsycopg = (() => {
  try {
    execFileSync(python.command[0], ["-c", "import psycopg"], { stdio: "ignore" });
    return python.absent === undefined;
  } catch {
    return false;
  }
})();

const contenders = [
  { id: "infer-batch", key: false, seconds: processSeconds(program) },
  ...(hasPsycopg ? [{ id: "python, psycopg, COPY BINARY from numpy", key: false, seconds: processSeconds(loop) }] : []),
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
  console.error("absent: python (needs psycopg beside numpy, pyarrow and onnxruntime)");
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
const lines = contenders.map(({ id }) => {
  const seconds = median(taken.get(id).map((one) => one.seconds));
  const peaks = taken.get(id).flatMap(({ peakMiB }) => peakMiB ?? []);
  const peak = peaks.length === 0 ? "" : `${Math.round(Math.max(...peaks))} MiB`;
  return `| ${id} | ${seconds.toFixed(2)} | ${(rowCount / seconds / 1e6).toFixed(2)} | ${peak} |`;
});
const report = [
  "# Into Postgres",
  "",
  `${rowCount.toLocaleString("en-US")} rows, PostgreSQL ${server.version}, default durability, medians of ${runs} runs, by \`npm run bench:postgres\` on ${new Date().toISOString().slice(0, 10)}.`,
  "",
  "| what | seconds | Mrows/s | peak memory |",
  "| --- | --- | --- | --- |",
  ...lines,
  "",
].join("\n");
await writeFile(path("results-postgres.md"), report);
console.log(report);
