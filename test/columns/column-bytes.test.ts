import * as fc from "fast-check";
import { expect, test } from "vitest";
import { rowsWithin } from "#src/columns/columns.js";
import type { Column } from "#src/columns/types.js";

function textsOf(lengths: readonly number[]): Column {
  const offsets = new Uint32Array(lengths.length + 1);
  lengths.forEach((length, row) => {
    offsets[row + 1] = (offsets[row] as number) + length;
  });
  return { kind: "bytes", offsets, bytes: new Uint8Array(offsets.at(-1) ?? 0), valid: undefined };
}

const fixed: Column = { kind: "fixed", elementsPerValue: 2, data: new BigUint64Array(6), valid: undefined };
const texts = textsOf([5, 0, 7]);
const list: Column = { kind: "list", offsets: Uint32Array.of(0, 2, 2, 3), child: texts, valid: undefined };
const struct: Column = { kind: "struct", rowCount: 3, children: [fixed, texts], valid: undefined };

test.each([
  ["numbers", fixed, 32],
  ["texts", texts, 5 + 2 * 4],
  ["lists of texts", list, 5 + 2 * 4 + 2 * 4],
  ["structs", struct, 32 + 5 + 2 * 4],
])("two rows of %s fit into exactly their bytes", (_, column, bytes) => {
  expect(rowsWithin([column], { from: 0, to: 3, limit: bytes })).toBe(2);
  expect(rowsWithin([column], { from: 0, to: 3, limit: bytes - 1 })).toBe(1);
});

test("rows within a limit are as many as fit, and one at least", () => {
  const shape = fc.record({
    lengths: fc.array(fc.nat(100), { minLength: 1, maxLength: 40 }),
    from: fc.nat(39),
    limit: fc.integer({ min: 0, max: 1000 }),
  });
  fc.assert(
    fc.property(shape, ({ lengths, from: start, limit }) => {
      const columns = [textsOf(lengths), textsOf(lengths.toReversed())];
      const from = Math.min(start, lengths.length - 1);
      const to = lengths.length;
      const both = lengths.map((length, row) => length + (lengths.at(-1 - row) as number) + 2 * 4);
      const bytes = (rows: number): number => both.slice(from, from + rows).reduce((sum, one) => sum + one, 0);
      const rows = rowsWithin(columns, { from, to, limit });
      expect(rows).toBeGreaterThanOrEqual(1);
      expect(rows === 1 || bytes(rows) <= limit).toBe(true);
      expect(from + rows === to || bytes(rows + 1) > limit).toBe(true);
    }),
  );
});
