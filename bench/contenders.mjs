// Who takes part: each is a command of its own that scores a table into Parquet files under bench/data/out/.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { dataFolder, tables } from "./data.mjs";
import { forestFile, largeForests } from "./forests.mjs";
import { floorId, jobs, plainLoop, treesFloorId } from "./jobs.mjs";
import { bigModel } from "./models.mjs";
import { findFramework, findLleaves, findPython } from "./python.mjs";

export const outFolder = join(dataFolder, "out");

const batchSize = "8192";
/** Where the large MLP is fastest: its activations stay in the cache. */
const smallBatchSize = "256";
const model = modelFile("bench-mlp");
const program = path("../bin/infer-batch.js");

/**
 * @typedef {object} Contender
 * @property {string} job what it does
 * @property {string} id unique in its job
 * @property {string} name as the table shows it
 * @property {number} rows how many it scores: the ids from 0 on
 * @property {readonly (readonly string[])[]} commands what runs at the same time: the program, then its arguments
 * @property {readonly string[]} reads its shards
 * @property {string} [output] a file, or a folder of Parquet files, below `outFolder`; absent: it is a floor
 * @property {boolean} [tree] it starts processes of its own
 * @property {boolean} [says] the seconds that count are those that it prints, as `{ seconds, by }`
 * @property {string} [absent] why it cannot run here, and what would change that
 */

/**
 * @typedef {object} Runtimes
 * @property {import("./python.mjs").Python} python
 * @property {import("./python.mjs").Python} daft
 * @property {import("./python.mjs").Python} ray
 * @property {import("./python.mjs").Python} pyspark
 * @property {import("./python.mjs").Python} lleaves
 */

/**
 * @param {ReadonlySet<string>} wanted jobs
 * @returns {{ contenders: Contender[], versions: string[] }} in the order in which each round runs them
 */
export function findContenders(wanted) {
  const runtimes = {
    python: findPython(),
    daft: findFramework("daft"),
    ray: findFramework("ray"),
    pyspark: findFramework("pyspark"),
    lleaves: findLleaves(),
  };
  return {
    contenders: jobs.filter(({ id }) => wanted.has(id)).flatMap(({ id }) => contendersOf[id](runtimes)),
    versions: [
      `infer-batch ${versionOf("../package.json")}`,
      `node ${process.versions.node}`,
      ...["onnxruntime-node", "@duckdb/node-api", "parquetjs-lite"].map(
        (name) => `${name} ${versionOf(`../node_modules/${name}/package.json`)}`,
      ),
      ...Object.values(runtimes).flatMap(({ versions }) => versions),
    ],
  };
}

/** The table of `mlp`, under another model. */
const linear = { ...tables.mlp, job: "linear" };
const lightgbm = { ...tables.mlp, job: "lightgbm" };
const mlpBig = { ...tables.mlp, job: "mlp-big" };
/** The first quarter of it. */
const quarter = { rows: tables.mlp.rows / 4, shards: tables.mlp.shards.slice(0, 2) };

