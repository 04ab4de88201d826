import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { RowFault } from "#src/flow/pack/input-target.js";
import { createPacker, type FeatureBatch, type Packer } from "#src/flow/pack/packer.js";
import type { NamedTensor } from "#src/columns/tensor.js";
import { matrixBatch, packingContract } from "../../support/batches.js";

const columns = ["a", "b", "c"];

class Fault extends Error {
  readonly fault: RowFault;

  constructor(fault: RowFault) {
    super(JSON.stringify(fault));
    this.fault = fault;
  }
}

function packerOf(batchRows: number, fixedBatchRows: number | null = null, names: readonly string[] = columns): Packer {
  return createPacker({
    contract: packingContract(names, fixedBatchRows),
    batchRows: () => batchRows,
    onFault: (fault) => {
      throw new Fault(fault);
    },
  });
}

interface Packed {
  readonly rowStart: number;
  readonly rowCount: number;
  readonly dims: readonly number[];
  readonly values: readonly number[];
}

/** Copied at once: the buffer goes back and is filled again. */
function packed({ rowStart, rowCount, inputs }: FeatureBatch): Packed {
  const [input] = inputs;
  const values = input === undefined || input.dtype === "string" ? [] : Array.from(input.data, Number);
  return { rowStart, rowCount, dims: input?.dims ?? [], values };
}

function buffersOf(inputs: readonly NamedTensor[]): ArrayBuffer[] {
  return inputs.flatMap((input) => (input.dtype === "string" ? [] : [input.data.buffer]));
}

const rowsOf = (count: number): number[][] => Array.from({ length: count }, (_, row) => [row + 1, row + 0.5, -row - 1]);

function packAll(
  packer: Packer,
  rows: readonly (readonly number[])[],
  pieces: readonly number[],
  firstRow = 0,
): Packed[] {
  const batches: Packed[] = [];
  const keep = (batch: FeatureBatch | undefined): void => {
    if (batch !== undefined) {
      batches.push(packed(batch));
      packer.recycle(batch.inputs);
    }
  };
  let at = 0;
  for (const length of [...pieces, rows.length]) {
    const piece = rows.slice(at, at + length);
    for (const batch of packer.push(matrixBatch(piece), { from: 0, to: piece.length, row: firstRow + at })) {
      keep(batch);
    }
    at += piece.length;
  }
  keep(packer.flush());
  return batches;
}

const pieces = fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 12 });

test("the batches hold every row once, in order, under the run's number", () => {
  fc.assert(
    fc.property(
      fc.nat(40),
      fc.integer({ min: 1, max: 12 }),
      pieces,
      fc.nat(1000),
      (count, batchRows, cuts, firstRow) => {
        const rows = rowsOf(count);
        const batches = packAll(packerOf(batchRows), rows, cuts, firstRow);
        expect(batches.flatMap(({ values }) => values)).toEqual(rows.flat());
        expect(batches.map(({ rowStart }) => rowStart)).toEqual(
          batches.map((_, index) => firstRow + index * batchRows),
        );
        expect(batches.every(({ rowCount, dims }) => dims[0] === rowCount && dims[1] === columns.length)).toBe(true);
        expect(batches.slice(0, -1).every(({ rowCount }) => rowCount === batchRows)).toBe(true);
      },
    ),
  );
});

test("the batches of a fixed size are padded with zeros, also where a used buffer held other rows", () => {
  fc.assert(
    fc.property(fc.nat(40), fc.integer({ min: 1, max: 12 }), pieces, (count, fixed, cuts) => {
      const rows = rowsOf(count);
      const packer = packerOf(4096, fixed);
      // Every buffer of the second round has been filled before.
      packAll(packer, rowsOf(fixed * 2), []);
      const batches = packAll(packer, rows, cuts);
      const padding = Array.from({ length: (fixed - (count % fixed)) % fixed }, () => [0, 0, 0]);
      expect(batches.flatMap(({ values }) => values)).toEqual([...rows, ...padding].flat());
      expect(batches.every(({ dims }) => dims[0] === fixed)).toBe(true);
      expect(batches.reduce((sum, { rowCount }) => sum + rowCount, 0)).toBe(count);
    }),
  );
});

test("the batches may have different sizes", () => {
  const sizes = [3, 1, 5, 5];
  const packer = createPacker({
    contract: packingContract(columns, null),
    batchRows: () => sizes.shift() ?? 2,
    onFault: () => expect.unreachable(),
  });
  const batches = packAll(packer, rowsOf(17), [4]);
  expect(batches.map(({ rowStart, rowCount }) => [rowStart, rowCount])).toEqual([
    [0, 3],
    [3, 1],
    [4, 5],
    [9, 5],
    [14, 2],
    [16, 1],
  ]);
  expect(batches.flatMap(({ values }) => values)).toEqual(rowsOf(17).flat());
});

