import type { ColumnRef, Contract, InputBinding, NumericTensorType } from "#src/batch/contract.js";
import type { BytesColumn, ColumnType, Matrix, RecordBatch } from "#src/batch/types.js";

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

/** Row-major float32; null is a NULL, whose data is a NaN that nobody may look at. */
export function matrix(rows: readonly (readonly (number | null)[])[]): Matrix {
  const flat = rows.flat();
  const valid = flat.includes(null) ? Uint8Array.from(flat, (value) => (value === null ? 0 : 1)) : undefined;
  const data = Float32Array.from(flat, (value) => value ?? Number.NaN);
  return { kind: "matrix", width: rows[0]?.length ?? 1, data, valid };
}

/** A record batch of one matrix that carries nothing. */
export function matrixBatch(rows: readonly (readonly (number | null)[])[]): RecordBatch {
  return { rowCount: rows.length, inputs: [matrix(rows)], carried: [] };
}

/** UTF-8; null is a NULL, whose bytes are garbage that nobody may look at. */
export function textColumn(texts: readonly (string | null)[]): BytesColumn {
  const encoded = texts.map((text) => (text === null ? Uint8Array.of(0xff) : new TextEncoder().encode(text)));
  const offsets = new Uint32Array(texts.length + 1);
  for (const [index, { length }] of encoded.entries()) {
    offsets[index + 1] = (offsets[index] ?? 0) + length;
  }
  const valid = texts.includes(null) ? Uint8Array.from(texts, (text) => (text === null ? 0 : 1)) : undefined;
  return { kind: "bytes", offsets, bytes: Uint8Array.from(Buffer.concat(encoded)), valid };
}
