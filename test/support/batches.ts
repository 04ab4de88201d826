import type { ColumnRef, Contract, InputBinding, NumericTensorType } from "#src/models/binding/contract.js";
import type { RowFault } from "#src/flow/pack/input-target.js";
import { createPacker, type FeatureBatch } from "#src/flow/pack/packer.js";
import { decodeTexts, type NamedTensor } from "#src/columns/tensor.js";
import type { BytesColumn, ColumnType, DecodedInput, ListColumn, Matrix, RecordBatch } from "#src/columns/types.js";
import { allocate, type ElementType } from "#src/columns/values.js";

export const ref = (name: string, type: ColumnType = "float32"): ColumnRef => ({ name, path: name.split("."), type });

export function matrixBinding(columns: readonly string[], dtype: NumericTensorType = "float32"): InputBinding {
  return { kind: "matrix", input: "features", dtype, rank: 2, columns: columns.map((name) => ref(name)) };
}

export const emptyContract: Contract = {
  inputs: [],
  outputs: [],
  passthrough: [],
  fixedBatchRows: null,
  expressions: null,
  cast: "exact",
  missing: "bad_row",
};

/** Packs these columns into one input and gives nothing out. */
export function packingContract(columns: readonly string[], fixedBatchRows: number | null = null): Contract {
  return { ...emptyContract, inputs: [matrixBinding(columns)], fixedBatchRows };
}

/** Row-major float32; null is a NULL, whose data is a NaN that no code may read. */
export function matrix(rows: readonly (readonly (number | null)[])[]): Matrix {
  const flat = rows.flat();
  const valid = flat.includes(null) ? Uint8Array.from(flat, (value) => (value === null ? 0 : 1)) : undefined;
  const data = Float32Array.from(flat, (value) => value ?? Number.NaN);
  return { kind: "matrix", width: rows[0]?.length ?? 1, data, valid };
}

export function matrixBatch(rows: readonly (readonly (number | null)[])[]): RecordBatch {
  return { rowCount: rows.length, inputs: [matrix(rows)], carried: [] };
}

/** UTF-8; null is a NULL, whose bytes are garbage that no code may read. */
export function textColumn(texts: readonly (string | null)[]): BytesColumn {
  const encoded = texts.map((text) => (text === null ? Uint8Array.of(0xff) : new TextEncoder().encode(text)));
  const offsets = new Uint32Array(texts.length + 1);
  for (const [index, { length }] of encoded.entries()) {
    offsets[index + 1] = (offsets[index] ?? 0) + length;
  }
  const valid = texts.includes(null) ? Uint8Array.from(texts, (text) => (text === null ? 0 : 1)) : undefined;
  return { kind: "bytes", offsets, bytes: Uint8Array.from(Buffer.concat(encoded)), valid };
}

/** Lists of numbers; null is a NULL, under which a list has elements that no code may read. */
export function listColumn(element: ElementType, lists: readonly (readonly (number | null)[] | null)[]): ListColumn {
  const under = lists.map((list) => list ?? [Number.NaN, 77]);
  const flat = under.flat();
  const data = allocate(element, flat.length);
  const offsets = new Uint32Array(lists.length + 1);
  under.forEach(({ length }, row) => {
    offsets[row + 1] = (offsets[row] ?? 0) + length;
  });
  flat.forEach((value, index) => {
    const number = value ?? 99;
    data[index] = (element.endsWith("int64") ? BigInt(Number.isNaN(number) ? 99 : number) : number) as never;
  });
  return {
    kind: "list",
    offsets,
    child: { kind: "fixed", elementsPerValue: 1, data, valid: flat.includes(null) ? validOf(flat) : undefined },
    valid: lists.includes(null) ? validOf(lists) : undefined,
  };
}

function validOf(values: readonly unknown[]): Uint8Array {
  return Uint8Array.from(values, (value) => (value === null ? 0 : 1));
}

interface Packed {
  readonly batches: FeatureBatch[];
  readonly faults: RowFault[];
}

/** One record batch through a packer; rows of the run count from 100. Faults are collected, not thrown. */
export function pack(
  contract: Partial<Contract>,
  inputs: readonly DecodedInput[],
  { rows, batchRows = 10 }: { rows: number; batchRows?: number },
): Packed {
  const faults: RowFault[] = [];
  const packer = createPacker({
    contract: { ...emptyContract, ...contract },
    batchRows: () => batchRows,
    onFault: (fault) => {
      faults.push(fault);
    },
  });
  const record: RecordBatch = { rowCount: rows, inputs, carried: [] };
  const batches = [...packer.push(record, { from: 0, to: rows, row: 100 })];
  const rest = packer.flush();
  return { batches: rest === undefined ? batches : [...batches, rest], faults };
}

export const dataOf = (tensor: NamedTensor | undefined): unknown[] =>
  tensor?.dtype === "string" ? decodeTexts(tensor.data) : [...(tensor?.data ?? [])];
