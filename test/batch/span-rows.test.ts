import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Contract } from "#src/batch/contract.js";
import { createSpanRows, type SpanRows } from "#src/batch/span-rows.js";
import type { RecordBatch, Tensor } from "#src/batch/types.js";
import { matrixBinding } from "../support/batches.js";
import { refusal } from "../support/spec.js";

const contract: Contract = {
  inputs: [matrixBinding(["a"])],
  passthrough: [{ column: "id", sourceType: "BIGINT", type: "int64" }],
  outputs: [
    { kind: "scalar", column: "label", tensor: "label", type: "int64" },
    { kind: "scalar", column: "score", tensor: "score", type: "float64" },
    { kind: "element", column: "p2", tensor: "p", element: 2, type: "float32" },
  ],
  fixedBatchRows: null,
};
const span = { rowStart: 100, rowEnd: 112 };

function open(given: Contract = contract): SpanRows {
  return createSpanRows({
    contract: given,
    span,
    onNotFinite: (column, row, value) => {
      throw new Error(`${column} of row ${row} is ${value}`);
    },
  });
}

const ids = (from: number, to: number): bigint[] =>
  Array.from({ length: to - from }, (_, index) => 2n ** 53n + BigInt(from + index));

/** Rows [from, to) of the run with their ids; NULL where `isNull` says so. */
function carried(from: number, to: number, isNull: (row: number) => boolean = () => false): RecordBatch {
  const rows = Array.from({ length: to - from }, (_, index) => from + index);
  const valid = rows.some(isNull) ? Uint8Array.from(rows, (row) => (isNull(row) ? 0 : 1)) : undefined;
  return {
    rowCount: rows.length,
    columns: [
      { type: "float32", width: 1, data: new Float32Array(rows.length), valid: undefined },
      { type: "int64", width: 1, data: BigInt64Array.from(ids(from, to)), valid },
    ],
  };
}

/** What the model says of rows [from, to), padded to `packedRows`. */
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

const wholeSpan = Array.from({ length: 12 }, (_, index) => 100 + index);

function expectWholeSpan(rows: SpanRows): void {
  const { rowCount, columns } = rows.finish();
  expect(rowCount).toBe(12);
  expect(columns.map(({ name, type, width }) => [name, type, width])).toEqual([
    ["id", "int64", 1],
    ["label", "int64", 1],
    ["score", "float64", 1],
    ["p2", "float32", 1],
  ]);
  expect(columns.map(({ data }) => Array.from<number | bigint>(data))).toEqual([
    ids(100, 112),
    wholeSpan.map(BigInt),
    wholeSpan.map((row) => row / 3),
    wholeSpan,
  ]);
}

/** [100, 112) cut at these rows. */
const pieces = (at: readonly number[]): [number, number][] => {
  const ends = [100, ...at.toSorted((a, b) => a - b), 112];
  return ends.slice(1).map((end, index): [number, number] => [ends[index] as number, end]);
};

describe("the rows of a span", () => {
  test("come out in order, in whatever order and cut they were carried and predicted", () => {
    const cuts = fc.uniqueArray(fc.integer({ min: 101, max: 111 }));
    fc.assert(
      fc.property(cuts, cuts, fc.infiniteStream(fc.nat()), (carryCuts, predictCuts, noise) => {
        const rows = open();
        const shuffled = <T>(values: readonly T[]): T[] =>
          values
            .map((value) => ({ value, key: noise.next().value as number }))
            .toSorted((a, b) => a.key - b.key)
            .map(({ value }) => value);
        const steps = [
          ...pieces(carryCuts).map(
            ([from, to]) =>
              () =>
                rows.carry(carried(from, to), { from: 0, to: to - from, row: from }),
          ),
          ...pieces(predictCuts).map(
            ([from, to]) =>
              () =>
                rows.predict(predictions(from, to, to - from + 2), {
                  rowStart: from,
                  rowCount: to - from,
                  packedRows: to - from + 2,
                }),
          ),
        ];
        for (const step of shuffled(steps)) {
          step();
        }
        expectWholeSpan(rows);
      }),
    );
  });

  test("are taken out of the middle of a record batch", () => {
    const rows = open();
    rows.carry(carried(95, 120), { from: 5, to: 17, row: 100 });
    rows.predict(predictions(100, 112), { rowStart: 100, rowCount: 12, packedRows: 12 });
    expectWholeSpan(rows);
  });

  test("keep the NULLs of carried columns, also when only one piece had any", () => {
    const rows = open();
    rows.carry(carried(100, 104), { from: 0, to: 4, row: 100 });
    rows.carry(
      carried(103, 110, (row) => row === 105),
      { from: 1, to: 7, row: 104 },
    );
    rows.carry(carried(110, 112), { from: 0, to: 2, row: 110 });
    rows.predict(predictions(100, 112), { rowStart: 100, rowCount: 12, packedRows: 12 });
    const [id, label] = rows.finish().columns;
    expect([...(id?.valid ?? [])]).toEqual(wholeSpan.map((row) => (row === 105 ? 0 : 1)));
    expect(label?.valid).toBeUndefined();
  });

  test("do not hold on to the memory of the record batch", () => {
    const rows = open();
    const batch = carried(100, 112);
    rows.carry(batch, { from: 0, to: 12, row: 100 });
    batch.columns[1]?.data.fill(0n as never);
    rows.predict(predictions(100, 112), { rowStart: 100, rowCount: 12, packedRows: 12 });
    expectWholeSpan(rows);
  });
});

