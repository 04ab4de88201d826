// npm run bench:serve [-- --minutes N] [--model mlp|lightgbm] [--small]: latencies of `infer-batch serve` by rate, up to
// twice its capacity, beside FastAPI and KServe. Servers have one core, this process another one.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { freePort } from "../test/support/s3-server.mjs";
import { prepareData, quote, tables } from "./data.mjs";
import { quantile, sendLoad } from "./load.mjs";
import { descendants, readUsage } from "./measure.mjs";
import { findServing } from "./python.mjs";
import { randomFrom } from "./random.mjs";
import { machine } from "./report.mjs";

const { values: options } = parseArgs({
  options: {
    minutes: { type: "string" }, // of infer-batch at twice its capacity
    model: { type: "string" },
    only: { type: "string" }, // a server
    small: { type: "boolean", default: false },
    profile: { type: "string" }, // a folder for profiles of infer-batch's CPU time
  },
});
const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const program = path("../bin/infer-batch.js");
const seconds = options.small ? 1 : 4;
const overloadSeconds = options.minutes === undefined ? (options.small ? 2 : 20) : Number(options.minutes) * 60;
/** Node compiles hot code in the first ones. */
const warmRequests = 20_000;
const shares = [0.3, 0.5, 0.7, 0.9];
const models = { mlp: "MLP 32-128-64-1", lightgbm: "200 trees of 31 leaves" };

const python = findServing();
const about = machine(); // before this process leaves a core
const hasCores = availableParallelism() > 1;
if (hasCores) {
  execFileSync("taskset", ["-acp", "1", String(process.pid)], { stdio: "ignore" });
}
const scratch = mkdtempSync(join(tmpdir(), "infer-batch-serve-"));
const children = new Set();
process.on("exit", () => {
  for (const child of children) {
    child.kill("SIGKILL");
  }
  rmSync(scratch, { recursive: true, force: true });
});

/** Starts a server on the first core, and waits until it says so, or answers at a path. */
async function start(command, { url, says }) {
  const [file, ...args] = hasCores ? ["taskset", "-c", "0", ...command] : command;
  const env = { ...process.env, ORT_DISABLE_TELEMETRY: "1" };
  const child = spawn(file, args, { stdio: ["ignore", "ignore", "pipe"], env });
  children.add(child);
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text) => {
    said = (said + text).slice(-5000);
  });
  const isUp = async () => says?.test(said) ?? (await fetch(url).catch(() => undefined))?.ok === true;
  while (!(await isUp())) {
    if (child.exitCode !== null) {
      throw new Error(`starting ${command.join(" ")}: it ended with ${child.exitCode}\n${said}`);
    }
    await sleep(100);
  }
  return {
    said: () => said,
    usage: () => {
      const all = descendants(child.pid).flatMap((pid) => readUsage(pid) ?? []);
      const sum = (key) => all.reduce((total, usage) => total + usage[key], 0);
      return { cpuSeconds: sum("cpuSeconds"), mebibytes: sum("nowMiB") };
    },
    async stop() {
      child.kill("SIGTERM");
      const ended = new Promise((resolve) => child.once("close", resolve));
      await Promise.race([ended, sleep(15_000).then(() => child.kill("SIGKILL"))]);
      children.delete(child);
    },
  };
}

/** Publishes a run, and starts `infer-batch serve` with default settings. */
async function startOwn(model) {
  const spec = join(scratch, `${model}.yaml`);
  const outputs = model === "lightgbm" ? { outputs: { score: "probabilities[1]" } } : {};
  writeFileSync(
    spec,
    JSON.stringify({
      version: 1,
      name: `bench-serve-${model}`,
      input: { path: tables.serve.shards[0] },
      model: { path: path(`../fixtures/models/bench-${model}.onnx`), ...outputs },
      output: { columns: ["id"], parquet: { path: join(scratch, model) } },
      serve: { port: 0 },
    }),
  );
  execFileSync(process.execPath, [program, "run", spec, "--quiet"], { stdio: ["ignore", "ignore", "inherit"] });
  const profiling = options.profile === undefined ? [] : ["--cpu-prof", "--cpu-prof-dir", options.profile];
  const server = await start([process.execPath, ...profiling, program, "serve", spec], { says: /serving run/ });
  const port = Number(/listening on \S+:(\d+)/.exec(server.said())[1]);
  return { ...server, port, route: "/predict", member: "rows" };
}