/** @type {Record<string, (runtimes: Runtimes) => Contender[]>} by job */
const contendersOf = {
  linear: ({ python }) => withLoops(python, linear, modelFile("bench-linear")),
  mlp: ({ python, daft, ray, pyspark }) => [
    inferBatch(tables.mlp),
    plainPython(python, tables.mlp, "loop_parquet.py", model),
    pythonByShards(python, tables.mlp, model),
    framework(daft, "daft", "Daft, a class UDF"),
    framework(ray, "ray", "Ray Data, `map_batches`"),
    framework(pyspark, "spark", "PySpark, `predict_batch_udf`"),
    inferBatch(tables.mlpSmall, "infer-batch-small", [
      "--param",
      "table=mlp-small",
      "--param",
      "out=infer-batch-small",
    ]),
    parquetjs("row", "parquetjs-lite, `cursor.next()`"),
    parquetjs("group", "parquetjs-lite, `cursor.nextRowGroup()`"),
    readingAlone(),
    sessionAlone(python, tables.mlp, model),
  ],
  lightgbm: ({ python, lleaves }) => [
    ...withLoops(python, lightgbm, modelFile("bench-lightgbm")),
    lleavesAlone(lleaves),
  ],
  "mlp-big": ({ python }) => withLoops(python, mlpBig, bigModel, smallBatchSize),
  forest: ({ python }) => withLoops(python, { ...quarter, job: "forest" }, forestFile(largeForests.forest)),
  oblivious: ({ python }) => withLoops(python, { ...quarter, job: "oblivious" }, forestFile(largeForests.oblivious)),
  mixed: ({ python }) => [
    inferBatch(tables.mixed),
    plainPython(python, tables.mixed, "loop_parquet.py", modelFile("bench-imputing-mlp")),
    pythonByShards(python, tables.mixed, modelFile("bench-imputing-mlp")),
  ],
  wide: ({ python }) => [
    inferBatch(tables.wide),
    plainPython(python, tables.wide, "loop_parquet.py", modelFile("bench-wide-mlp")),
  ],
  strings: ({ python }) => [
    inferBatch(tables.strings),
    plainPython(python, tables.strings, "loop_columns.py", modelFile("penguins-pipeline")),
  ],
  arrow: ({ python }) => [
    inferBatch(tables.arrow),
    overParquet(),
    plainPython(python, tables.arrow, "loop_arrow.py", model),
  ],
  "arrow-wide": ({ python }) => [
    inferBatch(tables.arrowWide),
    plainPython(python, tables.arrowWide, "loop_arrow.py", modelFile("bench-wide-mlp")),
  ],
  "arrow-wide-long": ({ python }) => [
    inferBatchLong("arrow-wide", tables.arrowWideLong),
    plainPython(python, tables.arrowWideLong, "loop_arrow.py", modelFile("bench-wide-mlp")),
  ],
  embeddings: ({ python }) => [
    inferBatch(tables.embeddings),
    plainPython(python, tables.embeddings, "loop_arrow.py", modelFile("bench-embedding-mlp")),
  ],
  "embeddings-long": ({ python }) => [
    inferBatchLong("embeddings", tables.embeddingsLong),
    plainPython(python, tables.embeddingsLong, "loop_arrow.py", modelFile("bench-embedding-mlp")),
  ],
  scaling: () => [workers(1), workers(2), workers(1, { cores: 1 }), workers(2, { cores: 1 })],
};

/** The job, both kinds of Python loops, and the model alone. */
function withLoops(python, table, modelPath, batch = batchSize) {
  return [
    inferBatch(table),
    plainPython(python, table, "loop_parquet.py", modelPath),
    pythonByShards(python, table, modelPath, batch),
    sessionAlone(python, table, modelPath),
  ];
}

/**
 * The job of `mlp` by so many processes, with all cores or so many of their own.
 * @returns {Contender}
 */
function workers(count, { cores } = {}) {
  const id = `workers-${count}${cores === undefined ? "" : `-cores-${cores}`}`;
  const run = [process.execPath, program, "run", path("jobs/mlp.yaml"), "--param", `out=${id}`];
  const commands = Array.from({ length: count }, (_, index) => [
    ...(cores === undefined ? [] : ["taskset", "--cpu-list", `${index * cores}-${(index + 1) * cores - 1}`]),
    ...run,
    ...(count === 1 ? [] : ["--worker", `${index}/${count}`]),
  ]);
  const total = cores === undefined ? availableParallelism() : count * cores;
  const each = cores === undefined || count === 1 ? "" : `, ${cores} each`;
  const name = `${plural(count, "process", "es")} on ${plural(total, "core", "s")}${each}`;
  const absent = cores === undefined ? undefined : whyNotPinned(count * cores);
  const { rows, shards } = tables.mlp;
  return { job: "scaling", id, name, rows, reads: shards, commands, output: join(outFolder, "mlp", id), absent };
}

function plural(count, noun, end) {
  return `${count} ${noun}${count === 1 ? "" : end}`;
}

function whyNotPinned(cores) {
  if (availableParallelism() < cores) {
    return `it takes ${cores} cores`;
  }
  try {
    execFileSync("taskset", ["--cpu-list", `0-${cores - 1}`, "true"], { stdio: "ignore" });
    return undefined;
  } catch {
    return "no `taskset` here";
  }
}

