import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { rowState, selectRows } from "#src/flow/pack/select-rows.js";
import type { Column, ColumnType, DecodedInput, FixedColumn, Matrix, RecordBatch } from "#src/columns/types.js";
import { allocate, type ElementType } from "#src/columns/values.js";
import { listColumn, matrix, matrixBatch, ref, textColumn } from "../../support/batches.js";

const dropped = rowState.filtered;
const kept = rowState.kept;
/** Kept, though the expression of this index failed on it. */
const failedOn = (expression: number): number => rowState.kept + 1 + expression;
const states = (...given: number[]): Uint16Array => Uint16Array.from(given);
const carrying = (...types: ColumnType[]): { passthrough: { column: string; source: ReturnType<typeof ref> }[] } => ({
  passthrough: types.map((type, index) => ({ column: `c${index}`, source: ref(`c${index}`, type) })),
});
const nothing = carrying();

function matrixRows({ width, data, valid }: Matrix): unknown[] {
  const values = Array.from<number | bigint>(data).map((value, index) => (valid?.[index] === 0 ? null : value));
  return Array.from({ length: values.length / width }, (_, row) => values.slice(row * width, (row + 1) * width));
}

function columnValues(column: Column, rowCount: number): unknown[] {
  return Array.from({ length: rowCount }, (_, row) => (column.valid?.[row] === 0 ? null : valueAt(column, row)));
}

function valueAt(column: Column, row: number): unknown {
  switch (column.kind) {
    case "fixed":
      return Array.from<number | bigint>(column.data).slice(
        row * column.elementsPerValue,
        (row + 1) * column.elementsPerValue,
      );
    case "bytes":
      return Buffer.from(column.bytes.subarray(column.offsets[row], column.offsets[row + 1])).toString("latin1");
    case "list":
      return columnValues(column.child, column.offsets.at(-1) ?? 0).slice(column.offsets[row], column.offsets[row + 1]);
    case "struct":
      return column.children.map((child) => columnValues(child, column.rowCount)[row]);
    default:
      throw new TypeError("an unknown kind of column");
  }
}

const inputRows = (input: DecodedInput, rowCount: number): unknown[] =>
  input.kind === "matrix" ? matrixRows(input) : columnValues(input, rowCount);

const batch = matrixBatch([
  [1, 2],
  [3, null],
  [5, 6],
  [null, 8],
]);

test("if all rows stay, nothing is copied and they are counted", () => {
  const found = selectRows(batch, states(kept, failedOn(0), kept, kept), nothing);
  expect(found.inputs[0]).toBe(batch.inputs[0]);
  expect(found).toMatchObject({ rowCount: 4, selection: { readCount: 4, failed: [{ row: 1, cause: 0 }] } });
  expect([...(found.selection?.indices ?? [])]).toEqual([0, 1, 2, 3]);
});

test("a row that stays says where an expression failed by the number of the expression, not by its place", () => {
  const given = states(dropped, failedOn(3), dropped, failedOn(65_000));
  expect(selectRows(batch, given, nothing).selection?.failed).toEqual([
    { row: 0, cause: 3 },
    { row: 1, cause: 65_000 },
  ]);
});

test("rows that were selected before keep their places and faults, beside the problems that are found then", () => {
  const filtered = selectRows(batch, states(dropped, failedOn(2), kept, failedOn(5)), nothing);
  const found = selectRows(filtered, states(dropped, kept, kept), nothing, new Map([[1, "no JSON"]]));
  expect(found.selection).toEqual({
    readCount: 4,
    indices: Uint32Array.of(2, 3),
    failed: [
      { row: 0, cause: "no JSON" },
      { row: 1, cause: 5 },
    ],
  });
});

test("selecting the rows that stay does not change their batch", () => {
  const before = structuredClone(batch);
  selectRows(batch, states(dropped, kept, dropped, kept), nothing);
  expect(batch).toEqual(before);
});

test("the rows that stay are a copy, because the memory of the batch is reused", () => {
  const given: RecordBatch = {
    rowCount: 3,
    inputs: [matrix([[1], [2], [3]]), textColumn(["a", "b", "c"])],
    carried: [textColumn(["x", "y", "z"])],
  };
  const found = selectRows(given, states(dropped, kept, kept), carrying("utf8"));
  for (const column of [...given.inputs, ...given.carried]) {
    if (column.kind === "bytes") {
      column.bytes.fill(0);
    } else if (column.kind === "matrix") {
      (column.data as Float32Array).fill(0);
    }
  }
  expect(found.inputs.map((input) => inputRows(input, 2))).toEqual([
    [[2], [3]],
    ["b", "c"],
  ]);
  expect(found.carried.map((column) => columnValues(column, 2))).toEqual([["y", "z"]]);
});

test("the rows that stay are not selected from more columns than the contract carries", () => {
  expect(() => selectRows({ ...batch, carried: [textColumn(["a"])] }, states(dropped), nothing)).toThrow(
    "a record batch carries more columns than the contract",
  );
});

const elements = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split(
  " ",
) as readonly ElementType[];

function numbers(element: ElementType, length: number): FixedColumn["data"] {
  const data = allocate(element, length);
  for (let index = 0; index < length; index += 1) {
    data[index] = (element.endsWith("int64") ? BigInt(index + 1) : index + 1) as never;
  }
  return data;
}

