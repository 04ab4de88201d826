import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Contract, InputBinding } from "#src/binding/contract.js";
import { createDistinctPacker } from "#src/packing/distinct-packer.js";
import { createDistinctRows, type DistinctRows } from "#src/packing/distinct-rows.js";
import type { RowFault } from "#src/packing/input-target.js";
import { createPacker, type FeatureBatch, type Packer } from "#src/packing/packer.js";
import { createRowStore, type RowStoreOptions } from "#src/packing/row-store.js";
import { decodeTexts, type NamedTensor } from "#src/columnar/tensor.js";
import type { RecordBatch } from "#src/columnar/types.js";
import { emptyContract, listColumn, matrix, matrixBinding, ref, textColumn } from "../support/batches.js";

const padded: InputBinding = {
  kind: "padded",
  input: "tokens",
  dtype: "int64",
  width: 3,
  column: ref("tokens", { kind: "list", element: "int64" }),
  value: 0,
  side: "left",
  truncate: false,
  shrink: false,
};

const contract: Contract = {
  ...emptyContract,
  missing: "nan",
  inputs: [
    matrixBinding(["a", "b"]),
    { kind: "matrix", input: "flags", dtype: "uint8", rank: 2, columns: [ref("p"), ref("q"), ref("r")] },
    { kind: "text", input: "place", rank: 1, column: ref("place", "utf8") },
    { kind: "text", input: "kind", rank: 2, column: ref("kind", "utf8") },
    padded,
    { kind: "mask", input: "mask", dtype: "int64", of: "tokens" },
  ],
};

/** What of one row the model would see; null is a NULL. */
interface Row {
  readonly a: number | null;
  readonly b: number;
  readonly flags: readonly number[];
  readonly place: string | null;
  readonly kind: string;
  readonly tokens: readonly number[] | null;
}

const zeroRow: Row = { a: 0, b: 0, flags: [0, 0, 0], place: "", kind: "", tokens: [] };
const oneOf = <T>(...values: readonly T[]): fc.Arbitrary<T> => fc.constantFrom(...values);
/** Rows that differ in little, or in where one text ends and the next begins. */
const rowLike: fc.Arbitrary<Row> = fc.record({
  a: oneOf(0, -0, 1, Number.NaN, null, Number.POSITIVE_INFINITY),
  b: oneOf(0, 1),
  flags: fc.tuple(oneOf(0, 1), oneOf(0), oneOf(0, 1)),
  place: oneOf("", "x", "xy", "xyz12", null),
  kind: oneOf("", "y", "y\u0001"),
  tokens: oneOf<readonly number[] | null>([], [0], [0, 0], [1], [1, 2, 3, 4], null),
});
/** Few that come many times. */
const rowsLike = fc
  .array(rowLike, { minLength: 1, maxLength: 8 })
  .chain((pool) => fc.array(oneOf(...pool), { maxLength: 60 }));

function recordOf(rows: readonly Row[]): RecordBatch {
  const flags = Uint8Array.from(rows.flatMap((row) => row.flags));
  const lists = listColumn(
    "int64",
    rows.map(({ tokens }) => tokens),
  );
  return {
    rowCount: rows.length,
    inputs: [
      matrix(rows.map(({ a, b }) => [a, b])),
      { kind: "matrix", width: 3, data: flags, valid: undefined },
      textColumn(rows.map(({ place }) => place)),
      textColumn(rows.map(({ kind }) => kind)),
      lists,
    ],
    carried: [],
  };
}

/** What a batch has of each of its rows, as text. */
function rowsIn({ rowCount, inputs }: FeatureBatch): string[] {
  return Array.from({ length: rowCount }, (_, row) => JSON.stringify(inputs.map((input) => rowOf(input, row))));
}

function rowOf(tensor: NamedTensor, row: number): unknown {
  if (tensor.dtype === "string") {
    return decodeTexts(tensor.data)[row];
  }
  const { buffer, byteLength } = tensor.data;
  const width = byteLength / (tensor.dims[0] ?? 1);
  return [...new Uint8Array(buffer, row * width, width)];
}

interface Drive {
  readonly cuts: readonly number[];
  readonly batchRows: number;
}

/** All rows of all batches in order, and where they began. */
function drive(packer: Packer, rows: readonly Row[], { cuts }: Drive): { rows: string[]; starts: number[] } {
  const found: string[] = [];
  const starts: number[] = [];
  const keep = (batch: FeatureBatch | undefined): void => {
    if (batch !== undefined) {
      starts.push(batch.rowStart - found.length);
      found.push(...rowsIn(batch));
      packer.recycle(batch.inputs);
    }
  };
  let at = 0;
  for (const cut of [...cuts, rows.length]) {
    const piece = rows.slice(at, at + cut);
    for (const batch of packer.push(recordOf(piece), { from: 0, to: piece.length, row: 100 + at })) {
      keep(batch);
    }
    at += piece.length;
  }
  keep(packer.flush());
  return { rows: found, starts };
}

