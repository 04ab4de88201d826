import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Tensor } from "#src/columns/tensor.js";
import type { FixedColumn, RecordBatch } from "#src/columns/types.js";
import { createSpanRows, type SpanRows } from "#src/flow/span.js";
import type { Contract } from "#src/models/binding/contract.js";
import { emptyContract, ref } from "../support/batches.js";
import { refusal } from "../support/spec.js";

const contract: Contract = {
  ...emptyContract,
  passthrough: [{ column: "id", source: ref("id", "int64") }],
  outputs: [
    { kind: "scalar", column: "label", tensor: "label", type: "int64" },
    { kind: "scalar", column: "score", tensor: "score", type: "float64" },
    { kind: "element", column: "p2", tensor: "p", element: 2, type: "float32" },
  ],
};

const span = { rowStart: 100, rowEnd: 112 };

function open(given: Contract = contract): SpanRows {
  return createSpanRows({
    contract: given,
    span,
    onFault: ({ reason, column, row, value }) => {
      throw new Error(`${reason}: ${column} of row ${row} is ${value}`);
    },
  });
}

function predictions(from: number, to: number, packedRows = to - from): Map<string, Tensor> {
  const rows = Array.from({ length: packedRows }, (_, index) => (from + index < to ? from + index : Number.NaN));
  return new Map<string, Tensor>([
    [
      "label",
      {
        dtype: "int64",
        dims: [packedRows],
        data: BigInt64Array.from(rows, (row) => BigInt(Number.isNaN(row) ? -1 : row)),
      },
    ],
    ["score", { dtype: "float64", dims: [packedRows, 1], data: Float64Array.from(rows, (row) => row / 3) }],
    [
      "p",
      {
        dtype: "float32",
        dims: [packedRows, 3],
        data: Float32Array.from([...rows, ...rows, ...rows], (_, index) =>
          index % 3 === 2 ? (rows[Math.floor(index / 3)] as number) : Number.NaN,
        ),
      },
    ],
  ]);
}

const float64 = (...dims: number[]): Tensor => ({
  dtype: "float64",
  dims,
  data: new Float64Array(dims.reduce((a, b) => a * b, 1)),
});

const float32 = (...dims: number[]): Tensor => ({
  dtype: "float32",
  dims,
  data: new Float32Array(dims.reduce((a, b) => a * b, 1)),
});

const ids = (from: number, to: number): bigint[] =>
  Array.from({ length: to - from }, (_, index) => 2n ** 53n + BigInt(from + index));

function carried(from: number, to: number, isNull: (row: number) => boolean = () => false): RecordBatch {
  const rows = Array.from({ length: to - from }, (_, index) => from + index);
  const valid = rows.some(isNull) ? Uint8Array.from(rows, (row) => (isNull(row) ? 0 : 1)) : undefined;
  return {
    rowCount: rows.length,
    inputs: [],
    carried: [{ kind: "fixed", elementsPerValue: 1, data: BigInt64Array.from(ids(from, to)), valid }],
  };
}

const wholeSpan = Array.from({ length: 12 }, (_, index) => 100 + index);

function expectWholeSpan(rows: SpanRows): void {
  const { rowCount, columns } = rows.finish(12);
  expect(rowCount).toBe(12);
  expect(columns.map(({ name, type }) => [name, type])).toEqual([
    ["id", "int64"],
    ["label", "int64"],
    ["score", "float64"],
    ["p2", "float32"],
  ]);
  expect(columns.map(({ column }) => Array.from<number | bigint>((column as FixedColumn).data))).toEqual([
    ids(100, 112),
    wholeSpan.map(BigInt),
    wholeSpan.map((row) => row / 3),
    wholeSpan,
  ]);
}

const pieces = (at: readonly number[]): [number, number][] => {
  const ends = [100, ...at.toSorted((a, b) => a - b), 112];
  return ends.slice(1).map((end, index): [number, number] => [ends[index] as number, end]);
};