test("the batches are cut out of the middle of a record batch", () => {
  const packer = packerOf(2);
  const full = [...packer.push(matrixBatch(rowsOf(10)), { from: 3, to: 6, row: 100 })].map(packed);
  expect(full).toEqual([{ rowStart: 100, rowCount: 2, dims: [2, 3], values: rowsOf(10).slice(3, 5).flat() }]);
  expect(packed(packer.flush() as FeatureBatch)).toMatchObject({ rowStart: 102, rowCount: 1, values: rowsOf(10)[5] });
});

test("the batches start again after a flush, and the next rows need not be consecutive", () => {
  const packer = packerOf(4);
  packAll(packer, rowsOf(3), []);
  expect(packer.flush()).toBeUndefined();
  expect(packAll(packer, rowsOf(2), [], 500)).toMatchObject([{ rowStart: 500, rowCount: 2 }]);
});

test("the batches reuse memory after the first buffers were returned", () => {
  const packer = packerOf(4);
  const buffers = new Set<ArrayBuffer>();
  for (let round = 0; round < 5; round += 1) {
    for (const { inputs } of packer.push(matrixBatch(rowsOf(4)), { from: 0, to: 4, row: round * 4 })) {
      const used = buffersOf(inputs);
      packer.recycle(inputs);
      used.forEach((buffer) => buffers.add(buffer));
    }
  }
  expect(buffers.size).toBe(1);
});

test("batches that are in use at the same time do not share memory", () => {
  const batches = [...packerOf(2).push(matrixBatch(rowsOf(6)), { from: 0, to: 6, row: 0 })];
  expect(new Set(batches.flatMap(({ inputs }) => buffersOf(inputs))).size).toBe(3);
  expect(batches.flatMap((batch) => packed(batch).values)).toEqual(rowsOf(6).flat());
});

function faultAt(
  bad: { row: number; column: number },
  value: number | null,
  options: { cuts: readonly number[]; batchRows: number },
): RowFault {
  const rows: (number | null)[][] = rowsOf(30);
  (rows[bad.row] as (number | null)[])[bad.column] = value;
  const packer = packerOf(options.batchRows);
  packAll(packer, rowsOf(30), []); // used buffers
  try {
    packAll(packer, rows as number[][], options.cuts, 1000);
  } catch (error) {
    if (error instanceof Fault) {
      return error.fault;
    }
    throw error;
  }
  throw new Error("no fault was met");
}

describe("a value that is no feature", () => {
  const where = fc.record({ row: fc.nat(29), column: fc.nat(2) });
  const how = fc.record({
    cuts: fc.array(fc.integer({ min: 1, max: 9 }), { maxLength: 8 }),
    batchRows: fc.integer({ min: 1, max: 40 }),
  });

  test("a bad feature is reported with the run's row and its column when it is NULL", () => {
    fc.assert(
      fc.property(where, how, (bad, options) => {
        expect(faultAt(bad, null, options)).toEqual({
          reason: "missing",
          column: columns[bad.column],
          row: 1000 + bad.row,
          value: undefined,
        });
      }),
    );
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e39])(
    "a bad feature is reported with row and column when it is %d",
    (value) => {
      fc.assert(
        fc.property(where, how, (bad, options) => {
          expect(faultAt(bad, value, options)).toEqual({
            reason: "not_finite",
            column: columns[bad.column],
            row: 1000 + bad.row,
            value: undefined,
          });
        }),
      );
    },
  );

  test("Infinity is found next to -Infinity: they do not cancel out", () => {
    const rows = [[1, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]];
    expect(() => packAll(packerOf(1), rows, [])).toThrow('"column":"b","row":0');
  });

  test("a bad feature counts only in the requested rows", () => {
    const before = [null, Number.NaN, 1];
    for (const after of [
      [1, null, 3],
      [1, Number.NaN, 3],
    ]) {
      const batch = matrixBatch([before, [1, 2, 3], after]);
      const full = [...packerOf(1).push(batch, { from: 1, to: 2, row: 7 })].map(packed);
      expect(full).toMatchObject([{ rowStart: 7, values: [1, 2, 3] }]);
    }
  });

  test("the first of several faults of a row is reported, NULL before the value under it", () => {
    const rows = matrixBatch([
      [1, 1, 1],
      [1, 1, null],
      [null, 1, 1],
    ]);
    expect(() => [...packerOf(5).push(rows, { from: 0, to: 3, row: 0 })]).toThrow(
      '"reason":"missing","column":"c","row":1',
    );
  });

  test("the largest float32 and a sum beyond it are not bad features", () => {
    const largest = 3.4028234663852886e38;
    for (const width of [1, 3, 4, 7, 1000]) {
      const names = Array.from({ length: width }, (_, index) => `f${index}`);
      const rows = Array.from({ length: 3 }, () => names.map((_, index) => (index % 5 === 4 ? -largest : largest)));
      expect(packAll(packerOf(2, null, names), rows, []).flatMap(({ values }) => values)).toEqual(rows.flat());
    }
  });
});

test("a record batch without the input's column is reported as a bug", () => {
  const empty = { rowCount: 1, inputs: [], carried: [] };
  expect(() => [...packerOf(1).push(empty, { from: 0, to: 1, row: 0 })]).toThrow(
    "input features takes 3 numbers a row",
  );
});
