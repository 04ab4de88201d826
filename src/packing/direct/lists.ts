import type { NumericTensorType, CastRules } from "../../binding/contract.js";
import { tensorElement } from "../../columnar/tensor.js";
import type { Column, FixedColumn, ListColumn, Matrix } from "../../columnar/types.js";
import { allocate } from "../../columnar/values.js";
import type { Cast } from "./cast.js";
import { packMatrix } from "./matrix.js";

interface Rows {
  readonly from: number;
  readonly to: number;
}

/** Lists of `width` numbers each; a row of another length, or NULL, is all NULLs. */
export function listMatrix(
  { dtype, width }: { readonly dtype: NumericTensorType; readonly width: number },
  column: Column,
  cast: Cast,
  { from, to, missing }: Rows & Pick<CastRules, "missing">,
): Matrix {
  const { offsets, child, valid } = numberLists(column);
  const base = offsets[from] ?? 0;
  let inOrder = true;
  for (let row = from; inOrder && row < to; row += 1) {
    inOrder = offsets[row + 1] === base + (row + 1 - from) * width && valid?.[row] !== 0;
  }
  if (inOrder) {
    const packed = packMatrix(
      dtype,
      [{ column: child, cast }],
      { from: base, to: base + (to - from) * width },
      { missing },
    );
    return { ...packed, width };
  }
  const data = allocate(tensorElement(dtype), (to - from) * width);
  const marks = new Uint8Array(data.length);
  for (let row = from; row < to; row += 1) {
    const start = offsets[row] ?? 0;
    if (valid?.[row] === 0 || (offsets[row + 1] ?? 0) - start !== width) {
      continue;
    }
    const packed = packMatrix(dtype, [{ column: child, cast }], { from: start, to: start + width }, { missing });
    const at = (row - from) * width;
    (data as Float64Array).set(packed.data as Float64Array, at);
    marks.fill(1, at, at + width);
    marks.set(packed.valid ?? [], at);
  }
  return { kind: "matrix", width, data, valid: marks };
}

/** Rows of lists, however long, with elements that are the tensor's. */
export function castLists(
  dtype: NumericTensorType,
  column: Column,
  cast: Cast,
  { from, to, missing }: Rows & Pick<CastRules, "missing">,
): ListColumn {
  const { offsets, child, valid } = numberLists(column);
  const start = offsets[from] ?? 0;
  const numbers = packMatrix(dtype, [{ column: child, cast }], { from: start, to: offsets[to] ?? 0 }, { missing });
  const own = new Uint32Array(to - from + 1);
  for (let row = from; row <= to; row += 1) {
    own[row - from] = (offsets[row] ?? 0) - start;
  }
  return {
    kind: "list",
    offsets: own,
    child: { kind: "fixed", elementsPerValue: 1, data: numbers.data, valid: numbers.valid },
    valid: valid?.subarray(from, to),
  };
}

function numberLists(column: Column): ListColumn & { readonly child: FixedColumn } {
  if (column.kind !== "list" || column.child.kind !== "fixed") {
    throw new TypeError("an input of lists takes lists of numbers");
  }
  return { ...column, child: column.child };
}
