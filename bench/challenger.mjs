// node bench/challenger.mjs [--runs N] [--parts] [--small] [--big]: CPU seconds that a challenger adds to the job `mlp`, and
// those of its model alone: a loop of onnxruntime-node over as many rows in memory. In turns, so that both meet the same
// machine. --parts shows instead, by Linux's perf, where the challenger's seconds go. --small scores the first 100,000 rows
// only; --big scores those with the model of the job `mlp-big`.
import { rmSync, writeFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { isMainThread, Worker, workerData } from "node:worker_threads";
import { parse } from "yaml";
import { outFolder } from "./contenders.mjs";
import { prepareData } from "./data.mjs";
import { measure, median } from "./measure.mjs";
import { partNames, requirePerf, secondsByPart } from "./perf.mjs";
import { bigModel, prepareBigModel } from "./models.mjs";
import { machine } from "./report.mjs";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const features = 32;
/** The sessions of a job on two cores, each of one thread. */
const sessions = 2;
const batchRows = 2048;
/** Rows in memory, which are scored again and again. */
const rowsInMemory = 65_536;

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "8" },
    parts: { type: "boolean", default: false },
    small: { type: "boolean", default: false },
    big: { type: "boolean", default: false },
    alone: { type: "string" },
  },
});
const [table, rows] = values.small || values.big ? ["mlp-small", 100_000] : ["mlp", 4_000_000];
const modelPath = values.big ? bigModel : path("../fixtures/models/bench-mlp.onnx");

/** Scores this many rows with a session of its own. */
async function scoreAlone(count) {
  const { InferenceSession, Tensor } = await import("onnxruntime-node");
  const extra = { session: { intra_op: { allow_spinning: "0" } } };
  const options = { intraOpNumThreads: 1, interOpNumThreads: 1, extra };
  const session = await InferenceSession.create(modelPath, options);
  const inMemory = Float32Array.from({ length: rowsInMemory * features }, (_, index) => Math.sin(index));
  const [input] = session.inputNames;
  for (let row = 0; row < count; row += batchRows) {
    const start = (row % rowsInMemory) * features;
    const batch = inMemory.subarray(start, start + batchRows * features);
    await session.run({ [input]: new Tensor("float32", batch, [batchRows, features]) });
  }
}

/** A spec of the job, with its own model as the challenger or without. */
function specOf(name, challenger) {
  const spec = parse(readFileSync(path("jobs/mlp.yaml"), "utf8"));
  const file = path(`jobs/mlp-${name}-${process.pid}.yaml`); // paths in a spec are relative to it
  process.on("exit", () => rmSync(file, { force: true }));
  const engine = { ...spec.engine, batch_size: batchRows };
  const model = { path: modelPath };
  writeFileSync(file, JSON.stringify({ ...spec, model, engine, ...(challenger ? { challenger: model } : {}) }));
  return file;
}

function job(name, challenger) {
  return [
    process.execPath,
    path("../bin/infer-batch.js"),
    "run",
    specOf(name, challenger),
    "--quiet",
    "--param",
    `table=${table}`,
  ];
}

function alone(count) {
  const model = values.big ? ["--big"] : [];
  return [process.execPath, path("challenger.mjs"), "--alone", String(count), ...model];
}

/**
 * Runs commands by turns, once more than asked. Returns what `run` found, by command, without the first round.
 * @template T
 * @param {readonly (readonly string[])[]} commands
 * @param {number} runs
 * @param {(command: readonly string[]) => Promise<T>} run
 */
async function inTurns(commands, runs, run) {
  await prepareData(new Set(["mlp"]));
  if (values.big) {
    await prepareBigModel();
  }
  const found = commands.map(() => []);
  for (let round = 0; round <= runs; round += 1) {
    for (const [index, command] of commands.entries()) {
      rmSync(join(outFolder, "mlp"), { recursive: true, force: true });
      const one = await run(command);
      if (round > 0) {
        found[index].push(one);
      }
    }
  }
  return found;
}

async function compare(runs) {
  const commands = [job("with", true), job("without", false), alone(rows), alone(0)];
  const taken = await inTurns(commands, runs, async (command) => (await measure(command)).cpuSeconds);
  const differences = (one, other) => median(taken[one].map((seconds, index) => seconds - taken[other][index]));
  const [added, model] = [differences(0, 1), differences(2, 3)];
  const medians = taken.map((seconds) => median(seconds).toFixed(2));
  console.log(`CPU seconds over ${rows.toLocaleString("en-US")} rows; medians of ${runs} in turns; ${machine()}`);
  console.log(`the job: ${medians[1]}; with a challenger: ${medians[0]}, which is ${added.toFixed(2)} more`);
  console.log(`the model alone: ${model.toFixed(2)}; the challenger adds ${(added / model).toFixed(2)} times that`);
}

/** Prints the CPU seconds of a challenger by part, and which of them are the main thread's. */
async function showParts(runs) {
  requirePerf();
  const found = await inTurns([job("with", true), job("without", false)], runs, secondsByPart);
  const added = (thread, part) => {
    const [one, other] = found.map((all) => median(all.map((seconds) => seconds[thread].get(part) ?? 0)));
    return (one - other).toFixed(3);
  };
  console.log(
    `CPU seconds that a challenger adds over ${rows.toLocaleString("en-US")} rows; medians of ${runs} in turns; ${machine()}`,
  );
  console.log("| part | all threads | main thread |\n| --- | ---: | ---: |");
  for (const part of partNames) {
    console.log(`| ${part} | ${added("all", part)} | ${added("main", part)} |`);
  }
}

if (isMainThread) {
  if (values.alone === undefined) {
    await (values.parts ? showParts : compare)(Number(values.runs));
  } else {
    for (let session = 0; session < sessions; session += 1) {
      void new Worker(path("challenger.mjs"), {
        argv: process.argv.slice(2),
        workerData: Number(values.alone) / sessions,
      });
    }
  }
} else {
  await scoreAlone(workerData);
}
