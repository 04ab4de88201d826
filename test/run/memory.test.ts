import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { writeArrow } from "../support/arrow.js";
import { expectEnd, runCli, runHere } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import { longRowsSql, writeLongRows, writeLongValuesSpec } from "../support/long-values.js";
import { writeModel } from "../support/onnx.js";
import { partNames } from "../support/output.js";
import { query, writeRows } from "../support/parquet.js";
import { runMeasured } from "../support/peak-memory.js";
import { torture } from "../support/torture.js";

/** A process that has loaded all of its libraries takes 250 MiB. */
const limitMiB = 700;

async function jobOver(
  folder: string,
  { body, rows, options, spec }: { body: string; rows: number; options: string; spec: object },
): Promise<string> {
  await mkdir(join(folder, "in"));
  await writeLongRows(join(folder, "in/a.parquet"), { body, to: rows, options });
  return await writeLongValuesSpec(folder, spec);
}

/** What is left of rows that came out otherwise than they went in. */
async function changedRows(folder: string): Promise<number> {
  const [found] = await query(
    `SELECT count(*) AS rows FROM read_parquet('${folder}/in/a.parquet') i
       FULL JOIN read_parquet('${folder}/out/*.parquet') o USING (id)
       WHERE i.id IS NULL OR o.id IS NULL OR i.body IS DISTINCT FROM o.body`,
  );
  return Number(found?.["rows"]);
}

/** Tiny files of few rows, each of which unpacks to 100 MB. */
async function writeTinyShards(folder: string, count: number): Promise<void> {
  for (let index = 0; index < count; index += 1) {
    await writeLongRows(join(folder, `in/${index}.parquet`), {
      body: `repeat('${index}', 1000000)`,
      from: index * 100,
      to: (index + 1) * 100,
      options: "COMPRESSION zstd",
    });
  }
}

describe.runIf(process.platform === "linux")("memory follows bytes, not rows", () => {
  const one = "repeat('a', 1000000)";
  const [snappy, zstd] = ["COMPRESSION snappy", "COMPRESSION zstd"];

  test.each([
    { what: "rows of one text of 1 MB, by a dictionary,", body: one, rows: 300, options: snappy },
    // DuckDB holds all lists of a vector several times.
    ...(torture
      ? [
          { what: "texts of 4 MB", body: "repeat(chr(97 + (range % 26)::INT), 4000000)", rows: 48, options: snappy },
          { what: "the same, in two spans,", body: one, rows: 300, options: snappy, commitRows: 150 },
          { what: "rows of one text, zstd,", body: one, rows: 300, options: zstd },
          { what: "lists of 1 M floats", body: "range(1000000)::FLOAT[]", rows: 20, options: zstd, mostMiB: 1000 },
        ]
      : []),
  ])(
    "$what are carried in pieces, all of them",
    async ({ body, rows, options, commitRows = "auto", mostMiB = limitMiB }) => {
      const spec = await jobOver(scratch.path, {
        body,
        rows,
        options,
        spec: { engine: { memory: "448MiB" }, commit_rows: commitRows },
      });
      const { code, stderr, peakMiB } = await runMeasured(["run", spec, "--quiet"]);
      expect([code, stderr]).toEqual([0, ""]);
      expect(await changedRows(scratch.path)).toBe(0);
      expect(peakMiB).toBeGreaterThan(100);
      expect(peakMiB).toBeLessThan(mostMiB);
    },
  );

  test("tiny files that unpack to a hundred times their size are not read all at once", async () => {
    const spec = await jobOver(scratch.path, {
      body: "'first'",
      rows: 100,
      options: zstd,
      spec: { input: { path: "in/[0-9].parquet" }, engine: { memory: "448MiB" } },
    });
    await writeTinyShards(scratch.path, 7);
    const { code, stderr, peakMiB } = await runMeasured(["run", spec, "--quiet"]);
    expect([code, stderr]).toEqual([0, ""]);
    const [found] = await query(
      `SELECT count(*) AS rows, sum(len(body)) AS bytes FROM read_parquet('${scratch.path}/out/*.parquet')`,
    );
    expect([Number(found?.["rows"]), Number(found?.["bytes"])]).toEqual([700, 7e8]);
    expect(peakMiB).toBeLessThan(limitMiB);
  });

  test.runIf(torture)("a record batch of many long texts is read in parts", async () => {
    const spec = await jobOver(scratch.path, {
      body: "'first'",
      rows: 1,
      options: snappy,
      spec: { input: { path: "in/*.arrow" }, engine: { memory: "448MiB" } },
    });
    const select = longRowsSql("repeat(chr(97 + (range % 26)::INT), 1000000)", 0, 400);
    await writeArrow(join(scratch.path, "in/a.arrow"), select, { batchRows: 400 });
    const { code, stderr, peakMiB } = await runMeasured(["run", spec, "--quiet"]);
    expect([code, stderr]).toEqual([0, ""]);
    const [found] = await query(
      `SELECT count(DISTINCT id) AS rows, sum(len(body)) AS bytes FROM read_parquet('${scratch.path}/out/*.parquet')`,
    );
    expect([Number(found?.["rows"]), Number(found?.["bytes"])]).toEqual([400, 4e8]);
    expect(peakMiB).toBeLessThan(limitMiB);
  });

  test("a page that there is no memory for ends the run with 65, naming it and what to set", async () => {
    const body = "repeat(chr(97 + (range % 26)::INT), 4000000)";
    const spec = await jobOver(scratch.path, {
      body,
      rows: 10,
      options: "COMPRESSION snappy",
      spec: { engine: { memory: "64MiB" } },
    });
    const { peakMiB } = await expectEnd(
      runMeasured(["run", spec, "--quiet"]),
      65,
      /reading .*\/in\/a.parquet: row group 0 \(rows .*\), column `body`: a page has \d+ MiB when it is unpacked, more than 16 MiB, which is one of 4 parts of engine.memory\n {2}hint: set engine.memory to 1GiB/,
    );
    expect(peakMiB).toBeLessThan(limitMiB);
  });
});

