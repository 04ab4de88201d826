import { describe, expect, test } from "vitest";
import type { InputBinding } from "#src/models/binding/contract.js";
import { areSurelyFinite } from "#src/flow/pack/input-target.js";
import { blankInputs, createPacker, type FeatureBatch, sliceBatch, sliceRows } from "#src/flow/pack/packer.js";
import { repeatRows, rowCountOf, sliceColumn } from "#src/columns/columns.js";
import { decodeTexts, numericTensorTypes, tensorElement, toFloat16Bits } from "#src/columns/tensor.js";
import type { BytesColumn, Matrix } from "#src/columns/types.js";
import { allocate } from "#src/columns/values.js";
import { dataOf, emptyContract, matrix, matrixBinding, pack, ref, textColumn } from "../../support/batches.js";

const text: InputBinding = { kind: "text", input: "place", rank: 2, column: ref("city", "utf8") };

function numbers(dtype: (typeof numericTensorTypes)[number], values: readonly number[], width: number): Matrix {
  const element = dtype === "float16" ? "float32" : tensorElement(dtype);
  const data = allocate(element, values.length);
  values.forEach((value, index) => {
    data[index] = (data instanceof BigInt64Array || data instanceof BigUint64Array ? BigInt(value) : value) as never;
  });
  return { kind: "matrix", width, data, valid: undefined };
}

describe("a matrix input", () => {
  test.each(numericTensorTypes)("a matrix input of %s keeps its values, padded with zeros", (dtype) => {
    const binding = matrixBinding(["a", "b"], dtype);
    const { batches } = pack({ inputs: [binding], fixedBatchRows: 3 }, [numbers(dtype, [1, 0, 1, 1], 2)], { rows: 2 });
    const [input] = batches[0]?.inputs ?? [];
    expect(input).toMatchObject({ name: "features", dtype, dims: [3, 2] });
    expect(input?.data.constructor).toBe(allocate(tensorElement(dtype), 0).constructor);
    const one = dtype === "float16" ? 0x3c00 : 1;
    expect(dataOf(input).map(Number)).toEqual([one, 0, one, one, 0, 0]);
  });

  test("a matrix input of one dimension has a shape of one dimension", () => {
    const binding: InputBinding = { kind: "matrix", input: "age", dtype: "float32", rank: 1, columns: [ref("age")] };
    const { batches } = pack({ inputs: [binding] }, [matrix([[1], [2]])], { rows: 2 });
    expect(batches[0]?.inputs[0]?.dims).toEqual([2]);
  });

  test("float16 is rounded after infinity and NaN are reported", () => {
    const values = [
      [0.1, 1 / 3],
      [Number.NaN, 65504],
      [1, Number.NEGATIVE_INFINITY],
    ];
    const { batches, faults } = pack({ inputs: [matrixBinding(["a", "b"], "float16")] }, [matrix(values)], { rows: 3 });
    expect(dataOf(batches[0]?.inputs[0])).toEqual([toFloat16Bits(0.1), toFloat16Bits(1 / 3), 0, 0, 0, 0]);
    expect(faults.map(({ row, column, reason }) => [row, column, reason])).toEqual([
      [101, "a", "not_finite"],
      [102, "b", "not_finite"],
    ]);
  });

  test("a matrix input of float64 holds values whose sum is infinite", () => {
    const big = Number.MAX_VALUE;
    const { faults } = pack({ inputs: [matrixBinding(["a", "b"], "float64")] }, [numbers("float64", [big, big], 2)], {
      rows: 1,
    });
    expect(faults).toEqual([]);
  });
});