test("the rows of a span come out in order, however they were divided and in any order of predictions", () => {
  const cuts = fc.uniqueArray(fc.integer({ min: 101, max: 111 }));
  fc.assert(
    fc.property(cuts, cuts, fc.infiniteStream(fc.nat()), (carryCuts, predictCuts, noise) => {
      const rows = open();
      const carries = pieces(carryCuts).map(([from, to]) => (): void => {
        rows.carry(carried(from - 2, to + 1), { from: 2, to: to - from + 2, row: from });
      });
      const steps = pieces(predictCuts).map(([from, to]) => (): void => {
        const rowCount = to - from;
        rows.predict(predictions(from, to, rowCount + 2), { rowStart: from, rowCount, packedRows: rowCount + 2 });
      });
      // Rows are read in order; predictions of some of them come back, in any order, before others are read.
      const whenever = steps.map((step) => ({ step, key: (noise.next().value as number) % 1000 }));
      const all = carries.map((step, index) => ({ step, key: (index * 1000) / carries.length }));
      for (const { step } of [...all, ...whenever].toSorted((a, b) => a.key - b.key)) {
        step();
      }
      expectWholeSpan(rows);
    }),
  );
});

test("the rows of a span keep the NULLs of carried columns, also when only one piece had any", () => {
  const rows = open();
  rows.carry(carried(100, 104), { from: 0, to: 4, row: 100 });
  rows.carry(
    carried(103, 110, (row) => row === 105),
    { from: 1, to: 7, row: 104 },
  );
  rows.carry(carried(110, 112), { from: 0, to: 2, row: 110 });
  rows.predict(predictions(100, 112), { rowStart: 100, rowCount: 12, packedRows: 12 });
  const [id, label] = rows.finish(12).columns;
  expect([...(id?.column.valid ?? [])]).toEqual(wholeSpan.map((row) => (row === 105 ? 0 : 1)));
  expect(label?.column.valid).toBeUndefined();
});

test("the rows of a span do not hold on to the memory of the record batch", () => {
  const rows = open();
  const batch = carried(100, 112);
  rows.carry(batch, { from: 0, to: 12, row: 100 });
  (batch.carried[0] as FixedColumn).data.fill(0n as never);
  rows.predict(predictions(100, 112), { rowStart: 100, rowCount: 12, packedRows: 12 });
  expectWholeSpan(rows);
});

test.each([
  ["nothing came", [], []],
  ["rows were not carried", [[100, 106]], [[100, 112]]],
  ["rows were not predicted", [[100, 112]], [[100, 111]]],
] as [string, [number, number][], [number, number][]][])("a span does not end when %s", (_what, carries, predicts) => {
  const rows = open();
  for (const [from, to] of carries) {
    rows.carry(carried(from, to), { from: 0, to: to - from, row: from });
  }
  for (const [from, to] of predicts) {
    rows.predict(predictions(from, to), { rowStart: from, rowCount: to - from, packedRows: to - from });
  }
  expect(() => rows.finish(12)).toThrow(/^row 1\d\d was not carried or not predicted$/);
});

test("a span does not end when a batch came twice in the place of another", () => {
  const rows = open();
  rows.carry(carried(100, 112), { from: 0, to: 12, row: 100 });
  const predict = (from: number): void => {
    rows.predict(predictions(from, from + 4), { rowStart: from, rowCount: 4, packedRows: 4 });
  };
  predict(104);
  expect(() => {
    predict(104);
  }).toThrow(/came twice/);
  expect(() => {
    predict(102);
  }).toThrow(/came twice/);
  expect(() => {
    rows.carry(carried(100, 101), { from: 0, to: 1, row: 100 });
  }).toThrow("row 100 came where row 112 was due");
});

test("a span does not end when rows are carried out of order, or some are left out", () => {
  const rows = open();
  rows.carry(carried(100, 104), { from: 0, to: 4, row: 100 });
  for (const row of [103, 105, 100]) {
    expect(() => {
      rows.carry(carried(row, row + 2), { from: 0, to: 2, row });
    }).toThrow(`row ${row} came where row 104 was due`);
  }
});

test("a span does not end when a record batch lacks a carried column", () => {
  expect(() => {
    open().carry({ rowCount: 2, inputs: [], carried: [] }, { from: 0, to: 2, row: 100 });
  }).toThrow("a record batch carries 0 columns, expected 1");
});

test("a span does not end when rows of another span are carried into it", () => {
  expect(() => open().carry(carried(110, 114), { from: 0, to: 4, row: 110 })).toThrow(RangeError);
  expect(() => open().carry(carried(98, 101), { from: 0, to: 3, row: 98 })).toThrow(RangeError);
});

