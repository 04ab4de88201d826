import { describe, expect, test } from "vitest";
import { shareProjection } from "#src/binding/shared-projection.js";
import type { Contract } from "#src/binding/contract.js";
import { planAgreement, type SpanAgreement } from "#src/checks/agreement/span-agreement.js";
import type { OutputRows, RecordBatch } from "#src/columnar/types.js";
import type { Engine, EngineRequest, EngineResponse } from "#src/engine/port.js";
import { fixedSize } from "#src/scoring/batch-size.js";
import { createChallenger } from "#src/scoring/challenger/challenger.js";
import { JobError } from "#src/util/errors.js";

const contract: Contract = {
  inputs: [
    {
      kind: "matrix",
      input: "x",
      dtype: "float32",
      rank: 1,
      columns: [{ name: "a", path: ["a"], type: "float32" }],
    },
  ],
  outputs: [{ kind: "scalar", column: "score", tensor: "y", type: "float32" }],
  passthrough: [],
  fixedBatchRows: null,
  expressions: null,
  cast: "exact",
  missing: "bad_row",
};

const floats = (values: readonly number[]) => ({
  kind: "fixed" as const,
  elementsPerValue: 1 as const,
  data: Float32Array.from(values),
  valid: undefined,
});

/** Rows whose feature is `values`, NULL where they are undefined. */
function batchOf(values: readonly (number | undefined)[]): RecordBatch {
  const valid = Uint8Array.from(values, (value) => (value === undefined ? 0 : 1));
  const data = Float32Array.from(values, (value) => value ?? 0);
  return { rowCount: values.length, inputs: [{ kind: "matrix", width: 1, data, valid }], carried: [] };
}

interface World {
  readonly warnings: string[];
  /** Whether workers that have its sessions are told to score with it. */
  isInWorkers(this: void): boolean;
  /** Scores rows, compares them with a champion that predicts twice the feature, and returns what was found. */
  piece(this: void, values: readonly (number | undefined)[], rowStart?: number): Promise<SpanAgreement>;
}

/** A challenger that predicts twice the feature and 1 more, in batches of two rows. `fail`: called with each batch. */
function worldOf(fail: (values: readonly number[]) => EngineResponse["kind"] | undefined): World {
  const warnings: string[] = [];
  const run = ({ inputs }: EngineRequest): Promise<EngineResponse> => {
    const values = inputs.flatMap(({ data }) => [...(data as Float32Array)]);
    if (fail(values) === "failed") {
      return Promise.resolve({ kind: "failed", message: "no such row", inputs });
    }
    const data = Float32Array.from(values, (value) => 2 * value + 1);
    const outputs = [{ dtype: "float32" as const, dims: [values.length], data }];
    return Promise.resolve({ kind: "done", outputs, ms: 1, inputs });
  };
  const signature = { inputs: [], outputs: [] };
  const engine = { provider: "cpu", concurrency: 2, signature, run, local: { isGuest: true } } as unknown as Engine;
  const limit = { rows: 100, begin: () => ({ rows: 0, renewals: 0 }), exceeded: () => Promise.resolve() };
  const outputs = [{ name: "score", type: "float32" as const }];
  const challenger = createChallenger(
    { log: { warn: (text) => warnings.push(text) } },
    {
      name: "b.onnx",
      contract,
      engine,
      sizer: fixedSize(2),
      batchLimit: limit,
      shared: shareProjection(contract, contract),
      agreement: planAgreement(outputs, outputs, { rows: 100, spanRows: 10, tolerance: 0.5 }),
      keys: ["id"],
    },
  );
  return {
    warnings,
    isInWorkers: () => challenger.inWorkers?.() !== undefined,
    async piece(values, rowStart = 0) {
      const piece = { rowStart, rowEnd: rowStart + values.length };
      const open = challenger.openPiece(piece);
      await open.take(batchOf(values), { from: 0, to: values.length, row: rowStart });
      await open.end();
      const output: OutputRows = {
        rowCount: values.length,
        columns: [
          { name: "id", type: "float32", column: floats(values.map((_value, index) => 100 + index)) },
          { name: "score", type: "float32", column: floats(values.map((value) => 2 * (value ?? 0))) },
        ],
      };
      const span = { ...piece, index: 0 };
      const scored = {
        isLast: true,
        readRows: values.length,
        keptRows: values.length,
        isInOutput: () => true,
        rowInRun: (row: number) => row,
      };
      const rows = { ...scored, piece, span, predicted: new Set(["score"]) };
      return await open.compare(rows, output);
    },
  };
}

describe("a challenger", () => {
  test("a challenger's rows are compared with the champion's, and those with NULL are counted", async () => {
    const { piece, warnings } = worldOf(() => undefined);
    const { compared, missed, columns } = await piece([1, 2, undefined, 4, 5], 20);
    expect([compared, [...missed], warnings]).toEqual([4, [["missing", 1]], []]);
    const { most } = columns.get("score") as { most: readonly { row: number; keys?: object }[] };
    expect(most.map(({ row, keys }) => [row, keys])).toEqual([
      [20, { id: "100" }],
      [21, { id: "101" }],
      [23, { id: "103" }],
      [24, { id: "104" }],
    ]);
  });

  test("a row that the challenger's model refuses is counted, and the other rows are compared", async () => {
    const { piece } = worldOf((values) => (values.includes(4) ? "failed" : undefined));
    const { compared, missed } = await piece([1, 2, 3, 4, 5]);
    expect([compared, [...missed]]).toEqual([4, [["model_failed", 1]]]);
  });

  test("a challenger whose device fails stops with one warning, and the rows from that piece on are counted", async () => {
    let calls = 0;
    const { piece, warnings, isInWorkers } = worldOf((values) => {
      calls += 1;
      if (values.includes(7)) {
        throw new JobError("DEVICE", "scoring with b.onnx: the device is lost", {});
      }
      return undefined;
    });
    expect((await piece([1, 2])).compared).toBe(2);
    expect(isInWorkers()).toBe(true);
    const broken = await piece([5, 6, 7, 8, 9], 2);
    expect([broken.compared, [...broken.missed]]).toEqual([0, [["not_running", 5]]]);
    const before = calls;
    expect([...(await piece([1, 2, 3], 7)).missed]).toEqual([["not_running", 3]]);
    expect(calls).toBe(before);
    expect(isInWorkers(), "workers score no further batch with it").toBe(false);
    expect(warnings).toEqual([
      "the challenger b.onnx stops scoring in this attempt: scoring with b.onnx: the device is lost",
    ]);
  });
});
