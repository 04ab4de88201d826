// Compares compiled trees with ONNX Runtime, one thread each, on one batch in memory again and again: rows a second of CPU time,
// which other work on the machine changes least. `npm run build && node bench/trees.mjs`
import { readFile } from "node:fs/promises";
import * as onnxruntime from "onnxruntime-node";
import { takeMemory } from "../dist/columns/loops/vectors.js";
import { openSession } from "../dist/models/onnx/session.js";
import { openTreeModel } from "../dist/models/trees/tree-model.js";
import { forestFile, largeForests, nameOfForest, prepareForest } from "./forests.mjs";
import { randomFrom } from "./random.mjs";

const features = 32;
const rows = 4096;
const rounds = 3;
const roundMs = 400;

/** Random forests: trees, leaves of each; oblivious ones ask the same question everywhere at a depth. */
const forests = [
  { trees: 100, leaves: 15 },
  largeForests.forest,
  { trees: 500, leaves: 255 },
  largeForests.oblivious,
  { trees: 100, leaves: 1000 },
];

const random = randomFrom(7);
console.log("| trees x leaves | compiled, k rows/s | ONNX Runtime, k rows/s | times | opened in, CPU ms |");
console.log("| --- | ---: | ---: | ---: | ---: |");
await measure(
  "200 x 31, LightGBM",
  new URL("../fixtures/models/bench-lightgbm.onnx", import.meta.url),
  "probabilities",
);
for (const forest of forests) {
  await prepareForest(forest);
  await measure(nameOfForest(forest), forestFile(forest), "score");
}

async function measure(name, file, output) {
  const model = await readFile(file);
  const openedMs = cpuMs();
  const compiled = await openTreeModel({ model, wanted: [output], openPart });
  const openMs = cpuMs() - openedMs;
  const session = await openPart(model);
  const piece = takeMemory(rows * features * 4);
  const data = new Float32Array(piece.buffer, piece.byteOffset, rows * features);
  data.forEach((_, index) => {
    data[index] = random() * 8 - 4;
  });
  const request = (values) => ({
    inputs: [{ name: session.signature.inputs[0].name, dtype: "float32", dims: [rows, features], data: values }],
    outputs: [output],
  });
  const best = { compiled: Number.POSITIVE_INFINITY, runtime: Number.POSITIVE_INFINITY };
  for (let round = 0; round < rounds; round += 1) {
    best.compiled = Math.min(best.compiled, await batchMs(() => compiled.run(request(data))));
    best.runtime = Math.min(best.runtime, await batchMs(() => session.run(request(data.slice()))));
  }
  const rate = (ms) => (rows / ms).toFixed(0);
  const times = (best.runtime / best.compiled).toFixed(1);
  console.log(`| ${name} | ${rate(best.compiled)} | ${rate(best.runtime)} | ${times} | ${openMs.toFixed(0)} |`);
  await compiled.close();
  await session.close();
}

/** A session of ONNX Runtime with one thread. */
async function openPart(bytes) {
  const settings = { texts: { inputs: [], outputs: [] }, providers: ["cpu"], deviceId: 0, device: "cpu" };
  return await openSession(onnxruntime, { ...settings, intraOpThreads: 1 }, bytes);
}

async function batchMs(run) {
  const startedMs = cpuMs();
  let batches = 0;
  for (; cpuMs() - startedMs < roundMs; batches += 1) {
    await run();
  }
  return (cpuMs() - startedMs) / batches;
}

function cpuMs() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
