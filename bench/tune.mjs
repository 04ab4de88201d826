// Whether `auto` is as good as the best batch size and layout: whole jobs, each cell of a grid in turn.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { dataFolder, prepareData, tables } from "./data.mjs";
import { measure } from "./measure.mjs";

const usage = `Usage: node bench/tune.mjs [options]

Runs the same job with each batch size in each layout of the engine (sessions x threads of each), and with \`auto\`, all
in turn, and prints the seconds that a whole job takes, from its first row to its end. Four models, made by
bench/peers/tune_models.py: bench/data/venv/bin/pip install onnx lightgbm onnxmltools

  --models <names>  some of linear,mlp,gbm,big (default: all)
  --sizes <rows>    batch sizes (default 256,1024,4096,8192,16384)
  --layouts <list>  such as 2x1,1x2 (default: all cores by sessions, by threads, and one core)
  --runs <n>        of each cell (default 5)
  --help            show this
`;

/** Shards of table \`mlp\` (500,000 rows each) that a model scores: enough for some seconds. */
const models = {
  linear: { shards: 8, output: "score" },
  mlp: { shards: 8, output: "score" },
  gbm: { shards: 2, output: "probabilities[1]" },
  big: { shards: 1, output: "score" },
};
const folder = join(dataFolder, "tune");
const program = fileURLToPath(new URL("tune-job.mjs", import.meta.url));
const cores = availableParallelism();

const { values } = parseArgs({
  options: {
    models: { type: "string", default: Object.keys(models).join(",") },
    sizes: { type: "string", default: "256,1024,4096,8192,16384" },
    layouts: { type: "string", default: [...new Set([`${cores}x1`, `1x${cores}`, "1x1"])].join(",") },
    runs: { type: "string", default: "5" },
    help: { type: "boolean", default: false },
  },
});
if (values.help) {
  process.stdout.write(usage);
} else {
  await main();
}

async function main() {
  await prepareData(new Set(["mlp"]));
  makeModels();
  for (const model of values.models.split(",")) {
    process.stdout.write(gridText(model, await grid(model)));
  }
}

function makeModels() {
  if (!Object.keys(models).every((name) => existsSync(modelFile(name)))) {
    const python = join(dataFolder, "venv/bin/python");
    const script = fileURLToPath(new URL("peers/tune_models.py", import.meta.url));
    execFileSync(python, [script, join(folder, "models")], { stdio: "inherit" });
  }
}

function modelFile(name) {
  return join(folder, "models", `${name}.onnx`);
}

/** Each cell's seconds, of each run. */
async function grid(model) {
  const sizes = values.sizes.split(",").map(Number);
  const layouts = values.layouts.split(",");
  const cells = [
    cellOf("auto", { batchSize: "auto" }),
    ...layouts.flatMap((layout) => sizes.map((batchSize) => cellOf(`${layout} ${batchSize}`, { batchSize, layout }))),
  ];
  const runs = Number(values.runs);
  for (let run = 0; run < runs; run += 1) {
    // Each round begins elsewhere, so that no cell always meets what the machine does at the start of a round.
    const first = Math.floor((run * cells.length) / runs);
    for (let at = 0; at < cells.length; at += 1) {
      await runCell(model, cells[(first + at) % cells.length]);
    }
  }
  return cells;
}

function cellOf(name, settings) {
  return { name, ...settings, seconds: [], cpuSeconds: [], chosen: [] };
}

async function runCell(model, cell) {
  const out = join(folder, "out");
  const spec = join(folder, "job.yaml");
  await rm(out, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const { shards, output } = models[model];
  const job = {
    version: 1,
    name: "tune",
    input: { path: tables.mlp.shards.slice(0, shards) },
    model: { path: modelFile(model), outputs: { score: output } },
    engine: { batch_size: cell.batchSize },
    output: { columns: ["id"], parquet: { path: out } },
  };
  await writeFile(spec, JSON.stringify(job)); // JSON is YAML
  const layout = cell.layout?.split("x") ?? [];
  const { said, cpuSeconds } = await measure([process.execPath, program, spec, ...layout]);
  const report = JSON.parse(said);
  cell.seconds.push(report.seconds);
  cell.cpuSeconds.push(cpuSeconds);
  cell.chosen.push(report.batchSize);
  console.error(`${model} ${cell.name}: ${report.seconds.toFixed(2)} s, ${cpuSeconds?.toFixed(2)} s of CPU`);
}

function gridText(model, cells) {
  const lines = cells.map(({ name, seconds, cpuSeconds, chosen }) => {
    const found = [median(seconds), Math.min(...seconds), median(cpuSeconds)].map((value) =>
      value.toFixed(2).padStart(8),
    );
    return `  ${name.padEnd(12)}${found.join("")}${name === "auto" ? `   batches of ${chosen.join(", ")}` : ""}`;
  });
  const others = cells.filter(({ name }) => name !== "auto");
  const auto = cells.find(({ name }) => name === "auto");
  const compared = Object.entries({
    "the median": ({ seconds }) => median(seconds),
    "the fastest": ({ seconds }) => Math.min(...seconds),
    "the CPU time": ({ cpuSeconds }) => median(cpuSeconds),
  }).map(([what, valueOf]) => {
    const best = others.toSorted((one, other) => valueOf(one) - valueOf(other))[0];
    return `  by ${what} auto takes ${(valueOf(auto) / valueOf(best)).toFixed(3)} of the best cell, ${best.name}`;
  });
  return [
    `${model}, ${auto.seconds.length} jobs each: seconds (median, fastest), CPU seconds (median)`,
    ...lines,
    ...compared,
    "",
  ].join("\n");
}

function median(numbers) {
  const sorted = numbers.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)];
}
