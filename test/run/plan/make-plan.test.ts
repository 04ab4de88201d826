import { describe, expect, test } from "vitest";
import type { Contract } from "#src/models/binding/contract.js";
import type { ColumnType } from "#src/columns/types.js";
import { makePlan } from "#src/run/plan/make-plan.js";
import type { Plan, RunId } from "#src/run/plan/plan.js";
import { emptyContract, ref } from "../../support/batches.js";
import { planOf } from "../../support/plans.js";
import { load, minimalSpec } from "../../support/spec.js";

const planFor = (text: string, contract: Contract = emptyContract, msPerRow = 0): Plan =>
  makePlan({
    runId: "daily-0123456789ab" as RunId,
    spec: load(text),
    shards: planOf([3, 0, 4], 1).input.shards,
    uniform: false,
    model: { sha256: "ab".repeat(32) },
    contract,
    msPerRow,
    target: { kind: "parquet", uri: "out" },
    dateParam: undefined,
    checks: undefined,
    createdBy: "infer-batch 1.2.3",
  });

const list = (element: ColumnType): ColumnType => ({ kind: "list", element });

const outputs = (count: number): Contract => ({
  ...emptyContract,
  outputs: Array.from({ length: count }, (_, index) => ({
    kind: "scalar",
    column: `c${index}`,
    tensor: `t${index}`,
    type: "float64",
  })),
});

describe("a plan", () => {
  test("a plan pins all that decides which rows there are and what they mean", () => {
    const text = `${minimalSpec}commit_rows: 5\ntimezone: Asia/Tokyo\nparams: { ds: x }\n`
      .replace("model:", "model:\n  inputs: { f: [a] }\n  outputs: { s: p }")
      .replace("output:", "output:\n  columns: [id]");
    expect(planFor(text)).toMatchInlineSnapshot(`
      {
        "checks": null,
        "commitRows": 5,
        "contract": {
          "cast": "exact",
          "expressions": null,
          "fixedBatchRows": null,
          "inputs": [],
          "missing": "bad_row",
          "outputs": [],
          "passthrough": [],
        },
        "createdBy": "infer-batch 1.2.3",
        "dateParam": null,
        "format": "infer-batch-plan",
        "input": {
          "format": "parquet",
          "rows": 7,
          "shards": [
            {
              "fingerprint": "mtime:0",
              "rows": 3,
              "sizeBytes": 100,
              "uri": "s0",
            },
            {
              "fingerprint": "mtime:1",
              "rows": 0,
              "sizeBytes": 101,
              "uri": "s1",
            },
            {
              "fingerprint": "mtime:2",
              "rows": 4,
              "sizeBytes": 102,
              "uri": "s2",
            },
          ],
        },
        "job": "daily",
        "model": {
          "sha256": "abababababababababababababababababababababababababababababababab",
          "uri": "model.onnx",
        },
        "params": {
          "ds": "x",
        },
        "request": {
          "cast": "exact",
          "columns": {},
          "inputs": {
            "f": [
              "a",
            ],
          },
          "missing": "bad_row",
          "outputs": {
            "s": "p",
          },
          "partitions": {},
          "passthrough": [
            "id",
          ],
          "where": null,
        },
        "runId": "daily-0123456789ab",
        "staged": false,
        "target": {
          "kind": "parquet",
          "uri": "out",
        },
        "timezone": "Asia/Tokyo",
        "version": 1,
      }
    `);
  });

  test("a plan is plain JSON", () => {
    const plan = planFor(minimalSpec, outputs(2));
    expect(JSON.parse(JSON.stringify(plan))).toEqual(plan);
  });

  test("a plan does not depend on keys that belong to an attempt", () => {
    expect(planFor(`${minimalSpec}engine: { batch_size: 7, threads: 3 }\n`)).toEqual(planFor(minimalSpec));
  });
});

describe("commit_rows: auto", () => {
  test("commit_rows: auto is a fixed number for narrow outputs", () => {
    expect(planFor(minimalSpec, outputs(1)).commitRows).toBe(262_144);
    expect(planFor(minimalSpec, outputs(16)).commitRows).toBe(262_144);
  });

  test.each([33, 100, 1000, 100_000])(
    "commit_rows: auto keeps a span of %i columns of 8 bytes within 32 MiB",
    (columns) => {
      const { commitRows } = planFor(minimalSpec, outputs(columns));
      expect(commitRows * columns * 8).toBeLessThanOrEqual(32 * 1024 * 1024);
      expect((commitRows + 1) * columns * 8).toBeGreaterThan(32 * 1024 * 1024);
    },
  );

  test("commit_rows: auto counts carried columns too", () => {
    const passthrough = Array.from({ length: 1000 }, (_, index) => ({
      column: `p${index}`,
      source: ref(`p${index}`, "int32"),
    }));
    expect(planFor(minimalSpec, { ...emptyContract, passthrough }).commitRows).toBe(
      Math.floor((32 * 1024 * 1024) / 4000),
    );
  });

  test("commit_rows: auto is at least one row", () => {
    const type = list(list(list(list("float64")))); // thought to have 64 elements each: 128 MiB a row
    const passthrough = [{ column: "p", source: ref("p", type) }];
    expect(planFor(minimalSpec, { ...emptyContract, passthrough }).commitRows).toBe(1);
  });

  test.each([
    [0.001, 262_144],
    [0.1, 262_144],
    [0.2, 131_072],
    [10, 2048],
    [5000, 64],
  ])("commit_rows: auto is about half a minute of a model that takes %d ms a row", (msPerRow, commitRows) => {
    expect(planFor(minimalSpec, outputs(1), msPerRow).commitRows).toBe(commitRows);
  });

  test("commit_rows: a number takes precedence over auto", () => {
    expect(planFor(`${minimalSpec}commit_rows: 3\n`, outputs(1000), 5000).commitRows).toBe(3);
  });
});
