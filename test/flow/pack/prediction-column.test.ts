import { describe, expect, test } from "vitest";
import { createPredictionColumn } from "#src/flow/pack/prediction-column.js";
import {
  encodeTexts,
  numericTensorTypes,
  type Tensor,
  tensorElement,
  columnTypeOfTensor,
  toFloat16Bits,
} from "#src/columns/tensor.js";
import type { Column, ColumnType } from "#src/columns/types.js";
import { allocate } from "#src/columns/values.js";

function plain(column: Column): unknown[] {
  if (column.kind === "fixed") {
    return [...column.data];
  }
  if (column.kind === "struct") {
    throw new Error("no model predicts structs");
  }
  const { offsets } = column;
  const child = column.kind === "list" ? plain(column.child) : undefined;
  return Array.from({ length: offsets.length - 1 }, (_, row) =>
    column.kind === "bytes"
      ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(column.bytes.subarray(offsets[row], offsets[row + 1]))
      : child?.slice(offsets[row], offsets[row + 1]),
  );
}

const told: [number, number][] = [];
const tell = (row: number, value: number): void => {
  told.push([row, value]);
};
const list = (element: ColumnType): ColumnType => ({ kind: "list", element });
const floats = (values: readonly number[], ...dims: number[]): Tensor => ({
  dtype: "float32",
  dims,
  data: Float32Array.from(values),
});
const strings = (data: readonly string[], ...dims: number[]): Tensor => ({
  dtype: "string",
  dims,
  data: encodeTexts(data),
});

describe("numbers", () => {
  test.each(numericTensorTypes)("numbers of %s are stored unchanged, in any order of arrival", (dtype) => {
    const tensor = (first: number): Tensor => {
      const data = allocate(tensorElement(dtype), 2);
      const wide = data instanceof BigInt64Array || data instanceof BigUint64Array;
      [first % 2, 1].forEach((value, index) => {
        data[index] = (wide ? BigInt(value) : dtype === "float16" ? toFloat16Bits(value) : value) as never;
      });
      return { dtype, dims: [2], data };
    };
    const column = createPredictionColumn(columnTypeOfTensor(dtype), 4);
    column.set(2, 2, { tensor: tensor(0), width: 1, element: undefined }, tell);
    column.set(0, 2, { tensor: tensor(1), width: 1, element: undefined }, tell);
    expect(plain(column.finish(4)).map(Number)).toEqual([1, 1, 0, 1]);
  });

  test("numbers of float16 are widened exactly", () => {
    const bits = [0x2e66, 0x3555, 0xc248, 0x0001];
    const tensor: Tensor = { dtype: "float16", dims: [2, 2], data: Uint16Array.from(bits) };
    const second = createPredictionColumn("float32", 2);
    second.set(0, 2, { tensor, width: 2, element: 1 }, tell);
    expect(plain(second.finish(2))).toEqual([0.333251953125, 2 ** -24]);
    const both = createPredictionColumn(list("float32"), 2);
    both.set(0, 2, { tensor, width: 2, element: undefined }, tell);
    expect(plain(both.finish(2))).toEqual([
      [0.0999755859375, 0.333251953125],
      [-3.140625, 2 ** -24],
    ]);
  });

  test("predictions of another type than the contract binds are reported as a bug", () => {
    const column = createPredictionColumn("float64", 1);
    expect(() => {
      column.set(0, 1, { tensor: floats([1], 1), width: 1, element: undefined }, tell);
    }).toThrow('expected "float64", found a tensor of float32');
    expect(() => {
      column.set(0, 1, { tensor: strings(["1"], 1), width: 1, element: undefined }, tell);
    }).toThrow("found a tensor of string");
  });
});

const toldOf = (type: ColumnType, tensor: Tensor, width: number, element?: number): [number, number][] => {
  told.length = 0;
  createPredictionColumn(type, 10).set(4, 3, { tensor, width, element }, tell);
  return [...told];
};
const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

