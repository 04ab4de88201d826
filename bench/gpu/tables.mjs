// The tables, models and specs that bench/gpu runs, in bench/data/gpu/.
import { existsSync } from "node:fs";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { DuckDBInstance } from "@duckdb/node-api";
import { dataFolder } from "../data.mjs";
import { bigModel, prepareBigModel } from "../models.mjs";
import { encoder, hungry, hungryLine } from "./models.mjs";

const fixture = (name) => fileURLToPath(new URL(`../../fixtures/models/${name}.onnx`, import.meta.url));
const features = Array.from({ length: 32 }, (_, index) => `f${index}`);

/** The files of a table that a job reads. */
export const every = "*.parquet";
export const first = "part-0.parquet";
/** The dates of the part `checks`. On the second, the first feature was divided by 1,000. */
export const nights = ["2026-01-01", "2026-01-02"];

/** A number within -5..5 for a row and a column. */
const value = (column) => `((hash(i * 1000 + ${column}) % 10000) / 1000.0 - 5)::FLOAT`;
const list = (width) => `list_transform(range(${width}), k -> ((hash(i * 1000 + k) % 10000) / 1000.0 - 5)::FLOAT)`;

/**
 * @typedef {object} GpuJob
 * @property {string} id
 * @property {string} what as the table shows it
 * @property {string} model
 * @property {string} input the name of its input
 * @property {readonly string[]} columns
 * @property {string} folder its shards
 * @property {number} rows
 */

/**
 * Makes what is missing of tables and models.
 * @param {{ short: boolean }} options short: few rows and small models, to try the script
 * @returns {Promise<{ jobs: GpuJob[], checks: GpuJob & { challenger: string }, memory: GpuJob & { batch: number, expected: string } }>} batch: rows in a batch;
 * expected: the prediction of a row in SQL
 */
export async function prepare({ short }) {
  const folder = join(dataFolder, short ? "gpu-short" : "gpu");
  await mkdir(folder, { recursive: true });
  const size = short ? { tokens: 16, width: 32, layers: 1 } : { tokens: 64, width: 256, layers: 4 };
  // More than 1 GiB in one tensor, which is SwiftShader's limit; 168 GB in all, more than a GPU has.
  const hunger = short ? { width: 20_000, tensors: 1, batch: 16_384 } : { width: 16_000, tensors: 20, batch: 131_072 };
  await prepareBigModel();
  const models = { encoder: join(folder, "encoder.onnx"), hungry: join(folder, "hungry.onnx") };
  await writeFile(models.encoder, encoder(size));
  await writeFile(models.hungry, hungry(hunger));
  const { slope, offset } = hungryLine(hunger);
  const shape = `layers: ${size.layers}, width ${size.width}, ${size.tokens} tokens`;
  const table = async (name, rows, columns) => await makeTable(join(folder, `${name}-${rows}`), rows, columns);
  const flat = features.map((name, index) => `${value(index)} AS ${name}`).join(", ");
  const small = await table("mlp", short ? 5000 : 4_000_000, flat);
  const big = short ? await table("mlp-big", 250, flat) : small;
  const tokens = await table("tokens", short ? 250 : 400_000, `${list(size.tokens)} AS tokens`);
  const embeddings = await table("embeddings", short ? 2000 : 1_600_000, `${list(384)} AS embedding`);
  const nightly = await makeNights(join(folder, "nights"), short ? 4000 : 800_000);
  const many = await table("memory", short ? 20_000 : 300_000, "(i % 3)::FLOAT AS x");
  return {
    jobs: [
      { id: "mlp", what: "MLP 32-128-64-1", model: fixture("bench-mlp"), input: "input", columns: features, ...small },
      { id: "mlp-big", what: "MLP 32-1024-1024-1", model: bigModel, input: "input", columns: features, ...big },
      {
        id: "encoder",
        what: `encoder, ${shape}`,
        model: models.encoder,
        input: "input",
        columns: ["tokens"],
        ...tokens,
      },
      {
        id: "embeddings",
        what: "embeddings of 384, MLP 384-64-1",
        model: fixture("bench-embedding-mlp"),
        input: "input",
        columns: ["embedding"],
        ...embeddings,
      },
    ],
    checks: {
      id: "checks",
      ...(short
        ? {
            what: "MLP 32-128-64-1 and another",
            model: fixture("bench-mlp"),
            challenger: fixture("bench-imputing-mlp"),
          }
        : {
            what: "MLP 32-1024-1024-1, its challenger MLP 32-128-64-1",
            model: bigModel,
            challenger: fixture("bench-mlp"),
          }),
      input: "input",
      columns: features,
      ...nightly,
    },
    memory: {
      id: "memory",
      what: `${(hunger.tensors * hunger.width).toLocaleString("en-US")} numbers for a row`,
      model: models.hungry,
      input: "x",
      columns: ["x"],
      batch: hunger.batch,
      expected: `${slope} * (id % 3) + ${offset}`,
      ...many,
    },
  };
}

async function makeTable(folder, rows, columns) {
  if (!existsSync(folder)) {
    const making = `${folder}.part`;
    await mkdir(making, { recursive: true });
    const database = await DuckDBInstance.create(":memory:");
    const shards = 8;
    await Promise.all(
      Array.from({ length: shards }, async (_, shard) => {
        const [from, to] = [shard, shard + 1].map((index) => Math.floor((rows * index) / shards));
        const file = join(making, `part-${shard}.parquet`);
        const connection = await database.connect();
        await connection.run(`COPY (SELECT i AS id, ${columns} FROM range(${from}, ${to}) AS t(i)) TO '${file}'`);
        connection.closeSync();
      }),
    );
    await rename(making, folder);
  }
  return { folder, rows };
}

/** Makes a folder for each of `nights`, with half of the rows each. */
async function makeNights(folder, rows) {
  const columns = features.map((name, index) => [name, value(index)]);
  for (const [night, ds] of nights.entries()) {
    const scaled = columns.map(
      ([name, sql], index) => `${sql}${night === 1 && index === 0 ? " / 1000" : ""} AS ${name}`,
    );
    await makeTable(join(folder, `ds=${ds}`), rows / 2, scaled.join(", "));
  }
  return { folder, rows };
}

/**
 * Writes a spec for a job and returns its path.
 * @param {GpuJob} job
 * @param {{ path: string, output: string, engine: object, commitRows?: number, files?: string }} options
 */
export async function writeSpec(
  { id, model, input, columns, folder },
  { path, output, engine, commitRows = "auto", files = every },
) {
  const spec = {
    version: 1,
    name: `bench-gpu-${id}`,
    input: { path: join(folder, files) },
    model: { path: model, inputs: { [input]: columns } },
    engine,
    output: { columns: ["id"], parquet: { path: output } },
    commit_rows: commitRows,
  };
  await writeFile(path, JSON.stringify(spec)); // YAML is a superset of JSON
  return path;
}
