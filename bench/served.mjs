// A job whose model is on a server, and Python's tritonclient, against a server that answers at once; then the same job
// against a server that takes 20 ms a request and works on 64 at once.
// `npm run build && node bench/served.mjs [--runs N] [--only echo|slow]`, after `bench/data/venv/bin/pip install "tritonclient[http]"`.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { outFolder } from "./contenders.mjs";
import { prepareData, tables } from "./data.mjs";
import { measure, median, readThrough } from "./measure.mjs";
import { findPython } from "./python.mjs";
import { machine } from "./report.mjs";

const { values: options } = parseArgs({
  options: { runs: { type: "string", default: "5" }, only: { type: "string" } },
});
const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const folder = join(outFolder, "served");
const batchSize = "8192";
const { rows, shards } = tables.mlp;

await prepareData(["mlp"]);
mkdirSync(folder, { recursive: true });
if (options.only !== "slow") {
  await compareClients();
}
if (options.only !== "echo") {
  await findConcurrency();
}
rmSync(outFolder, { recursive: true, force: true });

/** Starts peers/echo_v2.mjs. */
async function startServer(...args) {
  const child = spawn(process.execPath, [path("peers/echo_v2.mjs"), ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(child.stdout, "data");
  process.on("exit", () => child.kill());
  return { url: String(line).trim(), stop: () => child.kill() };
}

function ownCommand(...params) {
  const given = params.flatMap((param) => ["--param", param]);
  return [process.execPath, path("../bin/infer-batch.js"), "run", path("jobs/served.yaml"), "--quiet", ...given];
}

/** Whole jobs in turn, and the ratios of each round: other work on the machine changes less of them than of the seconds. */
async function compareClients() {
  const { interpreter, versions, absent } = findPython();
  if (absent !== undefined) {
    throw new Error(absent);
  }
  const server = await startServer();
  const loop = [path("peers/loop_triton.py"), "http", new URL(server.url).host, batchSize, join(folder, "python")];
  const contenders = [
    { name: "infer-batch", out: join(folder, "infer-batch"), command: ownCommand(`url=${server.url}`) },
    { name: "tritonclient, 8 threads", out: join(folder, "python"), command: [interpreter, ...loop, ...shards] },
  ];
  const taken = new Map(contenders.map(({ name }) => [name, []]));
  for (let round = 0; round <= Number(options.runs); round += 1) {
    for (const { name, out, command } of round % 2 === 0 ? contenders : contenders.toReversed()) {
      rmSync(out, { recursive: true, force: true });
      readThrough(shards);
      const one = await measure(command);
      await verify(out);
      if (round > 0) {
        taken.get(name).push(one); // the first round warms up
      }
    }
  }
  server.stop();
  const [own, python] = contenders.map(({ name }) => taken.get(name));
  const ratio = (key) => median(own.map((one, round) => one[key] / python[round][key]));
  console.log(`${rows} rows, medians of ${options.runs} runs in turns; ${versions.join(", ")}; ${machine()}`);
  console.table(
    contenders.map(({ name }) => ({
      contender: name,
      "CPU, s": median(taken.get(name).map(({ cpuSeconds }) => cpuSeconds)).toFixed(2),
      "wall, s": median(taken.get(name).map(({ seconds }) => seconds)).toFixed(2),
      "peak, MiB": median(taken.get(name).map(({ peakMiB }) => peakMiB)).toFixed(0),
    })),
  );
  console.log(`infer-batch / tritonclient: CPU ${ratio("cpuSeconds").toFixed(2)} (wanted: at most 0.67)`);
  console.log(`infer-batch / tritonclient: wall ${ratio("seconds").toFixed(2)} (wanted: at most 1)`);
}

/** Each id once. */
async function verify(out) {
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  try {
    const sql = `SELECT count(*)::INTEGER AS total, count(DISTINCT id)::INTEGER AS ids, max(score) AS most FROM '${out}/*.parquet'`;
    const [found] = (await connection.runAndReadAll(sql)).getRowObjects();
    if (found?.total !== rows || found.ids !== rows || found.most !== 0) {
      throw new Error(`checking ${out}: ${found?.total} rows with ${found?.ids} ids, expected ${rows}`);
    }
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

/** What a job gets of a server with a time and a number of requests at once, from the tenth second on. */
async function findConcurrency() {
  const [delayMs, slots, mostRows] = [20, 64, 16];
  const [fromTenth, tenths] = [100, 100];
  const server = await startServer(String(delayMs), String(slots), String(mostRows));
  rmSync(join(folder, "infer-batch"), { recursive: true, force: true });
  const [program, ...args] = ownCommand(`url=${server.url}`, "shards=0000[012]");
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"] });
  const resident = [];
  const ended = once(child, "exit");
  const sampling = setInterval(() => {
    const [, kib] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8")) ?? [];
    resident.push(Number(kib) / 1024);
  }, 500);
  void ended.then(() => clearInterval(sampling));
  let stats;
  do {
    await sleep(500);
    stats = await (await fetch(`${server.url}/stats`)).json();
  } while (stats.answered.length < fromTenth + tenths && child.exitCode === null);
  child.kill();
  await ended;
  server.stop();
  const counted = stats.answered.slice(fromTenth, fromTenth + tenths).map((count) => count ?? 0);
  const answered = counted.reduce((sum, count) => sum + count, 0) / (counted.length / 10);
  const possible = (slots * 1000) / delayMs;
  const firstFull = stats.answered.findIndex((count) => (count ?? 0) >= (possible / 10) * 0.95);
  const half = Math.floor(resident.length / 2);
  console.log(`${slots} requests at once, ${delayMs} ms each, ${mostRows} rows: at most ${possible} requests/s`);
  console.log(`answered after 10 s: ${answered.toFixed(0)}/s, ${((100 * answered) / possible).toFixed(1)} % (wanted: 95 %)`);
  console.log(`95 % was first reached after ${firstFull / 10} s; most in flight at the server: ${stats.mostInFlight}`);
  console.log(
    `resident memory: ${resident[half]?.toFixed(0)} MiB in the middle, at most ${Math.max(...resident).toFixed(0)} MiB`,
  );
}