/** Given to node with --import: each thread gets a heap that a few thousand texts fit into. */
const smallHeaps = `
  import threads from "node:worker_threads";
  import { syncBuiltinESMExports } from "node:module";
  const { Worker } = threads;
  threads.Worker = class extends Worker {
    constructor(file, options) {
      super(file, { ...options, resourceLimits: { maxOldGenerationSizeMb: 24, maxYoungGenerationSizeMb: 4 } });
    }
  };
  syncBuiltinESMExports();`;

test("a scoring worker that reaches its memory limit ends the run with 75, and tells what to do", async () => {
  const model = join(scratch.path, "echo.onnx");
  await writeModel(model, {
    inputs: [{ name: "text", dtype: "string", shape: ["N"] }],
    outputs: [{ name: "echo", dtype: "string", shape: ["N"] }],
    nodes: [{ op: "Identity", from: ["text"], to: "echo" }],
  });
  const rows =
    "select range::bigint as id, md5(range::varchar) || repeat(md5(range::varchar), 20) as text from range(60000)";
  await writeRows(join(scratch.path, "texts.parquet"), rows);
  const fixture = { name: "texts", table: "", model: "", outputs: { echo: "echo" }, rows: 60_000 };
  const overrides = {
    input: { path: join(scratch.path, "texts.parquet") },
    model: { path: model },
    engine: { batch_size: 60_000, memory: "4GiB" }, // so that all texts are in one batch
    commit_rows: 60_000,
  };
  const spec = await writeSpec(scratch.path, fixture, overrides);
  const node = [`--import=data:text/javascript,${encodeURIComponent(smallHeaps)}`];

  const ended = await expectEnd(
    runCli(["run", spec, "--no-progress"], { node }),
    75,
    /^error: .*echo\.onnx: a worker thread reached its memory limit\n {2}hint: .*NODE_OPTIONS/m,
  );
  expect(ended.stderr).not.toContain("\n    at ");
  expect(await partNames(join(scratch.path, "out"))).toEqual([]);
  await expectEnd(runHere(["run", spec, "--no-progress"]), 0);
});
