import { describe, expect, test } from "vitest";
import { identity, lookup, smallJob } from "../support/faulty.js";
import { scratchFolder } from "../support/job.js";
import type { SmallModel, TensorShape } from "../support/onnx.js";
import { shownCli } from "../support/shown.js";

const tensor = (dtype: TensorShape["dtype"], ...shape: TensorShape["shape"]): SmallModel => ({
  ...identity,
  inputs: [{ name: "x", dtype, shape }],
  outputs: [{ name: "score", dtype, shape }],
});

/** What `run` says of a shard whose second of three rows has this for `x` and the others have `good`. */
async function saidOf(
  bad: string,
  { model = identity, modelSpec = {}, good = bad }: { model?: SmallModel; modelSpec?: object; good?: string } = {},
): Promise<string> {
  await using scratch = await scratchFolder();
  const name = model.inputs[0]?.name ?? "x";
  const select = `SELECT row AS id, CASE WHEN row = 1 THEN ${bad} ELSE ${good} END AS ${name} FROM range(3) AS t(row)`;
  const { spec } = await smallJob(scratch.path, { model, select, modelSpec });
  const said = await shownCli(["run", spec, "--quiet", "--no-progress"], scratch.path);
  return said.replaceAll(/^\[<time>\].*\n/gm, "");
}

describe("a run with on_bad_row: fail", () => {
  test("a NULL for a float input ends the run with its finding and hint", async () => {
    expect(await saidOf("NULL", { good: "0.5::DOUBLE" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is NULL (in 1 of 3 rows of the input)
        hint: correct the input and run the same command again; model.missing: nan scores NULLs as NaN; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("a NULL for an integer input, which has no substitute, ends the run with its finding and hint", async () => {
    const model = tensor("int64", "N", 1);
    expect(await saidOf("NULL", { model, good: "7" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is NULL (in 1 of 3 rows of the input)
        hint: correct the input and run the same command again; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
    expect(await saidOf("NULL", { model, good: "7", modelSpec: { missing: "nan" } })).toContain(
      "column `x` is NULL (in 1 of 3 rows of the input)\n  hint: correct the input and run the same command again; on_bad_row: reject",
    );
  });

  test("a NULL for a text input ends the run with its finding and hint", async () => {
    expect(await saidOf("NULL", { model: tensor("string", "N"), good: "'a'" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is NULL (in 1 of 3 rows of the input)
        hint: correct the input and run the same command again; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("a NULL for a list input ends the run with its finding and hint, also with missing: nan", async () => {
    const model = tensor("float32", "N", 2);
    const given = { model, good: "[0.5, 1]::FLOAT[]" };
    const said = await saidOf("NULL", given);
    expect(said).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is NULL
        hint: correct the input and run the same command again; each row needs a list of 2 numbers that float32 can hold; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
    expect(await saidOf("NULL", { ...given, modelSpec: { missing: "nan" } })).toBe(said);
  });

  test("a NaN ends the run with its finding and hint", async () => {
    expect(await saidOf("'nan'", { good: "0.5::DOUBLE" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is nan, which is not finite
        hint: model.missing: nan lets NaN through; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("an infinity ends the run with its finding and hint, also with missing: nan", async () => {
    const said = await saidOf("'-inf'", { good: "0.5::DOUBLE" });
    expect(said).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is -inf, which is not finite
        hint: on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
    expect(await saidOf("'-inf'", { good: "0.5::DOUBLE", modelSpec: { missing: "nan" } })).toBe(said);
  });

  test("a NaN in a list ends the run with its finding and hint", async () => {
    const model = tensor("float32", "N", 2);
    expect(await saidOf("[0.5, 'nan'::FLOAT]", { model, good: "[0.5, 1]::FLOAT[]" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is [0.5, nan], which is not finite
        hint: model.missing: nan lets NaN through; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("a double that overflows float32 ends the run with its finding and hint", async () => {
    expect(await saidOf("1e300", { good: "0.5::DOUBLE" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is 1e+300, which float32 cannot hold
        hint: on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("an integer that float32 would round ends the run with its finding and hint", async () => {
    expect(await saidOf("16777217", { good: "7" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is 16777217, which float32 cannot hold
        hint: model.cast: lossy rounds what rounding can fit; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("an integer that even cast: lossy cannot hold ends the run with its finding and hint", async () => {
    const model = tensor("float16", "N", 1);
    expect(await saidOf("70000", { model, good: "7", modelSpec: { cast: "lossy" } })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is 70000, which float16 cannot hold
        hint: on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("a fraction for an integer input ends the run with its finding and hint", async () => {
    expect(await saidOf("1.5", { model: tensor("int64", "N", 1), good: "7::DOUBLE" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is 1.5, which int64 cannot hold
        hint: model.cast: lossy rounds what rounding can fit; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("an integer out of range, or NaN for an integer, ends the run with a hint that does not suggest rounding", async () => {
    expect(await saidOf("3000000000", { model: tensor("int32", "N", 1), good: "7" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is 3000000000, which int32 cannot hold
        hint: on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
    expect(await saidOf("'nan'", { model: tensor("int64", "N", 1), good: "7::DOUBLE" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is nan, which int64 cannot hold
        hint: on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("a list of another length ends the run with its finding and hint", async () => {
    const model = tensor("float32", "N", 2);
    expect(await saidOf("[1, 2, 3]::FLOAT[]", { model, good: "[0.5, 1]::FLOAT[]" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is [1.0, 2.0, 3.0], which float32 [N,2] cannot hold
        hint: each row needs a list of 2 numbers that float32 can hold; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("a long list ends the run with a finding that is one line", async () => {
    const wide = { model: tensor("float32", "N", 200), good: "range(200)::FLOAT[]" };
    expect(await saidOf("list_concat(['nan'::FLOAT], range(199)::FLOAT[])", wide)).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is [nan, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.…, which is not finite
        hint: model.missing: nan lets NaN through; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
    const model = tensor("float32", "N", 2);
    expect(await saidOf("range(900)::FLOAT[]", { model, good: "[0.5, 1]::FLOAT[]" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1, column \`x\` is [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14…, which float32 [N,2] cannot hold
        hint: each row needs a list of 2 numbers that float32 can hold; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("a prediction that is not finite ends the run with its finding and hint", async () => {
    const model: SmallModel = { ...identity, nodes: [{ op: "Log", from: ["x"], to: "score" }] };
    expect(await saidOf("-1", { model, good: "1::FLOAT" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1: the model's prediction \`score\` is NaN
        hint: on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("a prediction with the name of its input list ends the run with its finding and hint", async () => {
    const model: SmallModel = {
      ...tensor("float32", "N", 2),
      nodes: [{ op: "Log", from: ["x"], to: "score" }],
    };
    const good = "[1, 1]::FLOAT[]";
    const modelSpec = { outputs: { x: "score[0]" } };
    expect(await saidOf("[0, 1]::FLOAT[]", { model, good, modelSpec })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1: the model's prediction \`x\` is -Infinity
        hint: on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("a row on which the model fails ends the run with its finding and hint", async () => {
    expect(await saidOf("99", { model: lookup(), good: "3" })).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: scoring <folder>/in/a.parquet: row 1: the model fails on it: Non-zero status code returned while running Gather node. Name:'' Status Message: indices element out of data bounds, idx=99 must be within the inclusive range [-10,9]
        hint: on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });
});
