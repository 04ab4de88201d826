import { copyFile, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { dailyJob } from "../support/backfill-job.js";
import { expectEnd, runHere } from "../support/cli.js";
import { identity, smallJob, spoiltJob } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch, scratchFolder, type SpecOverrides } from "../support/job.js";
import type { SmallModel } from "../support/onnx.js";
import { outputRows } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { reject, rejectLines } from "../support/rejects.js";
import { scoreHere } from "../support/score.js";

const day = "2026-01-01";
const finding = "features are NULL: age in 1 of 442 rows; a row with a NULL feature cannot be scored, and ";

async function plannedWith(overrides: SpecOverrides): Promise<string> {
  await using folder = await scratchFolder();
  const job = await dailyJob(folder.path, overrides);
  await job.damage(day);
  const { stderr } = await expectEnd(runHere(["plan", job.spec, "--param", `ds=${day}`]), 0);
  return stderr;
}

test("plan warns of a feature that the files' statistics state to be NULL in some rows, and says what to write", async () => {
  const stderr = await plannedWith({});
  expect(stderr).toContain(`${finding}on_bad_row: fail ends the run at the first one`);
  expect(stderr).toContain(
    "Correct the input and run the same command again; or, if NULL is right there, write model.missing: nan if the model takes NaN, `age: coalesce(age, …)` under input.columns",
  );
});

test("plan warns of NULL features that max_rejects does not allow", async () => {
  const rejects = { on_bad_row: "reject", max_rejects: "0%" };
  expect(await plannedWith(rejects)).toContain(`${finding}max_rejects (0%) allows 0 rejected rows`);
});

test("plan warns of NULL features before input.where where its condition is about other columns", async () => {
  const before = "features are NULL before input.where: age in 1 of 442 rows;";
  expect(await plannedWith({ input: { where: "bmi < 1000" } })).toContain(before);
});

test.each([
  ["input.where leaves out", { input: { where: "age IS NOT NULL" } }],
  ["become NaN", { model: { missing: "nan" } }],
  ["are replaced by an expression", { input: { columns: { age: "coalesce(age, 0)" } } }],
  ["are rejected within max_rejects", { on_bad_row: "reject", max_rejects: 1 }],
  ["are rejected within a percentage", { on_bad_row: "reject", max_rejects: "0.1%" }],
] satisfies [string, SpecOverrides][])("plan does not warn of NULL features that %s", async (_, overrides) => {
  expect(await plannedWith(overrides)).not.toContain("NULL");
});

test("a run that ends at a NULL says how many rows have one, in its error and on its page, and continues with a corrected input", async () => {
  const report = { html: "page.html" };
  const job = await dailyJob(scratch.path, { report });
  const shards = join(scratch.path, "in", `dt=${day}`);
  for (const name of await readdir(shards)) {
    await copyFile(join(shards, name), join(scratch.path, "whole.parquet"));
    const rows = `SELECT * REPLACE (CAST(NULL AS DOUBLE) AS age) FROM '${join(scratch.path, "whole.parquet")}'`;
    await writeRows(join(shards, name), rows);
  }
  const args = ["run", job.spec, "--param", `ds=${day}`];
  await expectEnd(
    runHere(args),
    65,
    /WARN: features are NULL: age in all 442 rows; .* Correct the input and run the same/,
    `row 0, column \`age\` is NULL (in all 442 rows of the input)
  hint: correct the input and run the same command again; model.missing: nan`,
  );
  const page = await readFile(join(scratch.path, "page.html"), "utf8");
  expect(page).toMatch(/<h2>Warnings<\/h2>.*features are NULL: age in all 442 rows/s);
  await job.arrive(day);
  await expectEnd(runHere(args), 0);
});