describe("a span does not end", () => {
  test.each([
    ["nothing came", [], []],
    ["rows were not carried", [[100, 106]], [[100, 112]]],
    ["rows were not predicted", [[100, 112]], [[100, 111]]],
  ] as [string, [number, number][], [number, number][]][])("when %s", (_what, carries, predicts) => {
    const rows = open();
    for (const [from, to] of carries) {
      rows.carry(carried(from, to), { from: 0, to: to - from, row: from });
    }
    for (const [from, to] of predicts) {
      rows.predict(predictions(from, to), { rowStart: from, rowCount: to - from, packedRows: to - from });
    }
    expect(() => rows.finish()).toThrow(/^row 1\d\d was not carried or not predicted$/);
  });

  test("when a batch came twice in the place of another", () => {
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
    }).toThrow(/came twice/);
  });

  test("when rows of another span are carried into it", () => {
    expect(() => open().carry(carried(110, 114), { from: 0, to: 4, row: 110 })).toThrow(RangeError);
    expect(() => open().carry(carried(98, 101), { from: 0, to: 3, row: 98 })).toThrow(RangeError);
  });
});

const predictWith = (name: string, tensor: Tensor | undefined): void => {
  const tensors = predictions(100, 104);
  tensors.delete(name);
  if (tensor !== undefined) {
    tensors.set(name, tensor);
  }
  open().predict(tensors, { rowStart: 100, rowCount: 4, packedRows: 4 });
};
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
  ])("is refused: %s", (_what, name, tensor) => {
    expect(refusal(() => predictWith(name, tensor))).toMatch(
      /^65 MODEL_FAILED\nrunning the model: output `(score|p)` came as float\d+ \[[\d,]*\] for a batch of 4 rows/,
    );
  });

  test("is told with its shape", () => {
    expect(refusal(() => predictWith("score", float64(4, 2)))).toMatchInlineSnapshot(`
      "65 MODEL_FAILED
      running the model: output \`score\` came as float64 [4,2] for a batch of 4 rows
      hint: each output must hold one row for each row of the batch, as its signature says"
    `);
  });

  test("is a bug when the engine left it out", () => {
    expect(() => predictWith("score", undefined)).toThrow("the engine gave no tensor score");
  });
});

describe("a prediction that is not finite", () => {
  test.each([
    ["NaN", Number.NaN],
    ["Infinity", Number.POSITIVE_INFINITY],
  ])("is named with the run's row: %s", (shown, value) => {
    const tensors = predictions(104, 108);
    const { data } = tensors.get("p") as Tensor;
    data[2 * 3 + 2] = value;
    expect(() => open().predict(tensors, { rowStart: 104, rowCount: 4, packedRows: 4 })).toThrow(
      `p2 of row 106 is ${shown}`,
    );
  });

  test("does not count in the rows of padding, nor in elements that nobody asked for", () => {
    open().predict(predictions(104, 108, 32), { rowStart: 104, rowCount: 4, packedRows: 32 });
  });
});
