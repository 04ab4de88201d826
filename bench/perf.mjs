// Where the CPU time of a process goes, by Linux's perf.
import { spawn, spawnSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { dataFolder } from "./data.mjs";
import { measure } from "./measure.mjs";

export const samplesPerSecond = 1999;

/** @throws Error if there is no perf */
export function requirePerf() {
  if (spawnSync("perf", ["--version"]).status !== 0) {
    throw new Error("starting perf: it is not here; Debian has it in linux-perf, Ubuntu in linux-tools");
  }
}

/** By what a processor was at, `symbol` of `library`; the first that fits. Functions of src/ keep their names. */
const parts = [
  ["the model (ONNX Runtime)", ({ library }) => library.includes("onnxruntime")],
  ["Parquet output (DuckDB)", ({ library }) => library.includes("duckdb")],
  ["kernel: reading files, memory, threads", ({ library, symbol }) => library.startsWith("[k") || symbol === "[k]"],
  [
    "packing, looking for what is not finite",
    ({ symbol }) => /wasm-function|\b(packFours?|copyFour\w*|copyStrided|copyChecked|sumOf\w+)\b/.test(symbol),
  ],
  [
    "decoding",
    ({ symbol }) =>
      /\b(unpack\w*|copyLiterals|copyMatch|read(Runs|Fixed\w*|Bytes|Texts|Plain)|take(Bytes|Words))\b/.test(symbol),
  ],
  ["copying and allocating (libc)", ({ library }) => /libc[.-]/.test(library)],
  ["V8: collecting garbage", ({ library, symbol }) => isNode(library) && /Scaveng|Mark|Sweep|GC|Evacuat/.test(symbol)],
  [
    "V8: parsing, compiling, optimising",
    ({ library, symbol }) =>
      isNode(library) &&
      /compiler|[Pp]arse|Scanner|interpreter::|Bytecode|Ast[A-Z]|Scope|Turbo|baseline|LineEnds|StringTable/.test(
        symbol,
      ),
  ],
];
const rest = "other JavaScript, V8 and Node";
/** The parts of a process, in the order of tables. */
export const partNames = [...parts.map(([part]) => String(part)), rest];

function isNode(library) {
  return library.endsWith("/node");
}

/**
 * Runs a command of Node, and returns the CPU seconds by part of all threads and of the main thread.
 * @param {readonly string[]} command the program, then its arguments
 * @returns {Promise<{ all: Map<string, number>, main: Map<string, number> }>}
 */
export async function secondsByPart([node, ...args]) {
  const folder = await mkdtemp(join(dataFolder, "profile-"));
  const recording = join(folder, "perf.data");
  try {
    const perf = ["perf", "record", "--quiet", "-F", String(samplesPerSecond), "-o", recording];
    const names = ["--perf-basic-prof", "--no-logfile-per-isolate", `--logfile=${join(folder, "v8.log")}`];
    await measure([...perf, "--", node, ...names, ...args]);
    return await countSamples(recording);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function countSamples(recording) {
  const fields = ["-F", "pid,tid,ip,sym,dso"];
  const script = spawn("perf", ["script", "-i", recording, ...fields], { stdio: ["ignore", "pipe", "ignore"] });
  const seconds = { all: new Map(), main: new Map() };
  const processes = new Set();
  for await (const line of createInterface({ input: script.stdout })) {
    const [, pid, thread, symbol, library] = /^\s*(\d+)\/(\d+)\s+[0-9a-f]+\s+(.*)\s\((.*)\)\s*$/.exec(line) ?? [];
    if (symbol !== undefined) {
      processes.add(pid);
      const part = parts.find(([, fits]) => fits({ symbol, library }))?.[0] ?? rest;
      for (const counted of thread === pid ? [seconds.all, seconds.main] : [seconds.all]) {
        counted.set(part, (counted.get(part) ?? 0) + 1 / samplesPerSecond);
      }
    }
  }
  // Where V8 tells perf the names of its code.
  await Promise.all([...processes].map((pid) => rm(`/tmp/perf-${pid}.map`, { force: true })));
  return seconds;
}
