import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { DuckDBListValue } from "@duckdb/node-api";
import { describe, expect, test } from "vitest";
import { expectEnd, projectFolder } from "../support/cli.js";
import { differences, goldenRows } from "../support/golden.js";
import { readIndependently } from "../support/hyparquet.js";
import { type Fixture, fixtures, scratch, scratchFolder, writeSpec } from "../support/job.js";
import { faultsOfFinished, outputRows, partNames } from "../support/output.js";
import { query, readRows } from "../support/parquet.js";
import { runSpec, scoreHere } from "../support/score.js";
import { faultsOf, textJob } from "../support/text-job.js";
import { torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

/** Without VNNI (or ARM), ONNX Runtime predicts otherwise for INT8 models, in Python, too: sums are cut off. */
const hasExactInt8 =
  process.platform !== "linux" || process.arch !== "x64" || /vnni/.test(readFileSync("/proc/cpuinfo", "utf8"));

/** `small`: less than any row group. `spanning`: a span over several shards. */
type CommitSize = "small" | "spanning" | "auto";

interface Shape {
  readonly batch: number | "auto";
  readonly commit: CommitSize;
  readonly threads: number;
}

const allShapes: readonly Shape[] = [
  { batch: 1, commit: "small", threads: 2 },
  { batch: 1, commit: "spanning", threads: 1 },
  { batch: 1, commit: "auto", threads: 2 },
  { batch: 7, commit: "small", threads: 1 },
  { batch: 7, commit: "spanning", threads: 2 },
  { batch: 7, commit: "auto", threads: 1 },
  { batch: 256, commit: "small", threads: 2 },
  { batch: 256, commit: "spanning", threads: 1 },
  { batch: 256, commit: "auto", threads: 2 },
  { batch: 8192, commit: "small", threads: 1 },
  { batch: 8192, commit: "spanning", threads: 2 },
  { batch: 8192, commit: "auto", threads: 1 },
];

/** The short form: a shape or two with each fixture, and each shape with one of the fixtures. */
function shapesFor(fixture: Fixture): Shape[] {
  return allShapes.filter((_, index) => torture || index % fixtures.length === fixtures.indexOf(fixture));
}

function commitRows(fixture: Fixture, size: CommitSize): number | "auto" {
  return size === "auto" ? "auto" : size === "small" ? 13 : Math.ceil(fixture.rows * 0.75);
}

function spansOf(fixture: Fixture, size: CommitSize): number {
  const rows = commitRows(fixture, size);
  return rows === "auto" ? 1 : Math.ceil(fixture.rows / rows);
}

const codecs = ["zstd", "uncompressed", "snappy", "gzip"];

function codecsFor(fixture: Fixture): string[] {
  return codecs.filter((_, index) => torture || index === fixtures.indexOf(fixture) % codecs.length);
}

/** Numbers, and texts with NULLs. */
const asBuilt = new Set(["cancer-logistic", "penguins-pipeline"]);

describe.each(fixtures)("$name", (fixture) => {
  test.each(shapesFor(fixture))(
    "predicts what Python did: batches of $batch, spans $commit, $threads threads",
    async ({ batch, commit, threads }) => {
      const spec = await writeSpec(scratch.path, fixture, {
        engine: { batch_size: batch, threads },
        commit_rows: commitRows(fixture, commit),
      });

      const report = await scoreHere(spec);

      const out = join(scratch.path, "out");
      expect(report).toMatchObject({
        status: "complete",
        rowsScored: fixture.rows,
        spansPlanned: spansOf(fixture, commit),
        unitsReadAgain: {},
      });
      expect(await partNames(out)).toHaveLength(spansOf(fixture, commit));
      expect(differences(await outputRows(out), await goldenRows(fixture))).toEqual([]);
      expect(await faultsOfFinished(out, fixture.rows)).toEqual([]);
    },
  );

  test.runIf(torture || asBuilt.has(fixture.name))(
    "predicts what Python did as a command with everything left to it",
    async () => {
      const spec = await writeSpec(scratch.path, fixture, { engine: { threads: "auto" } });

      const { code, summary } = await runSpec(spec, { ownProcess: asBuilt.has(fixture.name) });

      const out = join(scratch.path, "out");
      expect(code).toBe(0);
      expect(summary).toMatchObject({ status: "complete", rows_planned: fixture.rows, rows_scored: fixture.rows });
      expect(differences(await outputRows(out), await goldenRows(fixture))).toEqual([]);
      expect(await faultsOfFinished(out, fixture.rows)).toEqual([]);
    },
  );

  test.each(codecsFor(fixture))("writes %s parts that a reader of other make reads the same", async (compression) => {
    const spec = await writeSpec(scratch.path, fixture, {
      output: { parquet: { path: "out", compression } },
      commit_rows: Math.ceil(fixture.rows / 3),
    });

    await scoreHere(spec);

    const out = join(scratch.path, "out");
    const parts = (await partNames(out)).map((name) => join(out, name));
    expect(parts).toHaveLength(3);
    expect(differences(await readIndependently(parts), await goldenRows(fixture))).toEqual([]);
    const written = await query(`SELECT DISTINCT compression FROM parquet_metadata('${out}/*.parquet')`);
    expect(written).toEqual([{ compression: compression.toUpperCase() }]);
  });
});

describe("vectors", () => {
  test("are lists with what Python predicted", async () => {
    const outputs = { vector: "vector", score: "score", third: "vector[3]" };
    const spec = await writeSpec(scratch.path, fixtureNamed("embedding-mlp"), { model: { outputs }, commit_rows: 500 });

    await scoreHere(spec);

    const rows = await outputRows(join(scratch.path, "out"));
    const lists = rows.map(({ vector }) => (vector as DuckDBListValue).items);
    expect(new Set(lists.map(({ length }) => length))).toEqual(new Set([8]));
    const golden = await goldenRows({ name: "embedding-mlp" });
    const asColumns = rows.map(({ id, score }, row) => ({
      id,
      ...Object.fromEntries((lists[row] ?? []).map((value, index) => [`vector_${index}`, value])),
      score,
    }));
    expect(differences(asColumns, golden)).toEqual([]);
    expect(rows.every(({ third }, row) => third === lists[row]?.[3])).toBe(true);
  });
});

describe("texts and NULLs", () => {
  test("that a model predicts and reads are the same if all columns are carried", async () => {
    const columns = ["row_id", "species", "sex", "tag", "measured_on"];
    const spec = await writeSpec(scratch.path, fixtureNamed("penguins-pipeline"), { output: { columns } });

    await scoreHere(spec);

    const rows = await outputRows(join(scratch.path, "out"));
    const shards = await readRows(join(projectFolder, "fixtures/data/penguins_complete/*.parquet"));
    const carried = shards.map((row) => columns.map((name) => String(row[name])));
    expect(rows.map((row) => columns.map((name) => String(row[name])))).toEqual(carried);
    expect(new Set(rows.map(({ label }) => label))).toEqual(new Set(["Adelie", "Chinstrap", "Gentoo"]));
  });

  test("rows with NULL features are bad rows unless model.missing allows them", async () => {
    const spec = await writeSpec(scratch.path, fixtureNamed("penguins-lightgbm"), { model: { missing: "bad_row" } });

    await expectEnd(
      runSpec(spec),
      65,
      "part-00000.parquet: row 3, column `bill_length_mm` is NULL (in 2 of 344 rows of the input)\n",
    );
  });

  test("NULL texts are bad rows", async () => {
    const path = join(projectFolder, "fixtures/data/penguins/*.parquet");
    const where = { input: { path }, model: { missing: "nan" } };
    const spec = await writeSpec(scratch.path, fixtureNamed("penguins-pipeline"), where);

    await expectEnd(
      runSpec(spec),
      65,
      "part-00000.parquet: row 3, column `sex` is NULL (in 11 of 344 rows of the input)\n",
    );
  });
});

test("the tables hold ids that no float64 can: past 2^53, and both ends of int64", async () => {
  const cancer = await idsOf("cancer-logistic");
  const digits = await idsOf("digits-lightgbm");

  expect(cancer.every((id) => BigInt(Number(id)) !== id)).toBe(true);
  expect(digits).toContain(-(2n ** 63n));
  expect(digits).toContain(2n ** 63n - 1n);
});

async function idsOf(name: string): Promise<bigint[]> {
  return (await goldenRows({ name })).map(({ id }) => id as bigint);
}

const folder = join(projectFolder, "fixtures/lighter");

async function expectGolden(name: string, original: "diabetes-mlp" | "wine-forest", batch: number): Promise<void> {
  await using ownFolder = await scratchFolder();
  const spec = await writeSpec(ownFolder.path, fixtureNamed(original), {
    model: { path: join(folder, `${name}.onnx`) },
    engine: { batch_size: batch },
  });

  await scoreHere(spec);

  const golden = await readRows(join(folder, `${name}.parquet`));
  expect(differences(await outputRows(join(ownFolder.path, "out")), golden)).toEqual([]);
}

test.each([
  ["mlp-fp16", "diabetes-mlp", 100],
  ["forest-pruned", "wine-forest", 100],
] as const)("the lighter model %s predicts what it does in Python", expectGolden);

test.skipIf(!hasExactInt8).each([
  // Its scales come from the rows of a call.
  ["mlp-int8-dynamic", "diabetes-mlp", 1],
  ["mlp-int8-static", "diabetes-mlp", 100],
] as const)("the lighter model %s predicts what it does in Python, on a processor with VNNI", expectGolden);

test.skipIf(!hasExactInt8)(
  "a transformer whose weights are INT8 gives the embeddings that it gives in Python",
  async () => {
    await using ownFolder = await scratchFolder();
    const { spec, out } = await textJob(ownFolder.path, {
      model: { path: join(folder, "encoder-int8.onnx") },
      engine: { batch_size: 1 },
    });

    await scoreHere(spec);

    const golden = join(folder, "encoder-int8.parquet");
    expect(await faultsOf(await outputRows(out), () => true, golden)).toEqual([]);
  },
);
