// The client of infer-batch and Python's tritonclient against a server that answers at once; then a whole job against a
// server that takes 20 ms a request and works on 64 at once.
// `npm run build && node bench/served.mjs [--runs N] [--only echo|slow|grpc]`, after `bench/data/venv/bin/pip install "tritonclient[http]"`.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { outFolder } from "./contenders.mjs";
import { prepareData } from "./data.mjs";
import { measure, median } from "./measure.mjs";
import { findPython } from "./python.mjs";
import { machine } from "./report.mjs";

const { values: options } = parseArgs({
  options: { runs: { type: "string", default: "5" }, only: { type: "string" } },
});
const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const folder = join(outFolder, "served");

const parts = { echo: compareClients, slow: findConcurrency, grpc: compareProtocols };
for (const part of (options.only ?? "echo,slow").split(",")) {
  await parts[part]();
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

/**
 * The clients alone, in turn. The ratios are those of each round: other work on the machine changes less of them than of
 * the seconds.
 */
async function compareClients() {
  const { interpreter, versions, absent } = findPython();
  if (absent !== undefined) {
    throw new Error(absent);
  }
  console.log(`medians of ${options.runs} runs in turns; ${versions.join(", ")}; ${machine()}`);
  const server = await startServer();
  const host = new URL(server.url).host;
  for (const [batch, requests] of [
    ["8192", "4000"],
    ["256", "16000"],
    ["256", "64000"], // Node compiles its hot code in the first 4,000 requests
  ]) {
    const own = [process.execPath, path("peers/client_v2.mjs"), server.url, batch, requests];
    const python = [interpreter, path("peers/client_triton.py"), "http", host, batch, requests, "8"];
    const taken = await inTurns({ "infer-batch": own, "tritonclient, 8 threads": python });
    console.log(`${requests} requests of ${batch} rows of 32 float32`);
    show(taken);
  }
  server.stop();
}

/** Measures commands in turn, after a round to warm up. */
async function inTurns(commands) {
  const taken = new Map(Object.keys(commands).map((name) => [name, []]));
  for (let round = 0; round <= Number(options.runs); round += 1) {
    const all = Object.entries(commands);
    for (const [name, command] of round % 2 === 0 ? all : all.toReversed()) {
      const one = await measure(command);
      if (round > 0) {
        taken.get(name).push(one);
      }
    }
  }
  return taken;
}

function show(taken) {
  const [[, own]] = taken;
  console.table(
    [...taken].map(([name, all]) => {
      const of = (key) => median(all.map((one) => one[key]));
      const ratio = (key) => median(all.map((one, round) => own[round][key] / one[key])).toFixed(2);
      return {
        client: name,
        "CPU, s": of("cpuSeconds").toFixed(2),
        "wall, s": of("seconds").toFixed(2),
        "peak, MiB": of("peakMiB").toFixed(0),
        "infer-batch's CPU / this": ratio("cpuSeconds"),
        "infer-batch's wall / this": ratio("seconds"),
      };
    }),
  );
}

/**
 * Python's client by HTTP with binary tensors and by gRPC against a real Triton, whose CPU time is counted too. Triton is
 * the package nvidia-pytriton, in an environment of its own.
 */
async function compareProtocols() {
  const interpreter = process.env.INFER_BATCH_TRITON_PYTHON;
  if (interpreter === undefined) {
    throw new Error("INFER_BATCH_TRITON_PYTHON names no python with nvidia-pytriton in it");
  }
  mkdirSync(folder, { recursive: true });
  const ports = [18_300, 18_301, 18_302].map(String);
  const child = spawn(interpreter, [path("peers/triton_zeros.py"), ...ports], {
    stdio: ["ignore", "ignore", "ignore"],
    env: { ...process.env, PYTRITON_HOME: folder, PYTHONPATH: undefined, LD_LIBRARY_PATH: undefined },
  });
  process.on("exit", () => child.kill());
  while ((await fetch(`http://127.0.0.1:${ports[0]}/v2/models/m/ready`).catch(() => undefined))?.ok !== true) {
    await sleep(200);
  }
  for (const [batch, requests] of [
    ["8192", "800"],
    ["256", "4000"],
  ]) {
    const taken = new Map([
      ["http", []],
      ["grpc", []],
    ]);
    for (let round = 0; round <= Number(options.runs); round += 1) {
      for (const [protocol, all] of taken) {
        const host = `127.0.0.1:${ports[protocol === "http" ? 0 : 1]}`;
        const before = cpuSecondsOfTree(child.pid);
        const client = await measure([
          interpreter,
          path("peers/client_triton.py"),
          protocol,
          host,
          batch,
          requests,
          "8",
        ]);
        const server = cpuSecondsOfTree(child.pid) - before;
        if (round > 0) {
          all.push({ client: client.cpuSeconds, server, both: client.cpuSeconds + server });
        }
      }
    }
    console.log(
      `${requests} requests of ${batch} rows of 32 float32, CPU seconds: medians of ${options.runs} runs in turns`,
    );
    console.table(
      [...taken].map(([protocol, all]) => {
        const of = (key) => median(all.map((one) => one[key])).toFixed(2);
        return { protocol, client: of("client"), server: of("server"), both: of("both") };
      }),
    );
    const http = taken.get("http");
    const ratio = median(taken.get("grpc").map(({ both }, round) => http[round].both / both));
    console.log(`HTTP / gRPC, both sides: ${ratio.toFixed(2)} (gRPC is worth its code from 1.2 on)`);
  }
  child.kill();
}

/** CPU seconds of a process and of all that it has started, as far as they run. */
function cpuSecondsOfTree(pid) {
  const all = readdirSync("/proc").flatMap((name) => {
    try {
      const fields = readFileSync(`/proc/${/^\d+$/.test(name) ? name : "x"}/stat`, "utf8")
        .split(") ")[1]
        .split(" ");
      return [{ pid: Number(name), parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) }];
    } catch {
      return []; // it has ended
    }
  });
  const tree = new Set([pid]);
  for (let size = 0; size < tree.size; ) {
    size = tree.size;
    for (const one of all) {
      if (tree.has(one.parent)) {
        tree.add(one.pid);
      }
    }
  }
  return all.filter((one) => tree.has(one.pid)).reduce((sum, { ticks }) => sum + ticks / 100, 0);
}

/** Sums the values of ten tenths of a second each. */
function bySecond(tenths) {
  return Array.from({ length: Math.floor(tenths.length / 10) }, (_, second) =>
    tenths.slice(second * 10, second * 10 + 10).reduce((sum, value) => sum + (value ?? 0), 0),
  );
}

function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

/** What a job gets of a server with a time and a number of requests at once, from the tenth second on. */
async function findConcurrency() {
  await prepareData(["mlp"]);
  mkdirSync(folder, { recursive: true });
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
  const shares = bySecond(stats.workMs).map((workMs) => workMs / (slots * 1000));
  const half = Math.floor(resident.length / 2);
  console.log(`${slots} requests at once, ${delayMs} ms each, ${mostRows} rows`);
  console.log(`answered in each second: ${bySecond(stats.answered).join(" ")}`);
  console.log(`share of the server's time that was used: ${shares.map(percent).join(" ")}`);
  console.log(`median second after 10 s: ${percent(median(shares.slice(fromTenth / 10)))} (wanted: 95 %)`);
  console.log(`most in flight at the server: ${stats.mostInFlight}`);
  console.log(
    `resident memory: ${resident[half]?.toFixed(0)} MiB in the middle, at most ${Math.max(...resident).toFixed(0)} MiB`,
  );
}