async function startPython(script, model, { ready, route, member }) {
  const port = await freePort();
  const output = model === "lightgbm" ? "probabilities" : "score";
  const command = [python.interpreter, path(`peers/${script}`), path(`../fixtures/models/bench-${model}.onnx`), output];
  const server = await start([...command, String(port)], { url: `http://127.0.0.1:${port}${ready}` });
  return { ...server, port, route, member };
}

const ofFastApi = { ready: "/healthz", route: "/predict", member: "rows" };
const ofKServe = { ready: "/v1/models/m", route: "/v1/models/m:predict", member: "instances" };
const servers = {
  "infer-batch": startOwn,
  FastAPI: (model) => startPython("serve_fastapi.py", model, ofFastApi),
  KServe: (model) => startPython("serve_kserve.py", model, ofKServe),
};

/** Whole requests for a row each. */
function requestsFor({ port, route, member }, rows) {
  return rows.map((row) => {
    const body = `{"${member}":[${row}]}`;
    const head = `POST ${route} HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`;
    return Buffer.from(`${head}\r\n\r\n${body}`);
  });
}

/** What the generator can send, to a server that answers at once with as many bytes. */
async function measureGenerator(rows) {
  const script = `require("node:net").createServer((s) => s.on("error", () => {}).on("data", () => s.write("HTTP/1.1 200 OK\\r\\ncontent-length: 200\\r\\n\\r\\n" + " ".repeat(200)))).listen(+process.argv[1], "127.0.0.1", () => console.error("up"))`;
  const port = await freePort();
  const server = await start([process.execPath, "-e", script, String(port)], { says: /up/ });
  const load = await sendLoad(port, requestsFor({ port, route: "/predict", member: "rows" }, rows), {
    atOnce: 64,
    seconds,
  });
  await server.stop();
  return load.byStatus.get(200).length / seconds;
}

/** Sends a load, and measures the server meanwhile. */
async function measured(server, requests, how) {
  const before = server.usage();
  const mebibytes = [];
  const sampling = setInterval(
    () => mebibytes.push(server.usage().mebibytes),
    Math.min(10_000, (how.seconds * 1000) / 4),
  );
  const load = await sendLoad(server.port, requests, how);
  clearInterval(sampling);
  const cpu = (server.usage().cpuSeconds - before.cpuSeconds) / load.seconds;
  return { ...load, cpu, mebibytes };
}

const p = (sorted, share) => quantile(sorted ?? [], share);
const ms = (value) => (value === undefined ? "–" : value.toFixed(value < 10 ? 2 : 0));
const whole = (value) => Math.round(value).toLocaleString("en-US");

/** A line of the table. */
function lineOf(name, share, rate, { byStatus, cpu, lateMs, seconds: took }) {
  const times = byStatus.get(200);
  const errors = [...byStatus]
    .filter(([status]) => status !== 200)
    .map(([status, all]) => `${all.length} of ${status || "no answer"}`);
  const cells = [
    name,
    `${Math.round(share * 100)} %`,
    whole(rate),
    whole((times?.length ?? 0) / took),
    ...[0.5, 0.95, 0.99].map((part) => ms(p(times, part))),
    errors.join(", ") || "none",
    `${Math.round(cpu * 100)} %`,
    ms(p(lateMs, 0.99)),
  ];
  return `| ${cells.join(" | ")} |`;
}

