import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { identity, smallJob, spoiltJob } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { outputRows } from "../support/output.js";
import type { SmallModel } from "../support/onnx.js";
import { reject, rejectLines } from "../support/rejects.js";
import { scoreHere } from "../support/score.js";

describe("model.missing: nan", () => {
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