test.each([
  { made: "as they are", spoilt: [] },
  { made: "a NaN", spoilt: [{ row: 3, column: "bill_length_mm", sql: "'nan'" }] },
])("model.missing: nan scores NULLs and NaNs as Python does (one of them $made)", async ({ spoilt }) => {
  const inputs = { input: ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"] };
  const job = await spoiltJob(scratch.path, "penguins-lightgbm", spoilt, { model: { inputs, missing: "bad_row" } });
  await expect(scoreHere(job.spec)).rejects.toThrow(/part-00000\.parquet: row 3, column `bill_\w+` is NULL/);
  // model.missing is part of the plan: another folder for another run.
  await job.rewrite({ model: { inputs, missing: "nan" }, commit_rows: 50, output: { parquet: { path: "again" } } });

  await scoreHere(job.spec);

  expect(differences(await outputRows(join(scratch.path, "again")), await goldenRows(job.fixture))).toEqual([]);
});

test("model.missing: nan accepts neither infinity nor a number that does not fit", async () => {
  const select =
    "SELECT row AS id, CASE row WHEN 1 THEN 'nan' WHEN 2 THEN 'inf' WHEN 3 THEN 1e300 WHEN 4 THEN NULL ELSE row END::DOUBLE AS x FROM range(6) AS t(row)";
  // NaN in, 0 out: a prediction must be finite all the same.
  const model = {
    ...identity,
    nodes: [
      { op: "IsNaN", from: ["x"], to: "nan" },
      { op: "Cast", from: ["nan"], to: "score", attributes: { to: 1 } },
    ],
  };
  const { spec, out } = await smallJob(scratch.path, { model, select, ...reject, modelSpec: { missing: "nan" } });

  await scoreHere(spec);

  expect((await outputRows(out)).map(({ id, score }) => [id, score])).toEqual([
    [0n, 0],
    [1n, 1],
    [4n, 1],
    [5n, 0],
  ]);
  expect((await rejectLines(out)).map(({ row, reason, value }) => [row, reason, value])).toEqual([
    [2, "not_finite", "inf"],
    [3, "does_not_fit", "1e+300"],
  ]);
});

test("model.cast: lossy rounds integers that the input's type does not hold; what overflows stays bad", async () => {
  const select =
    "SELECT row AS id, CASE row WHEN 1 THEN 16777217 WHEN 2 THEN 9223372036854775807 ELSE row END AS x FROM range(4) AS t(row)";
  const { spec, out, rewrite } = await smallJob(scratch.path, { model: identity, select });
  await expect(scoreHere(spec)).rejects.toThrow(/row 1, column `x` is 16777217, which float32 cannot hold/);
  await rewrite({ model: { cast: "lossy" }, output: { columns: ["id"], parquet: { path: "lossy" } } });

  await scoreHere(spec);

  const scores = (await outputRows(out.replace(/out$/, "lossy"))).map(({ score }) => score);
  expect(scores).toEqual([0, 16777216, 2 ** 63, 3]);
});

// numpy.float16(value); all but the last two are another number by way of float32.
const values = {
  "1.0004882812509095": 1.0009765625,
  "2049.000000000001": 2050,
  "-2050.999999999999": -2050,
  "65519.999999999": 65504,
  "2.980232238769616e-8": 2 ** -24,
  "6.100535392761144e-5": 1023 * 2 ** -24,
  "0.1": 0.0999755859375,
  "1.00048828125": 1,
};
const tensors = { inputs: [{ ...identity.inputs[0], name: "x", dtype: "float16", shape: ["N", 1] }] } as const;
const model: SmallModel = { ...identity, ...tensors, outputs: [{ ...tensors.inputs[0], name: "score" }] };

test.each([
  { what: "doubles", sql: (value: string) => `${value}::DOUBLE` },
  { what: "decimals", sql: (value: string) => `'${value}'::DECIMAL(38,30)` },
  { what: "doubles in lists", sql: (value: string) => `[${value}::DOUBLE]` },
])("a float16 input rounds $what once, as numpy does", async ({ sql }) => {
  const rows = Object.keys(values).map((value, id) => `(${id}, ${sql(value)})`);
  const select = `SELECT id, x FROM (VALUES ${rows.join(", ")}) AS t(id, x) ORDER BY id`;
  const { spec, out } = await smallJob(scratch.path, { model, select });

  await scoreHere(spec);

  expect((await outputRows(out)).map(({ score }) => score)).toEqual(Object.values(values));
});
