import { expect, test } from "vitest";
import { summarizeRejects } from "#src/report/rejects-text.js";

test("the summary of rejects writes each row on one line, without control characters", () => {
  const summary = summarizeRejects();
  summary.add({
    shard: "in/a\r.parquet",
    row: 7,
    reason: "null",
    column: "x\nerror: evil",
    value: "\u009b2J",
    columns: { "id\n": "a\u001b[31m5\n" },
  });
  expect(summary.lines()).toEqual([
    String.raw`1 row: null in x\x0aerror: evil`,
    String.raw`  in/a\x0d.parquet row 7 (id\x0a=a\x1b[31m5\x0a): \u009b2J`,
  ]);
});