test("values that are not finite are reported one by one, with the row of the span", () => {
  expect(toldOf("float32", floats([inf, 1, nan, nan], 4), 1)).toEqual([
    [4, inf],
    [6, nan],
  ]);
});

test("values that are not finite are reported once for a vector", () => {
  expect(toldOf(list("float32"), floats([1, nan, inf, 1, 1, 1, -inf, nan, nan, nan], 5, 2), 2)).toEqual([
    [4, nan],
    [5, inf],
  ]);
});

test("values that are not finite are not reported for elements that are not selected, nor for padding", () => {
  expect(toldOf("float32", floats([nan, 1, inf, 2, nan, 3, nan, nan], 4, 2), 2, 1)).toEqual([]);
});

test("vectors are stored as lists, in any order of arrival", () => {
  const column = createPredictionColumn(list("float32"), 3);
  column.set(2, 1, { tensor: floats([5, 6, 0, 0], 2, 2), width: 2, element: undefined }, tell);
  column.set(0, 2, { tensor: floats([1, 2, 3, 4], 2, 2), width: 2, element: undefined }, tell);
  expect(plain(column.finish(3))).toEqual([
    [1, 2],
    [3, 4],
    [5, 6],
  ]);
});

test("vectors have one length in all batches", () => {
  const column = createPredictionColumn(list("float32"), 3);
  column.set(0, 1, { tensor: floats([1, 2], 1, 2), width: 2, element: undefined }, tell);
  expect(() => {
    column.set(1, 1, { tensor: floats([1, 2, 3], 1, 3), width: 3, element: undefined }, tell);
  }).toThrow(
    expect.objectContaining({ code: "CONTRACT", message: expect.stringContaining("3 values a row") as string }),
  );
});

test("vectors may be empty, or none at all", () => {
  const empty = createPredictionColumn(list("float32"), 2);
  empty.set(0, 2, { tensor: floats([], 2, 0), width: 0, element: undefined }, tell);
  expect(plain(empty.finish(2))).toEqual([[], []]);
  expect(plain(createPredictionColumn(list("utf8"), 0).finish(0))).toEqual([]);
});

test("vectors of strings are lists of texts", () => {
  const column = createPredictionColumn(list("utf8"), 2);
  column.set(1, 1, { tensor: strings(["c", "d", "", ""], 2, 2), width: 2, element: undefined }, tell);
  column.set(0, 1, { tensor: strings(["a", "ü"], 1, 2), width: 2, element: undefined }, tell);
  expect(plain(column.finish(2))).toEqual([
    ["a", "ü"],
    ["c", "d"],
  ]);
});

describe("texts", () => {
  const long = "日本語".repeat(100);
  const texts = ["", "a", "\ufeffb", long, "👩‍👧", "c\u0000d"];

  test("texts are UTF-8, of any length", () => {
    const column = createPredictionColumn("utf8", texts.length);
    column.set(0, texts.length, { tensor: strings(texts, texts.length, 1), width: 1, element: undefined }, tell);
    expect(plain(column.finish(texts.length))).toEqual(texts);
  });

  test("predictions are at the places of their rows, in any order of batches; rows without a prediction are empty", () => {
    const column = createPredictionColumn("utf8", 7);
    column.set(4, 2, { tensor: strings(["e", "é", "padding"], 3), width: 1, element: undefined }, tell);
    column.set(1, 2, { tensor: strings(["b", "c"], 2, 1), width: 1, element: undefined }, tell);
    expect(plain(column.finish(7))).toEqual(["", "b", "c", "", "e", "é", ""]);
  });

  test("texts are picked by element", () => {
    const column = createPredictionColumn("utf8", 3);
    column.set(0, 3, { tensor: strings(texts, 3, 2), width: 2, element: 1 }, tell);
    expect(plain(column.finish(3))).toEqual(["a", long, "c\u0000d"]);
  });

  test("numbers where texts are due are reported as a bug", () => {
    expect(() => {
      createPredictionColumn("utf8", 1).set(0, 1, { tensor: floats([1], 1), width: 1, element: undefined }, tell);
    }).toThrow("expected strings, found a tensor of float32");
  });
});