describe("rows that cannot be scored", () => {
  test("bad values are reported, and scored on zeros where the run goes on", () => {
    const rows = [
      [1, 2],
      [null, 3],
      [4, Number.NaN],
      [5, 6],
      [Number.NaN, null],
    ];
    const { batches, faults } = pack({ inputs: [matrixBinding(["a", "b"])] }, [matrix(rows)], {
      rows: 5,
      batchRows: 4,
    });
    expect(batches.flatMap(({ inputs }) => dataOf(inputs[0]))).toEqual([1, 2, 0, 0, 0, 0, 5, 6, 0, 0]);
    expect(faults).toContainEqual({ reason: "missing", column: "a", row: 101, value: undefined });
    expect(faults).toContainEqual({ reason: "not_finite", column: "b", row: 102, value: undefined });
    expect(faults).toContainEqual({ reason: "missing", column: "b", row: 104, value: undefined });
    expect(new Set(faults.map(({ row }) => row))).toEqual(new Set([101, 102, 104]));
  });

  test.each(numericTensorTypes)("NULLs are reported in inputs of type %s", (dtype) => {
    const given = { ...numbers(dtype, [1, 1, 1], 1), valid: Uint8Array.of(1, 0, 1) };
    const { batches, faults } = pack({ inputs: [matrixBinding(["a"], dtype)] }, [given], { rows: 3 });
    expect(faults).toEqual([{ reason: "missing", column: "a", row: 101, value: undefined }]);
    expect(Number(dataOf(batches[0]?.inputs[0])[1])).toBe(0);
  });

  test("bad values are reported for each input", () => {
    const other: InputBinding = {
      kind: "matrix",
      input: "mask",
      dtype: "bool",
      rank: 1,
      columns: [ref("flag", "bool")],
    };
    const flags = { ...numbers("bool", [1, 0], 1), valid: Uint8Array.of(0, 1) };
    const inputs = [matrix([[1], [null]]), flags, textColumn(["x", null])];
    const { faults } = pack({ inputs: [matrixBinding(["a"]), other, text] }, inputs, { rows: 2 });
    expect(faults.map(({ row, column }) => [row, column])).toEqual([
      [101, "a"],
      [100, "flag"],
      [101, "city"],
    ]);
  });

  test("rows with NaN can be scored if missing values are NaN, and rows with infinity cannot", () => {
    const rows = [
      [Number.NaN, 1],
      [Number.POSITIVE_INFINITY, Number.NaN],
      [2, Number.NaN],
    ];
    const { batches, faults } = pack({ inputs: [matrixBinding(["a", "b"])], missing: "nan" }, [matrix(rows)], {
      rows: 3,
    });
    expect(faults.map(({ row, column }) => [row, column])).toEqual([[101, "a"]]);
    expect(dataOf(batches[0]?.inputs[0])).toEqual([Number.NaN, 1, 0, 0, 2, Number.NaN]);
  });
});

describe("a list input", () => {
  const vector: InputBinding = { kind: "list", input: "v", dtype: "float32", width: 3, column: ref("embedding") };

  test("a list input is a matrix whose faults name the column", () => {
    const rows = [
      [1, 2, 3],
      [null, null, null],
      [4, Number.NaN, 6],
    ];
    const { batches, faults } = pack({ inputs: [vector] }, [matrix(rows)], { rows: 3 });
    expect(batches[0]?.inputs[0]).toMatchObject({ name: "v", dtype: "float32", dims: [3, 3] });
    expect(dataOf(batches[0]?.inputs[0])).toEqual([1, 2, 3, 0, 0, 0, 0, 0, 0]);
    expect(faults.map(({ reason, row, column }) => [reason, row, column])).toEqual([
      ["missing", 101, "embedding"],
      ["not_finite", 102, "embedding"],
    ]);
  });

  test("a matrix of another width is reported as a bug", () => {
    expect(() => pack({ inputs: [vector] }, [matrix([[1, 2]])], { rows: 1 })).toThrow("input v takes 3 numbers a row");
  });
});

const texts = ["", "Zürich", "日本", "a\u0001b", "\ufeffbom", "x".repeat(1000), "👩‍👧"];

test("a text input keeps each text as it is, a byte order mark too", () => {
  const { batches } = pack({ inputs: [text] }, [textColumn(texts)], { rows: texts.length, batchRows: 3 });
  expect(batches.flatMap(({ inputs }) => dataOf(inputs[0]))).toEqual(texts);
  expect(batches.map(({ inputs }) => inputs[0]?.dims)).toEqual([
    [3, 1],
    [3, 1],
    [1, 1],
  ]);
  expect(batches[0]?.inputs[0]).toMatchObject({ name: "place", dtype: "string" });
});

test("a text input of one dimension has a shape of one dimension", () => {
  const { batches } = pack({ inputs: [{ ...text, rank: 1 }] }, [textColumn(["a"])], { rows: 1 });
  expect(batches[0]?.inputs[0]?.dims).toEqual([1]);
});

test("a text input is padded with empty texts, also after a batch with texts there", () => {
  const { batches } = pack({ inputs: [text], fixedBatchRows: 2 }, [textColumn(["a", "b", "c"])], { rows: 3 });
  expect(batches.map(({ inputs }) => dataOf(inputs[0]))).toEqual([
    ["a", "b"],
    ["c", ""],
  ]);
});

