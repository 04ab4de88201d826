import type { Contract, InputBinding } from "#src/batch/contract.js";
import type { RecordBatch } from "#src/batch/types.js";

export function matrixBinding(columns: readonly string[]): InputBinding {
  return {
    kind: "matrix",
    input: "features",
    dtype: "float32",
    columns: columns.map((name) => ({ name, sourceType: "FLOAT" })),
  };
}

/** Packs these columns into one input and gives nothing out. */
export function packingContract(columns: readonly string[], fixedBatchRows: number | null = null): Contract {
  return { inputs: [matrixBinding(columns)], outputs: [], passthrough: [], fixedBatchRows };
}

/** One matrix column, row-major; null is a NULL, whose data is a NaN that nobody may look at. */
export function matrixBatch(rows: readonly (readonly (number | null)[])[]): RecordBatch {
  const flat = rows.flat();
  const valid = flat.includes(null) ? Uint8Array.from(flat, (value) => (value === null ? 0 : 1)) : undefined;
  const data = Float32Array.from(flat, (value) => value ?? Number.NaN);
  return { rowCount: rows.length, columns: [{ type: "float32", width: rows[0]?.length ?? 1, data, valid }] };
}
