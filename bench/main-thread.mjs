// node bench/main-thread.mjs [--threads 1,2] [--runs N] [--parts]: CPU seconds of the main thread for a million rows of the job `mlp`. There
// is one main thread however many cores there are, so it bounds a process: the difference between 4,000,000 rows and
// 100,000, so that the start does not count. Prints rows/s by threads too, which only a quiet machine tells. --parts shows, by Linux's
// perf, where the main thread spends it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { dataFolder, prepareData } from "./data.mjs";
import { median } from "./measure.mjs";
import { partNames, requirePerf, secondsByPart } from "./perf.mjs";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const cores = availableParallelism();
const { values } = parseArgs({
  options: {
    threads: { type: "string", default: `1,${cores}` },
    runs: { type: "string", default: "3" },
    parts: { type: "boolean", default: false },
  },
});
const runs = Number(values.runs);
/** Clock ticks of /proc/<pid>/stat in a second, on every Linux that Node runs on. */
const ticks = 100;
const tables = { mlp: 4_000_000, "mlp-small": 100_000 };

/** The CPU seconds of a thread so far; undefined: it has ended. */
function secondsOf(pid, file) {
  try {
    const stat = readFileSync(`/proc/${pid}/${file}`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[11]) + Number(fields[12])) / ticks;
  } catch {
    return undefined;
  }
}

/** Writes a job over a table, and returns the command that scores it. */
async function prepareJob(table, threads, folder) {
  const spec = join(folder, "job.yaml");
  const job = {
    version: 1,
    name: "main-thread",
    input: { path: join(dataFolder, table, "*.parquet") },
    model: { path: path("../fixtures/models/bench-mlp.onnx") },
    engine: { threads },
    output: { columns: ["id"], parquet: { path: join(folder, "out") } },
  };
  await writeFile(spec, JSON.stringify(job));
  await rm(join(folder, "out"), { recursive: true, force: true });
  return [process.execPath, path("../bin/infer-batch.js"), "run", spec, "--json", "--quiet"];
}

/** Scores a table, and returns the CPU seconds of the main thread and of all threads, and what the run reports. */
async function score(table, threads, folder) {
  const [program, ...args] = await prepareJob(table, threads, folder);
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text) => {
    said += text;
  });
  let [main, all] = [0, 0];
  const sampling = setInterval(() => {
    main = secondsOf(child.pid, `task/${child.pid}/stat`) ?? main;
    all = secondsOf(child.pid, "stat") ?? all;
  }, 10);
  await once(child, "close");
  clearInterval(sampling);
  return { main, all, rate: JSON.parse(said).rows_per_second };
}

/** What grows from the small table to the large one, for a million rows. @param {(table: string) => number} measured */
function perMillion(measured) {
  const [long, short] = Object.keys(tables).map(measured);
  return ((long - short) / (tables.mlp - tables["mlp-small"])) * 1e6;
}

async function showRates(threads, folder) {
  const found = { mlp: [], "mlp-small": [] };
  for (let run = 0; run < runs; run += 1) {
    for (const table of Object.keys(tables)) {
      found[table].push(await score(table, threads, folder));
    }
  }
  const [main, all] = ["main", "all"].map((what) =>
    perMillion((table) => median(found[table].map((one) => one[what]))),
  );
  const rate = median(found.mlp.map((one) => one.rate)).toLocaleString("en-US");
  console.log(
    `| ${threads} | ${main.toFixed(3)} | ${all.toFixed(3)} | ${(1 / main).toFixed(1)} | ${(all / main).toFixed(0)} | ${rate} |`,
  );
}

async function showParts(threads, folder) {
  const found = { mlp: [], "mlp-small": [] };
  for (let run = 0; run < runs; run += 1) {
    for (const table of Object.keys(tables)) {
      found[table].push((await secondsByPart(await prepareJob(table, threads, folder))).main);
    }
  }
  console.log(`\n| part of the main thread, ${threads} threads | CPU s for a million rows |\n| --- | ---: |`);
  for (const part of partNames) {
    const seconds = perMillion((table) => median(found[table].map((one) => one.get(part) ?? 0)));
    console.log(`| ${part} | ${seconds.toFixed(3)} |`);
  }
}

if (values.parts) {
  requirePerf();
}
await prepareData(new Set(["mlp"]));
const folder = await mkdtemp(join(tmpdir(), "infer-batch-main-"));
try {
  console.log(
    "| threads | main thread, CPU s for a million rows | all threads | M rows/s that one main thread allows | cores busy then | rows/s here |",
  );
  console.log("| ---: | ---: | ---: | ---: | ---: | ---: |");
  const layouts = values.threads.split(",").map(Number);
  for (const threads of layouts) {
    await showRates(threads, folder);
  }
  for (const threads of values.parts ? layouts : []) {
    await showParts(threads, folder);
  }
} finally {
  await rm(folder, { recursive: true, force: true });
}