/** The same rows in Parquet, in the same round. @returns {Contender} */
function overParquet() {
  const id = "infer-batch-parquet";
  const params = ["--param", "input=../data/mlp/*.parquet", "--param", `out=${id}`];
  const reads = tables.mlp.shards;
  return { ...inferBatch(tables.arrow, id, params), name: "infer-batch, over Parquet", reads };
}

/** The spec of another job, over a longer table. @returns {Contender} */
function inferBatchLong(spec, { id, ...table }) {
  return inferBatch({ ...table, spec }, "infer-batch", ["--param", `table=${id}`]);
}

/** @returns {Contender} */
function inferBatch({ job, rows, shards: reads, spec = job }, id = "infer-batch", params = []) {
  const command = [process.execPath, program, "run", path(`jobs/${spec}.yaml`), ...params];
  return { job, id, name: "**infer-batch**", rows, reads, commands: [command], output: join(outFolder, job, id) };
}

/** @returns {Contender} */
function plainPython({ interpreter, absent }, { job, rows, shards }, script, modelPath) {
  const output = join(outFolder, job, "python.parquet");
  const command = [interpreter, path(`peers/${script}`), modelPath, batchSize, output, ...shards];
  return {
    job,
    id: plainLoop,
    name: `plain Python loop, batch ${batchSize}`,
    rows,
    reads: shards,
    commands: [command],
    output,
    absent,
  };
}

/** @returns {Contender} */
function pythonByShards({ interpreter, absent }, { job, rows, shards }, modelPath, batch = batchSize) {
  const id = "python-shards";
  const output = join(outFolder, job, id);
  const threads = String(Math.min(availableParallelism(), shards.length));
  const command = [interpreter, path("peers/loop_shards.py"), modelPath, batch, threads, output, ...shards];
  const name = `Python, ${threads} threads, a shard each, batch ${batch}`;
  return { job, id, name, rows, reads: shards, commands: [command], output, absent };
}

/** @returns {Contender} */
function framework({ interpreter, absent }, id, name) {
  const { job, rows, shards } = tables.mlp;
  const output = join(outFolder, job, id);
  const threads = String(availableParallelism());
  const command = [interpreter, path(`peers/peer_${id}.py`), model, batchSize, threads, output, ...shards];
  const about = { job, id, name: `${name}, batch ${batchSize}`, rows, reads: shards };
  return { ...about, commands: [command], output, tree: true, absent };
}

/** @returns {Contender} */
function parquetjs(read, name) {
  const { job, rows, shards } = tables.mlpSmall;
  const id = `parquetjs-${read}`;
  const output = join(outFolder, job, `${id}.parquet`);
  const command = [process.execPath, path("peers/loop_parquetjs.mjs"), read, model, batchSize, output, ...shards];
  return { job, id, name, rows, reads: shards, commands: [command], output };
}

/** @returns {Contender} */
function readingAlone() {
  const { job, rows, shards } = tables.mlp;
  const command = [process.execPath, path("peers/floor_read.mjs"), String(rows), ...shards];
  return { job, id: "reading", name: "floor: DuckDB reads all columns", rows, reads: shards, commands: [command] };
}

/** @returns {Contender} */
function sessionAlone({ interpreter, absent }, { job, rows }, modelPath) {
  const threads = String(availableParallelism());
  const command = [interpreter, path("peers/floor_session.py"), modelPath, String(rows), threads];
  const about = { job, id: floorId, name: "floor: `session.run` alone", rows, reads: [] };
  return { ...about, commands: [command], says: true, absent };
}

/** @returns {Contender} */
function lleavesAlone({ interpreter, absent }) {
  const { job, rows } = lightgbm;
  const threads = String(availableParallelism());
  const cache = join(dataFolder, "lleaves");
  const command = [
    interpreter,
    path("peers/floor_lleaves.py"),
    modelFile("bench-lightgbm"),
    String(rows),
    threads,
    cache,
  ];
  const about = { job, id: treesFloorId, name: "floor: lleaves alone", rows, reads: [] };
  return { ...about, commands: [command], says: true, absent };
}

function versionOf(packageFile) {
  return JSON.parse(readFileSync(path(packageFile), "utf8")).version;
}

function modelFile(name) {
  return path(`../fixtures/models/${name}.onnx`);
}

function path(relative) {
  return fileURLToPath(new URL(relative, import.meta.url));
}
