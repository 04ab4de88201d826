import { expect, test } from "vitest";
import { identity, lookup, smallJob } from "../support/faulty.js";
import { scratchFolder } from "../support/job.js";
import type { SmallModel, TensorShape } from "../support/onnx.js";
import { shownCli } from "../support/shown.js";

const tensor = (dtype: TensorShape["dtype"], ...shape: TensorShape["shape"]): SmallModel => ({
  ...identity,
  inputs: [{ name: "x", dtype, shape }],
  outputs: [{ name: "score", dtype, shape }],
});

interface Given {
  readonly model?: SmallModel;
  readonly modelSpec?: object;
  readonly good?: string;
}

/** What `run` says of a shard whose second of three rows has this for `x` and the others have `good`. */
async function saidOf(bad: string, { model = identity, modelSpec = {}, good = bad }: Given): Promise<string> {
  await using scratch = await scratchFolder();
  const name = model.inputs[0]?.name ?? "x";
  const select = `SELECT row AS id, CASE WHEN row = 1 THEN ${bad} ELSE ${good} END AS ${name} FROM range(3) AS t(row)`;
  const { spec } = await smallJob(scratch.path, { model, select, modelSpec });
  const said = await shownCli(["run", spec, "--quiet", "--no-progress"], scratch.path);
  return said.replaceAll(/^\[<time>\].*\n/gm, "");
}

const aside = "on_bad_row: reject sets such rows aside";
const correct = `correct the input and run the same command again; ${aside}`;
const letNan = `model.missing: nan lets NaN through; ${aside}`;
const round = `model.cast: lossy rounds what rounding can fit; ${aside}`;
const listOf2 = "each row needs a list of 2 numbers that float32 can hold";

const number = { good: "0.5::DOUBLE" };
const int64 = { model: tensor("int64", "N", 1), good: "7" };
const list = { model: tensor("float32", "N", 2), good: "[0.5, 1]::FLOAT[]" };
const wide = { model: tensor("float32", "N", 200), good: "range(200)::FLOAT[]" };
const nan = { missing: "nan" };
const log = [{ op: "Log", from: ["x"], to: "score" }];

const isNull = ", column `x` is NULL";
const counted = `${isNull} (in 1 of 3 rows of the input)`;
const withNan = correct.replace(aside, `model.missing: nan scores NULLs as NaN; ${aside}`);

test.each<[string, string, Given, string, string]>([
  ["a NULL for a float", "NULL", number, counted, withNan],
  ["a NULL for an integer", "NULL", int64, counted, correct],
  ["a NULL for an integer, which has no substitute,", "NULL", { ...int64, modelSpec: nan }, counted, correct],
  ["a NULL for a text", "NULL", { model: tensor("string", "N"), good: "'a'" }, counted, correct],
  ["a NULL for a list", "NULL", list, isNull, correct.replace(aside, `${listOf2}; ${aside}`)],
  [
    "a NULL for a list with missing: nan",
    "NULL",
    { ...list, modelSpec: nan },
    isNull,
    correct.replace(aside, `${listOf2}; ${aside}`),
  ],
  ["a NaN", "'nan'", number, ", column `x` is nan, which is not finite", letNan],
  ["an infinity", "'-inf'", number, ", column `x` is -inf, which is not finite", aside],
  [
    "an infinity with missing: nan",
    "'-inf'",
    { ...number, modelSpec: nan },
    ", column `x` is -inf, which is not finite",
    aside,
  ],
  ["a NaN in a list", "[0.5, 'nan'::FLOAT]", list, ", column `x` is [0.5, nan], which is not finite", letNan],
  ["a double that overflows float32", "1e300", number, ", column `x` is 1e+300, which float32 cannot hold", aside],
  [
    "an integer that float32 would round",
    "16777217",
    { good: "7" },
    ", column `x` is 16777217, which float32 cannot hold",
    round,
  ],
  [
    "an integer that even cast: lossy cannot hold",
    "70000",
    { model: tensor("float16", "N", 1), good: "7", modelSpec: { cast: "lossy" } },
    ", column `x` is 70000, which float16 cannot hold",
    aside,
  ],
  [
    "a fraction for an integer",
    "1.5",
    { ...int64, good: "7::DOUBLE" },
    ", column `x` is 1.5, which int64 cannot hold",
    round,
  ],
  [
    "an integer out of range, which rounding does not help,",
    "3000000000",
    { model: tensor("int32", "N", 1), good: "7" },
    ", column `x` is 3000000000, which int32 cannot hold",
    aside,
  ],
  [
    "a NaN for an integer",
    "'nan'",
    { ...int64, good: "7::DOUBLE" },
    ", column `x` is nan, which int64 cannot hold",
    aside,
  ],
  [
    "a list of another length",
    "[1, 2, 3]::FLOAT[]",
    list,
    ", column `x` is [1.0, 2.0, 3.0], which float32 [N,2] cannot hold",
    `${listOf2}; ${aside}`,
  ],
  [
    "a NaN in a long list, of which one line is shown,",
    "list_concat(['nan'::FLOAT], range(199)::FLOAT[])",
    wide,
    ", column `x` is [nan, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.…, which is not finite",
    letNan,
  ],
  [
    "a long list of another length, of which one line is shown,",
    "range(900)::FLOAT[]",
    list,
    ", column `x` is [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14…, which float32 [N,2] cannot hold",
    `${listOf2}; ${aside}`,
  ],
  [
    "a prediction that is not finite",
    "-1",
    { model: { ...identity, nodes: log }, good: "1::FLOAT" },
    ": the model's prediction `score` is NaN",
    aside,
  ],
  [
    "a prediction with the name of its input list",
    "[0, 1]::FLOAT[]",
    { model: { ...list.model, nodes: log }, good: "[1, 1]::FLOAT[]", modelSpec: { outputs: { x: "score[0]" } } },
    ": the model's prediction `x` is -Infinity",
    aside,
  ],
  [
    "a row on which the model fails",
    "99",
    { model: lookup(), good: "3" },
    ": the model fails on it: Non-zero status code returned while running Gather node. Name:'' Status Message: indices element out of data bounds, idx=99 must be within the inclusive range [-10,9]",
    aside,
  ],
])("%s ends a run with on_bad_row: fail, and says what to do", async (_what, bad, given, finding, hint) => {
  expect(await saidOf(bad, given)).toBe(
    `exit 65\n--- stderr\nerror: scoring <folder>/in/a.parquet: row 1${finding}\n  hint: ${hint}. Committed spans are kept\n`,
  );
});