test("a NULL text is reported, and scored as an empty text", () => {
  const { batches, faults } = pack({ inputs: [text] }, [textColumn(["a", null, "c"])], { rows: 3 });
  expect(faults).toEqual([{ reason: "missing", column: "city", row: 101, value: undefined }]);
  expect(dataOf(batches[0]?.inputs[0])).toEqual(["a", "", "c"]);
});

test("every NULL text is reported with its row in batches of any size", () => {
  const column = textColumn([null, "b", "c", null, null, "f", null]);
  const { batches, faults } = pack({ inputs: [text] }, [column], { rows: 7, batchRows: 3 });
  expect(faults.map(({ row }) => row)).toEqual([100, 103, 104, 106]);
  expect(batches.map(({ inputs }) => dataOf(inputs[0]))).toEqual([["", "b", "c"], ["", "", "f"], [""]]);
});

test("a text input refuses a text with a zero byte, where the engine would cut it", () => {
  const column = textColumn(["a", "b\u0000", null, "\u0000", "", "\u0000c", "d"]);
  const { batches, faults } = pack({ inputs: [text] }, [column], { rows: 7, batchRows: 4 });
  expect(faults.map(({ row, reason }) => [row, reason])).toEqual([101, 102, 103, 105].map((row) => [row, "missing"]));
  expect(batches.map(({ inputs }) => dataOf(inputs[0]))).toEqual([
    ["a", "", "", ""],
    ["", "", "d"],
  ]);
});

const words = textColumn(["never", "a", "b", "z\u0000"]);

function repeated(...entries: number[]): BytesColumn {
  const taking = { indices: Uint32Array.from(entries), valid: undefined, limit: 100 };
  return repeatRows("utf8", words, taking) as BytesColumn; // as its dictionary is
}

test("texts of a dictionary come as the entries that occur, and which one each text is", () => {
  const { batches } = pack({ inputs: [text] }, [repeated(2, 1, 2, 2, 1)], { rows: 5, batchRows: 3 });
  const numbered = batches.flatMap(({ inputs }) =>
    inputs.flatMap((input) =>
      input.dtype === "string" && input.numbered !== undefined
        ? [[decodeTexts(input.numbered.entries), [...input.numbered.indices]]]
        : [],
    ),
  );
  expect(numbered).toEqual([
    [
      ["b", "a"],
      [0n, 1n, 0n],
    ],
    [
      ["b", "a"],
      [0n, 1n],
    ],
  ]);
  expect(batches.flatMap(({ inputs }) => dataOf(inputs[0]))).toEqual(["b", "a", "b", "b", "a"]);
});

test("rows of a batch come from several dictionaries and from none, and are padded", () => {
  const packer = createPacker({
    contract: { ...emptyContract, inputs: [text], fixedBatchRows: 7 },
    batchRows: () => 7,
    onFault() {},
  });
  const pieces = [repeated(2, 1), textColumn(["x"]), repeated(1), sliceColumn(repeated(1, 2, 1, 1), 1, 3)];
  let row = 0;
  for (const piece of pieces) {
    const rowCount = rowCountOf(piece);
    const record = { rowCount, inputs: [piece as BytesColumn], carried: [] };
    expect([...packer.push(record, { from: 0, to: rowCount, row })]).toEqual([]);
    row += rowCount;
  }
  const [input] = packer.flush()?.inputs ?? [];
  expect(dataOf(input)).toEqual(["b", "a", "x", "a", "b", "a", ""]);
  expect(input).not.toHaveProperty("numbered");
});

test("texts of a dictionary are padded to a fixed number of rows", () => {
  const { batches } = pack({ inputs: [text], fixedBatchRows: 4 }, [repeated(2, 1, 2)], { rows: 3 });
  expect(batches.map(({ inputs }) => dataOf(inputs[0]))).toEqual([["b", "a", "b", ""]]);
});

test("an entry with a zero byte is refused in the rows that have it, and only if one has it", () => {
  const [without, having] = [repeated(1, 2), repeated(1, 3, 2)].map((column) =>
    pack({ inputs: [text] }, [column], { rows: rowCountOf(column) }),
  );
  expect(without?.faults).toEqual([]);
  expect(having?.faults.map(({ row, reason }) => [row, reason])).toEqual([[101, "missing"]]);
  expect(dataOf(having?.batches[0]?.inputs[0])).toEqual(["a", "", "b"]);
});

