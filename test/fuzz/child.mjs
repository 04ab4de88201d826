// Carries out a job over damaged copies of a shard, one after the other; lines of JSON on stdout: { starts: seed }
// before each, and what became of it. A crash of native code takes this process only, and its last line tells where.
// argv: { folder, shard, mode, seeds } as JSON. The folder holds pinned.yaml and full.yaml, for in/a.parquet.
import { mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { openJob } from "#src/job/open.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { readI32, readStruct } from "#src/base/thrift.js";
import { runJob } from "#src/run/run.js";
import { mutate } from "./mutations.mjs";

const { folder, shard, mode, seeds } = JSON.parse(process.argv[2]);
const time = new Date("2026-01-01T00:00:00Z");
const input = join(folder, "in/a.parquet");
const out = join(folder, "out");
// Parts of the same name come and go within a second: nothing of a file may be remembered.
const settings = { threads: "1", enable_external_file_cache: "false" };
const reader = await (await DuckDBInstance.create(":memory:", settings)).connect();

// Loading a model takes longer than scoring a small shard.
const first = await openJob(join(folder, "pinned.yaml"), { param: [] });
const resolved = await first.models.resolveModel();
const engine = await first.models.openEngine(resolved.model, { inputBytes: 0 });
const lent = { ...engine, [Symbol.asyncDispose]: async () => {} };

async function run(verify) {
  const job = await openJob(join(folder, `${verify}.yaml`), { param: [] });
  try {
    await runJob({
      ...job,
      models: { ...job.models, resolveModel: async () => resolved, openEngine: async () => lent },
    });
  } finally {
    await job[Symbol.asyncDispose]();
  }
}

function put(bytes) {
  writeFileSync(input, bytes);
  utimesSync(input, time, time);
}

const parts = () => readdirSync(out).filter((name) => name.endsWith(".parquet"));

/** Of all parts, in order, as text. */
async function rows() {
  const all = [];
  for (const part of parts().toSorted()) {
    const result = await reader.runAndReadAll(`SELECT * FROM '${join(out, part)}'`);
    all.push(...result.getRowsJson().map((row) => JSON.stringify(row)));
  }
  return all;
}

/** Where a page's header lies, for each page. */
function pageHeaders(bytes, { rowGroups }) {
  const headers = [];
  for (const { start, compressedBytes } of rowGroups.flatMap(({ chunks }) => chunks)) {
    for (let at = start; at < start + compressedBytes; ) {
      const cursor = { bytes: bytes.subarray(at), at: 0 };
      let size = 0;
      readStruct(cursor, (id, type) => {
        size = id === 3 ? readI32(cursor, type) : size;
        return id === 3;
      });
      headers.push({ from: at, to: at + cursor.at });
      at += cursor.at + size;
    }
  }
  return headers;
}

/** Whether a reader meets the same footer, and in its places the same page headers: only values can differ. */
function onlyPages(bytes) {
  const end = good.length - footer.pagesEnd;
  return (
    bytes.length > end &&
    bytes.subarray(bytes.length - end).equals(good.subarray(footer.pagesEnd)) &&
    headers.every(({ from, to }) => bytes.subarray(from, to).equals(good.subarray(from, to)))
  );
}

/** An unfinished run over the good shard, planned with digests: its first span is committed. */
async function leaveUnfinished() {
  put(good);
  await run("full");
  for (const name of ["_SUCCESS", "_manifest.json", ...parts().toSorted().slice(1)]) {
    rmSync(join(out, name));
  }
}

async function outcomeOf(bytes) {
  rmSync(out, { recursive: true, force: true });
  try {
    if (mode === "later") {
      await leaveUnfinished();
    }
    put(bytes);
    await run(mode === "pinned" ? "pinned" : "full");
  } catch (error) {
    const known = typeof error.exitCode === "number";
    return { code: known ? error.exitCode : 1, said: known ? `${error.code}: ${error.message}` : error.stack };
  }
  const found = await rows();
  const wrong = found.findIndex((row, index) => row !== expected[index]);
  return wrong === -1 && found.length === expected.length
    ? { code: 0 }
    : { code: 0, said: `${found.length} rows; row ${wrong} is ${found[wrong]}, due ${expected[wrong]}` };
}

const good = readFileSync(shard);
mkdirSync(join(folder, "in"), { recursive: true });
rmSync(out, { recursive: true, force: true });
put(good);
const footer = await readParquetFooter({ path: input });
const places = footer.rowGroups.flatMap(({ chunks }) => chunks.map(({ start }) => start));
const headers = pageHeaders(good, footer);
await run("pinned");
const expected = await rows();

for (const seed of seeds) {
  process.stdout.write(`${JSON.stringify({ starts: seed })}\n`);
  const { bytes, kind, from, to } = mutate(good, seed, places);
  const outcome = await outcomeOf(bytes);
  const told = {
    seed,
    shard,
    mode,
    kind,
    from,
    to,
    inPage: onlyPages(bytes),
    same: bytes.equals(good),
    ...outcome,
    peakMb: Math.round(process.resourceUsage().maxRSS / 1024),
  };
  process.stdout.write(`${JSON.stringify(told)}\n`);
}
await engine[Symbol.asyncDispose]();
await first[Symbol.asyncDispose]();