function compare(rows: readonly Row[], how: Drive, options?: RowStoreOptions): DistinctRows {
  const faults: RowFault[] = [];
  const batchRows = (): number => how.batchRows;
  const plain = drive(createPacker({ contract, batchRows, onFault: (fault) => void faults.push(fault) }), rows, how);
  const told: RowFault[] = [];
  const span = createDistinctRows(100, rows.length);
  const store = createRowStore(options);
  const onFault = (fault: RowFault): void => void told.push(fault);
  const once = drive(createDistinctPacker({ contract, batchRows, onFault, distinct: () => span, store }), rows, how);

  expect(span.rowCount).toBe(rows.length);
  expect(once.rows).toHaveLength(span.count);
  expect(once.starts.every((start) => start === 100)).toBe(true);
  expect(Array.from(span.indices, (place) => once.rows[place])).toEqual(plain.rows);
  expect(told.toSorted(byRow)).toEqual(faults.toSorted(byRow));
  return span;
}

function byRow(one: RowFault, other: RowFault): number {
  return one.row - other.row || JSON.stringify(one).localeCompare(JSON.stringify(other));
}

const ways = fc.record({ cuts: fc.array(fc.nat(9), { maxLength: 10 }), batchRows: fc.integer({ min: 1, max: 12 }) });
const distinctIn = (rows: readonly string[]): number => new Set(rows).size;

describe("each row has the place of one whose bytes are its own", () => {
  test("each row has the index of a row with equal bytes, and each distinct row is packed once", () => {
    fc.assert(
      fc.property(rowsLike, ways, (rows, how) => {
        const { count } = compare(rows, how);
        const { rows: all } = drive(createPacker({ contract, batchRows: () => 99, onFault() {} }), rows, how);
        expect(count).toBe(distinctIn(all));
      }),
    );
  });

  test("each row has the index of a row with equal bytes although all hashes are equal", () => {
    fc.assert(
      fc.property(rowsLike, ways, (rows, how) => {
        compare(rows, how, { hashOf: () => 7 });
      }),
    );
  });

  test("each row has the index of a row with equal bytes: a sign, a last character and the order of two texts count", () => {
    const like = (other: Partial<Row>): Row => Object.assign({ ...zeroRow }, other);
    const others: Partial<Row>[] = [{}, { a: -0 }, { kind: "y" }, { kind: "y\u0001" }, { place: "y" }, { tokens: [0] }];
    const rows = others.map(like);
    expect(compare([...rows, ...rows], { cuts: [], batchRows: 10 }).count).toBe(6);
  });

  test("each row has the index of a row with equal bytes; rows that were dropped from a small store are packed again", () => {
    const how = { cuts: [], batchRows: 10 };
    const rows = Array.from({ length: 60 }, (_, index) => ({ ...zeroRow, b: index % 20 }));
    expect(compare(rows, how).count).toBe(20);
    expect(compare(rows, how, { limitBytes: 500 }).count).toBeGreaterThan(20);
    expect(compare(rows, how, { limitBytes: 1 }).count).toBe(60);
  });
});

test("a span does not know the rows of another", () => {
  let span = createDistinctRows(0, 4);
  const packing = { ...emptyContract, inputs: [matrixBinding(["a"])] };
  const packer = createDistinctPacker({ contract: packing, batchRows: () => 9, onFault() {}, distinct: () => span });
  const batch = { rowCount: 4, inputs: [matrix([[1], [1], [2], [1]])], carried: [] };
  for (const row of [0, 4]) {
    span = createDistinctRows(row, 4);
    expect([...packer.push(batch, { from: 0, to: 4, row })]).toEqual([]);
    expect(packer.flush()).toMatchObject({ rowStart: row, rowCount: 2 });
    expect([...span.indices]).toEqual([0, 0, 1, 0]);
  }
});

test("1,000 distinct rows are found among 5,000", () => {
  const rows = 5000;
  const values = Array.from({ length: rows }, (_, row) => [row % 1000, (row % 1000) / 8]);
  const span = createDistinctRows(0, rows);
  const packing = { ...emptyContract, inputs: [matrixBinding(["a", "b"])] };
  const packer = createDistinctPacker({ contract: packing, batchRows: () => 9999, onFault() {}, distinct: () => span });
  expect([
    ...packer.push({ rowCount: rows, inputs: [matrix(values)], carried: [] }, { from: 0, to: rows, row: 0 }),
  ]).toEqual([]);
  expect(span.count).toBe(1000);
  expect([...span.indices]).toEqual(Array.from({ length: rows }, (_, row) => row % 1000));
});
