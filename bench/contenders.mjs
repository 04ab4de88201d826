// Who takes part: each is a command of its own that scores a table into Parquet files under bench/data/out/.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { dataFolder, tables } from "./data.mjs";
import { jobs, plainLoop } from "./jobs.mjs";

export const outFolder = join(dataFolder, "out");

const batchSize = "8192";
const model = modelFile("bench-mlp");
const program = path("../bin/infer-batch.js");
const provideVenv =
  "python3 -m venv bench/data/venv && bench/data/venv/bin/pip install -r bench/peers/requirements.txt";

/**
 * @typedef {object} Contender
 * @property {string} job what it does
 * @property {string} id unique in its job
 * @property {string} name as the table shows it
 * @property {number} rows how many it scores: the ids from 0 on
 * @property {readonly string[]} command the program, then its arguments
 * @property {string} output a file, or a folder of Parquet files, below `outFolder`
 * @property {string} [absent] why it cannot run here, and what would change that
 */

/**
 * @param {ReadonlySet<string>} wanted jobs
 * @returns {{ contenders: Contender[], versions: string[] }} in the order in which each round runs them
 */
export function findContenders(wanted) {
  const python = findPython();
  return {
    contenders: jobs.filter(({ id }) => wanted.has(id)).flatMap(({ id }) => contendersOf[id](python)),
    versions: [
      `infer-batch ${versionOf("../package.json")}`,
      `node ${process.versions.node}`,
      ...["onnxruntime-node", "@duckdb/node-api", "parquetjs-lite"].map(
        (name) => `${name} ${versionOf(`../node_modules/${name}/package.json`)}`,
      ),
      ...python.versions,
    ],
  };
}

/** @type {Record<string, (python: Python) => Contender[]>} by job */
const contendersOf = {
  mlp: (python) => [
    inferBatch(tables.mlp),
    plainPython(python, tables.mlp, "loop_parquet.py", model),
    pythonByShards(python),
    inferBatch(tables.mlpSmall, "infer-batch-small", [
      "--param",
      "table=mlp-small",
      "--param",
      "out=infer-batch-small",
    ]),
    parquetjs("row", "parquetjs-lite, `cursor.next()`"),
    parquetjs("group", "parquetjs-lite, `cursor.nextRowGroup()`"),
  ],
  wide: (python) => [
    inferBatch(tables.wide),
    plainPython(python, tables.wide, "loop_parquet.py", modelFile("bench-wide-mlp")),
  ],
  strings: (python) => [
    inferBatch(tables.strings),
    plainPython(python, tables.strings, "loop_columns.py", modelFile("penguins-pipeline")),
  ],
  arrow: (python) => [
    inferBatch(tables.arrow),
    overParquet(),
    plainPython(python, tables.arrow, "loop_arrow.py", model),
  ],
  "arrow-wide": (python) => [
    inferBatch(tables.arrowWide),
    plainPython(python, tables.arrowWide, "loop_arrow.py", modelFile("bench-wide-mlp")),
  ],
  embeddings: (python) => [
    inferBatch(tables.embeddings),
    plainPython(python, tables.embeddings, "loop_arrow.py", modelFile("bench-embedding-mlp")),
  ],
};

/** The same rows in Parquet, in the same round. @returns {Contender} */
function overParquet() {
  const id = "infer-batch-parquet";
  const params = ["--param", "input=../data/mlp/*.parquet", "--param", `out=${id}`];
  return { ...inferBatch(tables.arrow, id, params), name: "infer-batch, over Parquet" };
}

/** @returns {Contender} */
function inferBatch({ job, rows }, id = "infer-batch", params = []) {
  const command = [process.execPath, program, "run", path(`jobs/${job}.yaml`), ...params];
  return { job, id, name: "**infer-batch**", rows, command, output: join(outFolder, job, id) };
}

/** @returns {Contender} */
function plainPython({ interpreter, absent }, { job, rows, shards }, script, modelPath) {
  const output = join(outFolder, job, "python.parquet");
  const command = [interpreter, path(`peers/${script}`), modelPath, batchSize, output, ...shards];
  return { job, id: plainLoop, name: `plain Python loop, batch ${batchSize}`, rows, command, output, absent };
}

/** @returns {Contender} */
function pythonByShards({ interpreter, absent }) {
  const { job, rows, shards } = tables.mlp;
  const id = "python-shards";
  const output = join(outFolder, job, id);
  const threads = String(Math.min(availableParallelism(), shards.length));
  const command = [interpreter, path("peers/loop_shards.py"), model, batchSize, threads, output, ...shards];
  return {
    job,
    id,
    name: `Python, ${threads} threads, a shard each, batch ${batchSize}`,
    rows,
    command,
    output,
    absent,
  };
}

/** @returns {Contender} */
function parquetjs(read, name) {
  const { job, rows, shards } = tables.mlpSmall;
  const id = `parquetjs-${read}`;
  const output = join(outFolder, job, `${id}.parquet`);
  const command = [process.execPath, path("peers/loop_parquetjs.mjs"), read, model, batchSize, output, ...shards];
  return { job, id, name, rows, command, output };
}

/**
 * @typedef {object} Python
 * @property {string} interpreter
 * @property {string[]} versions
 * @property {string} [absent] why it cannot be used
 */

/**
 * The interpreter that the environment names, else the one in bench/data/venv, else python3.
 * @returns {Python}
 */
export function findPython() {
  const own = join(dataFolder, "venv/bin/python");
  const interpreter = process.env.INFER_BATCH_PYTHON ?? (existsSync(own) ? own : "python3");
  const ask = [
    "import numpy, onnxruntime, platform, pyarrow, pyarrow.parquet",
    "print('python', platform.python_version())",
    "for package in (numpy, pyarrow, onnxruntime): print(package.__name__, package.__version__)",
  ];
  try {
    const answer = execFileSync(interpreter, ["-c", ask.join("\n")], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
    return { interpreter, versions: answer.trim().split("\n") };
  } catch (error) {
    const why = String(error.stderr || error.message)
      .trim()
      .split("\n")
      .at(-1);
    return { interpreter, versions: [], absent: `${why}; to have it: ${provideVenv}` };
  }
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
