import { DuckDBDataChunk } from "@duckdb/node-api";
import bindings from "@duckdb/node-bindings";
import { expect, test } from "vitest";
import type { Column } from "#src/columns/types.js";
import { duckDbTypeOf, readColumn, readMatrix } from "#src/duckdb/vectors.js";

/** Elements 0 to 9; `entries`: offset and length of each row. */
function chunkOf(entries: readonly (readonly [number, number])[]): DuckDBDataChunk {
  const chunk = DuckDBDataChunk.create([duckDbTypeOf({ kind: "list", element: "int32" })]);
  const vector = bindings.data_chunk_get_vector(chunk.chunk, 0);
  const words = BigUint64Array.from(entries.flat(), BigInt);
  bindings.list_vector_reserve(vector, 10);
  bindings.list_vector_set_size(vector, 10);
  bindings.copy_data_to_vector(vector, 0, words.buffer, 0, words.byteLength);
  const elements = Int32Array.from({ length: 10 }, (_, index) => index);
  bindings.copy_data_to_vector(bindings.list_vector_get_child(vector), 0, elements.buffer, 0, elements.byteLength);
  chunk.rowCount = entries.length;
  return chunk;
}
const rowsOf = (column: Column): unknown[] => {
  if (column.kind !== "list" || column.child.kind !== "fixed") {
    throw new Error("not a list of numbers");
  }
  const { offsets, child } = column;
  return Array.from({ length: offsets.length - 1 }, (_, row) => [
    ...child.data.subarray(offsets[row], offsets[row + 1]),
  ]);
};

test.each([
  [
    "backwards",
    [
      [8, 2],
      [0, 3],
      [3, 0],
    ],
    [[8, 9], [0, 1, 2], []],
  ],
  [
    "shared",
    [
      [2, 2],
      [2, 2],
      [3, 2],
    ],
    [
      [2, 3],
      [2, 3],
      [3, 4],
    ],
  ],
  [
    "with a gap before the first",
    [
      [4, 1],
      [5, 2],
    ],
    [[4], [5, 6]],
  ],
  [
    "with a gap between",
    [
      [0, 1],
      [3, 2],
    ],
    [[0], [3, 4]],
  ],
  [
    "in order after all",
    [
      [0, 1],
      [7, 0],
      [1, 2],
    ],
    [[0], [], [1, 2]],
  ],
] as [string, [number, number][], number[][]][])(
  "rows of a LIST column whose elements are not in order are gathered: %s",
  (_what, entries, expected) => {
    expect(rowsOf(readColumn(chunkOf(entries), 0, { kind: "list", element: "int32" }))).toEqual(expected);
  },
);

test("reading a LIST column as a matrix gathers rows whose elements are not in order, and requires its width of each", () => {
  const { data } = readMatrix(
    chunkOf([
      [8, 2],
      [0, 2],
      [0, 2],
    ]),
    0,
    "int32",
    2,
  );
  expect([...data]).toEqual([8, 9, 0, 1, 0, 1]);
  expect([
    ...readMatrix(
      chunkOf([
        [0, 2],
        [2, 2],
      ]),
      0,
      "int32",
      2,
    ).data,
  ]).toEqual([0, 1, 2, 3]);
  expect(() =>
    readMatrix(
      chunkOf([
        [0, 2],
        [2, 3],
      ]),
      0,
      "int32",
      2,
    ),
  ).toThrow("DuckDB packed 3 values into a row of 2");
  expect(() => readMatrix(chunkOf([[9, 2]]), 0, "int32", 2)).toThrow("DuckDB packed 2 values");
});