/** A server's loads one after the other, from few requests to too many. */
async function measureServer(name, model, rows) {
  const server = await servers[name](model);
  const requests = requestsFor(server, rows);
  const random = randomFrom(7);
  const warmMs = performance.now() + 1500 * seconds;
  for (let answered = 0; answered < warmRequests && performance.now() < warmMs; ) {
    answered += (await sendLoad(server.port, requests, { atOnce: 64, seconds: 0.5 })).byStatus.get(200).length;
  }
  const most = await sendLoad(server.port, requests, { atOnce: 64, seconds });
  const capacity = most.byStatus.get(200).length / seconds;
  const lines = [];
  const byShare = new Map();
  for (const share of [...shares, 2]) {
    const rate = capacity * share;
    const load = await measured(server, requests, {
      rate,
      random,
      seconds: share < 2 ? seconds : name === "infer-batch" ? overloadSeconds : seconds,
    });
    byShare.set(share, load);
    lines.push(lineOf(name, share, rate, load));
    console.error(lines.at(-1));
  }
  await server.stop();
  return { name, capacity, lines, byShare };
}

/** Which bars are met. */
function judged(measuredServers) {
  const byName = new Map(measuredServers.map((server) => [server.name, server]));
  const at = (name, share) => byName.get(name)?.byShare.get(share);
  const times = (name, share, status = 200) => at(name, share)?.byStatus.get(status);
  const own = times("infer-batch", 0.7);
  const [p50, p99, peer] = [p(own, 0.5), p(own, 0.99), p(times("FastAPI", 0.7), 0.99)];
  const refusal = p(times("infer-batch", 2, 503), 0.99);
  const { mebibytes } = at("infer-batch", 2);
  const growth = mebibytes.at(-1) / mebibytes[Math.floor(mebibytes.length / 4)];
  return [
    [`at 70 % of capacity p99 is ${(p99 / p50).toFixed(1)} times p50, wanted 5 at most`, p99 <= 5 * p50],
    [
      `there it is ${ms(p99)} ms, FastAPI's at 70 % of its own capacity ${ms(peer)} ms`,
      peer === undefined || p99 < peer,
    ],
    [`at twice the capacity 99 % of the refusals come within ${ms(refusal)} ms, wanted 50`, refusal <= 50],
    [
      `the memory meanwhile: ${mebibytes.map((value) => Math.round(value)).join(", ")} MiB, wanted no growth`,
      growth < 1.1,
    ],
  ].map(([text, isMet]) => `- ${isMet ? "met" : "missed"}: ${text}`);
}

await prepareData(new Set(["serve"]));
const instance = await DuckDBInstance.create(":memory:");
const connection = await instance.connect();
const from = `read_parquet(${quote(tables.serve.shards[0])}) t LIMIT 1000`;
const rows = (await connection.runAndReadAll(`SELECT to_json(t)::VARCHAR FROM ${from}`)).getRows().map(([row]) => row);
connection.closeSync();

const generator = await measureGenerator(rows);
const wanted = Object.keys(servers).filter((name) => name === (options.only ?? name));
const sections = [];
for (const model of Object.keys(models).filter((name) => name === (options.model ?? name))) {
  const all = [];
  for (const name of wanted) {
    all.push(await measureServer(name, model, rows));
  }
  sections.push(
    `## ${models[model]}`,
    "",
    "| server | of its capacity | requests a second | answered a second | p50 ms | p95 ms | p99 ms | errors | CPU | sent late, p99 ms |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |",
    ...all.flatMap(({ lines }) => lines),
    "",
    ...(wanted.includes("infer-batch") ? judged(all) : []),
    "",
  );
}

const report = [
  "# Answers over HTTP",
  "",
  `- Written by: \`npm run bench:serve\`, ${new Date().toISOString().slice(0, 10)}`,
  `- Machine: ${about}`,
  `- Node ${process.versions.node}, ${python.versions.join(", ")}`,
  `- A row of 32 numbers a request, at random moments, ${seconds} s for each rate, ${overloadSeconds} s at twice infer-batch's capacity; each server has one core, the load another one, which sends ${whole(generator)} requests a second to a server that does nothing. Latencies count from when a request is due.`,
  "",
  ...sections,
].join("\n");
console.log(report);
if (!options.small && options.only === undefined && options.model === undefined) {
  writeFileSync(path("results-serve.md"), report);
}
process.exit();