describe.each(elements)("inputs of %s", (element) => {
  test.each([1, 2, 7])("%i wide keep their values, their element and their NULLs", (width) => {
    const valid = Uint8Array.from({ length: 5 * width }, (_, index) => (index % 3 === 0 ? 0 : 1));
    for (const given of [undefined, valid]) {
      const input: Matrix = { kind: "matrix", width, data: numbers(element, 5 * width), valid: given };
      const found = selectRows(
        { rowCount: 5, inputs: [input], carried: [] },
        states(kept, dropped, kept, kept, dropped),
        nothing,
      );
      const [one] = found.inputs;
      expect(one).toMatchObject({ kind: "matrix", width });
      expect((one as Matrix).data.constructor).toBe(input.data.constructor);
      expect((one as Matrix).valid === undefined).toBe(given === undefined);
      expect(inputRows(one as Matrix, 3)).toEqual([0, 2, 3].map((row) => inputRows(input, 5)[row]));
    }
  });
});

const valid = (flags: readonly boolean[]): Uint8Array => Uint8Array.from(flags, (flag) => (flag ? 1 : 0));

interface Layouted {
  readonly type: ColumnType;
  readonly column: Column;
}

function layouts(texts: readonly (string | null)[]): Layouted[] {
  const rows = texts.length;
  const flags = texts.map((text) => text !== null);
  const lengths = texts.map((text) => (text === null ? 0 : text.length % 3));
  const offsets = Uint32Array.from([
    0,
    ...lengths.map((_, row) => lengths.slice(0, row + 1).reduce((a, b) => a + b, 0)),
  ]);
  const total = offsets.at(-1) ?? 0;
  const inList = textColumn(Array.from({ length: total }, (_, index) => (index % 4 === 3 ? null : `e${index}`)));
  const list: Layouted = {
    type: { kind: "list", element: "utf8" },
    column: { kind: "list", offsets, child: inList, valid: valid(flags) },
  };
  const text: Layouted = { type: "utf8", column: textColumn(texts) };
  const wide: Layouted = {
    type: { kind: "decimal", precision: 38, scale: 2 },
    column: { kind: "fixed", elementsPerValue: 2, data: numbers("uint64", rows * 2), valid: undefined },
  };
  return [
    {
      type: "int64",
      column: { kind: "fixed", elementsPerValue: 1, data: numbers("int64", rows), valid: valid(flags) },
    },
    { type: "bool", column: { kind: "fixed", elementsPerValue: 1, data: numbers("uint8", rows), valid: undefined } },
    wide,
    text,
    { type: "binary", column: textColumn(texts.map((one) => one ?? "")) },
    list,
    {
      type: {
        kind: "struct",
        fields: [
          { name: "a", type: text.type },
          { name: "b", type: wide.type },
          { name: "c", type: list.type },
        ],
      },
      column: {
        kind: "struct",
        rowCount: rows,
        children: [text.column, wide.column, list.column],
        valid: valid(flags.map((flag, row) => flag || row % 2 === 0)),
      },
    },
  ];
}

test("the rows that stay of a random batch are those that a plain list would keep", () => {
  const row = fc.record({
    text: fc.option(fc.string({ maxLength: 20 }), { nil: null }),
    state: fc.oneof(fc.constant(dropped), fc.constant(kept), fc.nat({ max: 5 }).map(failedOn)),
  });
  fc.assert(
    fc.property(fc.array(row, { maxLength: 40 }), fc.integer({ min: 1, max: 4 }), (rows, width) => {
      const rowCount = rows.length;
      const carried = layouts(rows.map(({ text }) => text));
      const randomBatch: RecordBatch = {
        rowCount,
        inputs: [
          {
            kind: "matrix",
            width,
            data: numbers("float64", rowCount * width),
            valid: Uint8Array.from({ length: rowCount * width }, (_, index) => index % 5 && 1),
          },
          textColumn(rows.map(({ text }) => text)),
          listColumn(
            "int64",
            rows.map(({ text }) => (text === null ? null : Array.from(text, (_, at) => (at % 4 === 3 ? null : at)))),
          ),
        ],
        carried: carried.map(({ column }) => column),
      };
      const given = states(...rows.map(({ state }) => state));
      const found = selectRows(randomBatch, given, carrying(...carried.map(({ type }) => type)));

      const indices = rows.flatMap(({ state }, place) => (state === dropped ? [] : [place]));
      const pick = (values: readonly unknown[]): unknown[] => indices.map((place) => values[place]);
      expect(found.rowCount).toBe(indices.length);
      expect([...(found.selection?.indices ?? [])]).toEqual(indices);
      expect(found.selection?.readCount).toBe(rowCount);
      expect(found.selection?.failed).toEqual(
        indices.flatMap((place, index) => {
          const state = given[place] ?? 0;
          return state > kept ? [{ row: index, cause: state - kept - 1 }] : [];
        }),
      );
      for (const [index, input] of randomBatch.inputs.entries()) {
        const now = found.inputs[index];
        expect(now && inputRows(now, indices.length)).toEqual(pick(inputRows(input, rowCount)));
      }
      for (const [index, { column }] of carried.entries()) {
        const now = found.carried[index];
        expect(now && columnValues(now, indices.length)).toEqual(pick(columnValues(column, rowCount)));
      }
    }),
    { numRuns: 300 },
  );
});