const predictWith = (name: string, tensor: Tensor | undefined): void => {
  const tensors = predictions(100, 104);
  tensors.delete(name);
  if (tensor !== undefined) {
    tensors.set(name, tensor);
  }
  open().predict(tensors, { rowStart: 100, rowCount: 4, packedRows: 4 });
};

describe("a tensor that is not what the signature says", () => {
  test.each([
    ["one row for the whole batch", "score", float64(1, 1)],
    ["too few rows", "score", float64(3, 1)],
    ["too many rows", "score", float64(5, 1)],
    ["a scalar", "score", float64()],
    ["several values a row where one was bound", "score", float64(4, 2)],
    ["three dimensions", "score", float64(4, 1, 1)],
    ["no row, transposed", "score", float64(1, 4)],
    ["no such element", "p", float32(4, 2)],
    ["no elements at all", "p", float32(4, 0)],
    ["another type", "score", float32(4, 1)],
  ])("a tensor that is not what the signature says is refused: %s", (_what, name, tensor) => {
    expect(refusal(() => predictWith(name, tensor))).toMatch(
      /^64 CONTRACT\nrunning the model: output `(score|p)` came as float\d+ \[[\d,]*\] for a batch of 4 rows/,
    );
  });

  test("an output of another shape is refused with its shape", () => {
    expect(refusal(() => predictWith("score", float64(4, 2)))).toMatchInlineSnapshot(`
      "64 CONTRACT
      running the model: output \`score\` came as float64 [4,2] for a batch of 4 rows
      hint: each output must hold one row for each row of the batch, as its signature says"
    `);
  });

  test("a missing output tensor of the engine is a bug", () => {
    expect(() => predictWith("score", undefined)).toThrow("the engine gave no tensor score");
  });
});

test.each([
  ["NaN", Number.NaN],
  ["Infinity", Number.POSITIVE_INFINITY],
])("a prediction that is not finite is named with the run's row: %s", (shown, value) => {
  const tensors = predictions(104, 108);
  const { data } = tensors.get("p") as { data: Float32Array };
  data[2 * 3 + 2] = value;
  expect(() => open().predict(tensors, { rowStart: 104, rowCount: 4, packedRows: 4 })).toThrow(
    `prediction: p2 of row 106 is ${shown}`,
  );
});

test("a value that is not finite does not count in padding rows or in elements that the job does not select", () => {
  open().predict(predictions(104, 108, 32), { rowStart: 104, rowCount: 4, packedRows: 32 });
});

test("a rejected row is left out of every column, with any other faults", () => {
  const rows = open();
  rows.carry(
    carried(100, 112, (row) => row === 105),
    { from: 0, to: 12, row: 100 },
  );
  rows.reject(100);
  rows.predict(predictions(100, 112), { rowStart: 100, rowCount: 12, packedRows: 12 });
  rows.reject(107);
  rows.reject(108);
  rows.reject(107);
  const kept = [101, 102, 103, 104, 105, 106, 109, 110, 111];
  const { rowCount, columns } = rows.finish(12);
  expect(rowCount).toBe(kept.length);
  expect(columns.map(({ column }) => Array.from<number | bigint>((column as FixedColumn).data))).toEqual([
    kept.map((row) => 2n ** 53n + BigInt(row)),
    kept.map(BigInt),
    kept.map((row) => row / 3),
    kept,
  ]);
  expect([...(columns[0]?.column.valid ?? [])]).toEqual(kept.map((row) => (row === 105 ? 0 : 1)));
});

test("a rejected row must still be carried and predicted", () => {
  const rows = open();
  rows.carry(carried(100, 112), { from: 0, to: 12, row: 100 });
  rows.predict(predictions(101, 112), { rowStart: 101, rowCount: 11, packedRows: 11 });
  rows.reject(100);
  expect(() => rows.finish(12)).toThrow("row 100 was not carried or not predicted");
});

test("a fault of a rejected row is not reported again", () => {
  const rows = open();
  const tensors = predictions(104, 108);
  (tensors.get("score") as { data: Float64Array }).data[1] = Number.NaN;
  rows.reject(105);
  rows.predict(tensors, { rowStart: 104, rowCount: 4, packedRows: 4 });
});
