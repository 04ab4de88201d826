import { expect, test } from "vitest";
import { refusalOf, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import type { SmallModel } from "../support/onnx.js";
import { outputRows } from "../support/output.js";
import { reject, rejectLines } from "../support/rejects.js";
import { scoreHere } from "../support/score.js";

const largest: SmallModel = {
  inputs: [{ name: "x", dtype: "float32", shape: ["N", "S"] }],
  outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
  nodes: [{ op: "ReduceMax", from: ["x"], to: "score", attributes: { axes: [1], keepdims: 1 } }],
};

test.each([
  [
    "s.tokens",
    "CASE WHEN i = 0 THEN {'tokens': NULL::INT[]} ELSE {'tokens': [1]} END AS s",
    /input\.columns: \{ lists: "coalesce\(s\.tokens, \[\]\)" \}, bound under model\.inputs in its place,/,
  ],
  [
    "tokens",
    "CASE WHEN i = 0 THEN [1.5, NULL] ELSE [1.0] END AS tokens",
    /each element must be a number that float32 can hold, or NULL with model\.missing: nan/,
  ],
  ["tokens", "CASE WHEN i = 0 THEN ['nan'::FLOAT] ELSE [1.0] END AS tokens", /model\.missing: nan lets NaN through/],
])("a bad list of %s comes with what lets it be scored", async (column, select, hint) => {
  const { spec } = await smallJob(scratch.path, {
    model: largest,
    select: `SELECT i AS id, ${select} FROM range(3) t(i)`,
    modelSpec: { inputs: { x: { column, pad: { to: 4 } } } },
  });
  expect(await refusalOf(scoreHere(spec))).toMatch(hint);
});

test("a token that the model fails on is found, however wide the batches are", async () => {
  const model: SmallModel = {
    inputs: [{ name: "ids", dtype: "int64", shape: ["N", "S"] }],
    outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
    nodes: [
      { op: "Gather", from: ["table", "ids"], to: "found" },
      { op: "ReduceMax", from: ["found"], to: "score", attributes: { axes: [1], keepdims: 1 } },
    ],
    constants: [{ name: "table", values: Array.from({ length: 10 }, (_, index) => index / 2) }],
  };
  const { spec, out } = await smallJob(scratch.path, {
    model,
    select:
      "SELECT i AS id, CASE WHEN i = 13 THEN [3, 11] ELSE [i % 10] || range(i % 4) END AS tokens FROM range(50) t(i)",
    modelSpec: { inputs: { ids: { column: "tokens", pad: { to: 100, shrink: true } } } },
    engine: { batch_size: 20 },
    ...reject,
  });

  await scoreHere(spec);

  const rows = await outputRows(out);
  expect(rows.map(({ id }) => Number(id))).toEqual(Array.from({ length: 50 }, (_, id) => id).filter((id) => id !== 13));
  expect(rows.every(({ id, score }) => score === Math.max(Number(id) % 10, (Number(id) % 4) - 1) / 2)).toBe(true);
  expect((await rejectLines(out)).map(({ row, reason }) => [row, reason])).toEqual([[13, "model_failed"]]);
});
