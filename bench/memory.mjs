// Peak memory of whole runs as shards, spans and files grow: it must not follow them.
import { copyFile, mkdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { findBinaries, startServer } from "../test/support/postgres-server.mjs";
import { dataFolder, quote } from "./data.mjs";
import { measure } from "./measure.mjs";
import { largeValues, memoryGroup } from "./memory-values.mjs";

const usage = `Usage: node bench/memory.mjs [options]

Makes tables in bench/data/memory/, runs jobs over them, and prints the peak memory of each; removes them again.

  --long      up to 5 GB in one shard and 100,000 shards: minutes, and 11 GB of disk
  --gb <n>    the largest table of one shard (default 1; with --long 5); below 1 GB buffers are still filling
  --shards <n>  the largest number of shards (default 2000; with --long 100000)
  --values    tables of few rows with many bytes instead: up to 3 GB while each is made
  --only <text>  those of them whose title has this text
  --program <path>  another bin/infer-batch.js, to compare
  --postgres  the first two series only, into a Postgres that is started here
  --keep      leave the tables
  --help      show this
`;

const models = {
  32: fileURLToPath(new URL("../fixtures/models/bench-mlp.onnx", import.meta.url)),
  200: fileURLToPath(new URL("../fixtures/models/bench-wide-mlp.onnx", import.meta.url)),
};
const folder = join(dataFolder, "memory");
const limitMiB = 600;
/** The memory limit of jobs over large values, whose budget is a part of it. */
const largeLimitMiB = 1024;
/** Peaks of one series may lie this far apart: buffers fill differently from run to run. */
const spreadMiB = 120;

const featureCount = 32;
/** The bytes of a row as it is stored: random floats do not compress. */
const rowBytes = 4 * featureCount + 2;
const tinyRows = 10;
/** The number of jobs so far: each has a name and a table of its own. */
let jobs = 0;

const { values } = parseArgs({
  options: {
    long: { type: "boolean", default: false },
    gb: { type: "string" },
    shards: { type: "string" },
    values: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    program: { type: "string", default: fileURLToPath(new URL("../bin/infer-batch.js", import.meta.url)) },
    postgres: { type: "boolean", default: false },
    keep: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});
const { program } = values;
if (values.help) {
  process.stdout.write(usage);
} else {
  process.exitCode = (await (values.values ? measureLargeValues() : main())) ? 0 : 1;
}

async function main() {
  const largestBytes = Number(values.gb ?? (values.long ? 5 : 1)) * 1e9;
  const largestShards = Number(values.shards ?? (values.long ? 100_000 : 2000));
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const server = values.postgres ? await startPostgres() : undefined;
  try {
    const bySize = await series(
      "one shard of",
      [1 / 4, 1 / 2, 1].map((share) => share * largestBytes),
      async (bytes) => {
        await makeShard(bytes / rowBytes);
        return { what: gigabytes((await stat(shardPath(0))).size), commitRows: "auto" };
      },
    );
    const rows = Math.floor(largestBytes / 4 / rowBytes);
    await makeShard(rows);
    const bySpans = await series("spans:", [262_144, 32_768, 1000], async (commitRows) => {
      return { what: `${Math.ceil(rows / commitRows)}`, commitRows };
    });
    if (values.postgres) {
      return bySize && bySpans;
    }
    await rm(shardPath(0));
    const byShards = await series(
      "shards:",
      [1 / 16, 1 / 4, 1].map((share) => share * largestShards),
      async (count) => {
        await makeTinyShards(Math.floor(count));
        return { what: `${Math.floor(count)}`, commitRows: "auto" };
      },
    );
    const wide = await series("200 columns:", [1 / 4, 1 / 2], async (share) => {
      await makeShard((share * largestBytes) / (4 * 200 + 2), 200);
      return { what: gigabytes((await stat(shardPath(0))).size), commitRows: "auto", features: 200 };
    });
    return [bySize, bySpans, byShards, wide].every((fine) => fine);
  } finally {
    await server?.stop();
    if (!values.keep) {
      await rm(folder, { recursive: true, force: true });
    }
  }
}

/** A job for each table of large values. Whether all ended as they should, below the limit. */
async function measureLargeValues() {
  let areFine = true;
  try {
    for (const { title, make, spec, groupMiB, code: due = 0 } of largeValues) {
      if (!title.includes(values.only)) {
        continue;
      }
      await rm(folder, { recursive: true, force: true });
      await make(shardPath(0));
      const group = groupMiB === undefined ? undefined : memoryGroup(groupMiB);
      if (groupMiB !== undefined && group === undefined) {
        console.log(`${title.padEnd(36)} skipped: this process may make no control groups`);
        continue;
      }
      jobs += 1;
      const path = await writeSpec("auto", models[featureCount], {
        output: { columns: ["id", "body"], parquet: { path: "out" } },
        ...spec,
      });
      const enter = group === undefined ? [] : ["sh", "-c", `echo $$ > ${group.folder}/cgroup.procs; exec "$@"`, "sh"];
      const command = [...enter, process.execPath, program, "run", path, "--quiet"];
      const { seconds, cpuSeconds, peakMiB, code } = await measure(command, { mayFail: true });
      group?.remove();
      const isFine = code === due && peakMiB < largeLimitMiB;
      areFine &&= isFine;
      console.log(
        `${title.padEnd(36)} ${seconds.toFixed(1).padStart(6)} s  ${cpuSeconds.toFixed(1).padStart(6)} CPU s  ${peakMiB.toFixed(0).padStart(6)} MiB  exit ${code}  ${isFine ? "fine" : "TOO MUCH"}`,
      );
    }
    return areFine;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function startPostgres() {
  const found = findBinaries();
  if (found.native === undefined) {
    throw new Error(found.missing);
  }
  const server = await startServer(found.native);
  process.env.DATABASE_URL = server.url("postgres"); // of the jobs
  return server;
}

/** One job after the other; whether memory stayed as it was, and below the limit. */
async function series(title, steps, prepare) {
  const peaks = [];
  for (const step of steps) {
    const { what, commitRows, features } = await prepare(step);
    jobs += 1;
    const spec = await writeSpec(commitRows, models[features ?? featureCount]);
    const { seconds, peakMiB } = await measure([process.execPath, program, "run", spec, "--quiet"]);
    await rm(join(folder, "out"), { recursive: true, force: true });
    peaks.push(peakMiB);
    console.log(
      `${title.padEnd(14)} ${what.padStart(10)}   ${seconds.toFixed(1).padStart(7)} s   ${peakMiB.toFixed(0).padStart(5)} MiB`,
    );
  }
  const grown = peaks.at(-1) - peaks[0];
  const fine = Math.max(...peaks) < limitMiB && grown < spreadMiB;
  console.log(
    `  ${fine ? "fine" : "TOO MUCH"}: at most ${Math.max(...peaks).toFixed(0)} MiB, from first to last ${grown.toFixed(0)} MiB more\n`,
  );
  return fine;
}

async function writeSpec(commitRows, model, others) {
  const path = join(folder, "job.json");
  const spec = {
    version: 1,
    name: `bench-memory-${jobs}`,
    input: { path: "shards/*.parquet" },
    model: { path: model },
    output: {
      columns: ["id"],
      ...(values.postgres
        ? { postgres: { url: "${DATABASE_URL}", table: `bench.scores_${jobs}` } }
        : { parquet: { path: "out" } }),
    },
    commit_rows: commitRows,
    ...others,
  };
  await writeFile(path, JSON.stringify(spec));
  return path;
}

function shardPath(index) {
  return join(folder, "shards", `part-${String(index).padStart(6, "0")}.parquet`);
}

/** One shard; features are random, so that they do not compress. */
async function makeShard(rows, count = featureCount) {
  await rm(join(folder, "shards"), { recursive: true, force: true });
  await mkdir(join(folder, "shards"));
  const features = Array.from({ length: count }, (_, index) => `(random() - 0.5)::FLOAT AS f${index}`);
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  try {
    const select = `SELECT range AS id, ${features.join(", ")} FROM range(${Math.floor(rows)})`;
    await connection.run(`COPY (${select}) TO ${quote(shardPath(0))} (FORMAT parquet, COMPRESSION snappy)`);
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

/** The same few rows over and over. */
async function makeTinyShards(count) {
  await makeShard(tinyRows);
  for (let index = 1; index < count; index += 1) {
    await copyFile(shardPath(0), shardPath(index));
  }
}

function gigabytes(bytes) {
  return `${(bytes / 1e9).toFixed(2)} GB`;
}
