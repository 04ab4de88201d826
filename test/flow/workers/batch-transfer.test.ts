import type { Column, RecordBatch } from "#src/columns/types.js";
import { allocate } from "#src/columns/values.js";
import { sliceColumn } from "#src/columns/columns.js";
import { packParcel } from "#src/flow/workers/unit-server.js";
import { assertNever } from "#src/base/errors.js";
import { expect, test } from "vitest";
import { listColumn, matrix, textColumn } from "../../support/batches.js";

const numbers: Column = {
  kind: "fixed",
  elementsPerValue: 1,
  data: BigInt64Array.of(1n, 2n, 3n, 4n, 5n),
  valid: Uint8Array.of(1, 0, 1, 1, 1),
};
const texts = textColumn(["a", null, "ccc", "", "eeeee"]);
const lists = listColumn("float32", [[1], [2, 3], null, [], [4, 5, 6]]);
const struct: Column = { kind: "struct", rowCount: 5, children: [numbers, texts], valid: undefined };

/** The values of rows, without the bytes under a NULL. */
function shown(column: Column, rows: number): unknown[] {
  return Array.from({ length: rows }, (_, row): unknown => {
    if (column.valid?.[row] === 0) {
      return null;
    }
    switch (column.kind) {
      case "fixed":
        return column.data[row];
      case "bytes":
        return Buffer.from(column.bytes.subarray(column.offsets[row], column.offsets[row + 1])).toString();
      case "list": {
        const [from = 0, to = 0] = column.offsets.subarray(row, row + 2);
        return shown(column.child, to).slice(from, to);
      }
      case "struct":
        return column.children.map((child) => shown(child, rows)[row]);
      default:
        return assertNever(column);
    }
  });
}

const take = allocate;

test.each([
  [0, 5],
  [1, 4],
  [2, 2],
  [4, 5],
])(
  "a batch that is sent to another thread has rows %i to %i of what it was cut from, and nothing else in its buffers",
  (from, to) => {
    const columns = [numbers, texts, lists, struct].map((column) => sliceColumn(column, from, to));
    const batch: RecordBatch = { rowCount: to - from, inputs: [], carried: columns };

    const parcel = packParcel(batch, { take, isOwn: () => false });
    const sent = structuredClone(parcel.batch, { transfer: [...parcel.buffers] });

    expect(sent.carried.map((column) => shown(column, to - from))).toEqual(
      columns.map((column) => shown(column, to - from)),
    );
    const bytes = parcel.buffers.map(({ byteLength }) => byteLength);
    expect(bytes.every((length) => length === 0)).toBe(true); // they are the other thread's now
    expect(texts.bytes.length).toBeGreaterThan(0); // what it was cut from stays
  },
);

test("a batch that is sent to another thread includes its derived data, and whether its numbers are finite", () => {
  const made = matrix([[1, 2]]);
  const batch: RecordBatch = { rowCount: 1, inputs: [made, matrix([[Number.NaN]])], carried: [] };

  const { batch: sent, buffers } = packParcel(batch, { take, isOwn: (values) => values === made.data });

  expect(buffers[0]).toBe(made.data.buffer);
  expect(sent.inputs.map((input) => (input.kind === "matrix" ? input.isFinite : undefined))).toEqual([true, undefined]);
});
