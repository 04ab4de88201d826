// Who takes part: each is a command of its own that scores a table into Parquet files under bench/data/out/.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { dataFolder, rowCount, shards, smallRowCount, smallShard } from "./data.mjs";

export const outFolder = join(dataFolder, "out");

const batchSize = "8192";
const model = path("../fixtures/models/bench-mlp.onnx");
const program = path("../bin/infer-batch.js");
const job = path("jobs/mlp.yaml");
const provideVenv =
  "python3 -m venv bench/data/venv && bench/data/venv/bin/pip install -r bench/peers/requirements.txt";

/**
 * @typedef {object} Contender
 * @property {string} id
 * @property {string} name as the table shows it
 * @property {number} rows how many it scores: the ids from 0 on
 * @property {readonly string[]} command the program, then its arguments
 * @property {string} output a file, or a folder of Parquet files, below `outFolder`
 * @property {string} [absent] why it cannot run here, and what would change that
 */

/** @returns {{ contenders: Contender[], versions: string[] }} in the order in which each round runs them */
export function findContenders() {
  const python = findPython();
  const threads = String(Math.min(availableParallelism(), shards.length));
  return {
    contenders: [
      node({ id: "infer-batch", name: "**infer-batch**", rows: rowCount, args: [program, "run", job] }),
      pythonLoop(python, {
        id: "python",
        name: `plain Python loop, batch ${batchSize}`,
        args: (output) => [path("peers/loop_parquet.py"), model, batchSize, output, ...shards],
        extension: ".parquet",
      }),
      pythonLoop(python, {
        id: "python-shards",
        name: `Python, ${threads} threads, a shard each, batch ${batchSize}`,
        args: (output) => [path("peers/loop_shards.py"), model, batchSize, threads, output, ...shards],
        extension: "",
      }),
      node({
        id: "infer-batch-small",
        name: "**infer-batch**",
        rows: smallRowCount,
        args: [program, "run", job, "--param", "table=small", "--param", "out=infer-batch-small"],
      }),
      parquetjs("row", "parquetjs-lite, `cursor.next()`"),
      parquetjs("group", "parquetjs-lite, `cursor.nextRowGroup()`"),
    ],
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

/** @returns {Contender} */
function node({ id, name, rows, args, output = join(outFolder, id) }) {
  return { id, name, rows, command: [process.execPath, ...args], output };
}

/** @returns {Contender} */
function parquetjs(read, name) {
  const id = `parquetjs-${read}`;
  const output = join(outFolder, `${id}.parquet`);
  const args = [path("peers/loop_parquetjs.mjs"), read, model, batchSize, output, smallShard];
  return node({ id, name, rows: smallRowCount, args, output });
}

/** @returns {Contender} */
function pythonLoop(python, { id, name, args, extension }) {
  const output = join(outFolder, `${id}${extension}`);
  return { id, name, rows: rowCount, command: [python.interpreter, ...args(output)], output, absent: python.absent };
}

/**
 * The interpreter that the environment names, else the one in bench/data/venv, else python3.
 * @returns {{ interpreter: string, versions: string[], absent?: string }}
 */
function findPython() {
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

function path(relative) {
  return fileURLToPath(new URL(relative, import.meta.url));
}