test("a slice of a batch has its own texts, not the numbers of the whole", () => {
  const { batches } = pack({ inputs: [text] }, [repeated(2, 1, 1)], { rows: 3 });
  const [input] = batches[0]?.inputs ?? [];
  const part = input && sliceRows(input, 1, 3);
  expect(dataOf(part)).toEqual(["a", "a"]);
  expect(part).toHaveProperty("numbered", undefined);
});

test("texts of a dictionary keep its codes unless one is NULL, and may not have more bytes than the limit", () => {
  const taking = { indices: Uint32Array.of(1, 0), valid: undefined, limit: 6 };
  expect(repeatRows("utf8", words, taking)).toHaveProperty("codes.indices", taking.indices);
  expect(repeatRows("utf8", words, { ...taking, valid: Uint8Array.of(1, 0) })).not.toHaveProperty("codes");
  expect(() => repeatRows("utf8", words, { ...taking, limit: 5 })).toThrow(/6 bytes of 2 rows; at most 5/);
  expect(() => repeatRows("utf8", words, { ...taking, indices: Uint32Array.of(4) })).toThrow(/index 4/);
});

test("numbers where texts are due are reported as a bug", () => {
  expect(() => pack({ inputs: [text] }, [matrix([[1]])], { rows: 1 })).toThrow("input place takes texts");
});

const contract = { inputs: [matrixBinding(["a", "b"]), text] };
const rows = [
  [1, 2],
  [3, 4],
  [5, 6],
  [7, 8],
];
const whole = (fixedBatchRows: number | null): FeatureBatch => {
  const { batches } = pack({ ...contract, fixedBatchRows }, [matrix(rows), textColumn(["p", "q", "r", "s"])], {
    rows: 4,
  });
  return batches[0] as FeatureBatch;
};

test("a slice of a batch holds those rows under the run's numbers, in memory of its own", () => {
  const batch = whole(null);
  const part = sliceBatch(batch, batch.inputs, { from: 1, to: 3, fixedBatchRows: null });
  expect(part).toMatchObject({ rowStart: 101, rowCount: 2, packedRows: 2 });
  expect(part.inputs.map(({ dims }) => dims)).toEqual([
    [2, 2],
    [2, 1],
  ]);
  expect(part.inputs.map(dataOf)).toEqual([
    [3, 4, 5, 6],
    ["q", "r"],
  ]);
  (batch.inputs[0] as { data: Float32Array }).data.fill(9);
  expect(dataOf(part.inputs[0])).toEqual([3, 4, 5, 6]);
});

test("a slice of a batch is padded where the model's batch is fixed", () => {
  const batch = whole(6);
  const part = sliceBatch(batch, batch.inputs, { from: 2, to: 3, fixedBatchRows: 6 });
  expect(part).toMatchObject({ rowStart: 102, rowCount: 1, packedRows: 6 });
  expect(part.inputs.map(dataOf)).toEqual([
    [5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ["r", "", "", "", "", ""],
  ]);
});

test("blank inputs are zeros and empty texts of every input", () => {
  const inputs = [...numericTensorTypes.map((dtype) => matrixBinding(["a", "b"], dtype)), text];
  const blank = blankInputs({ ...emptyContract, inputs }, 2);
  expect(blank.map(({ dtype }) => dtype)).toEqual([...numericTensorTypes, "string"]);
  expect(
    blank.every((tensor) => tensor.dtype === "string" || [...tensor.data].every((value) => Number(value) === 0)),
  ).toBe(true);
  expect(dataOf(blank.at(-1))).toEqual(["", ""]);
});

describe.for([
  ["float32", Float32Array],
  ["float64", Float64Array],
] as const)("whether all of some %s values are finite", ([, Numbers]) => {
  test("a value that is not finite is detected at every position, with any other values", () => {
    for (let length = 0; length <= 17; length += 1) {
      const values = new Numbers(length).fill(-1e30);
      expect(areSurelyFinite(values)).toBe(true);
      for (let index = 0; index < length; index += 1) {
        for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
          const others = values.slice();
          others[index] = bad;
          expect(areSurelyFinite(others), `${bad} at ${index} of ${length}`).toBe(false);
        }
      }
    }
  });
});
