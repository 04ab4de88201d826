import { createColumnBuilder, emptyTexts } from "../../columns/columns.js";
import { JobError } from "../../base/errors.js";
import { columnTypeOfTensor, fromFloat16Bits, type Tensor } from "../../columns/tensor.js";
import { type BytesColumn, type Column, type ColumnType, layoutOfType } from "../../columns/types.js";
import { allocate, copyValues, elementOf, type Values } from "../../columns/values.js";

/** A predicted column, filled from batches that come in any order. */
export interface PredictionColumn {
  /** Rows [at, at + rowCount) from the first rows of a tensor of `width` values a row, or one `element` of each. */
  set(
    at: number,
    rowCount: number,
    source: { tensor: Tensor; width: number; element: number | undefined },
    onNotFinite: (row: number, value: number) => void,
  ): void;
  /** The size of the values so far, in bytes. */
  readonly bytes: number;
  /** The first `rowCount` rows. */
  finish(rowCount: number): Column;
}

export function createPredictionColumn(type: ColumnType, length: number): PredictionColumn {
  if (typeof type === "object" && type.kind === "list") {
    return vectors(type.element, length);
  }
  return type === "utf8" ? texts() : numbers(type, length, 1);
}

function numbers(type: ColumnType, length: number, perRow: number): PredictionColumn {
  const layout = layoutOfType(type);
  if (layout.kind !== "fixed") {
    throw new TypeError("numbers are of a fixed size");
  }
  let data = allocate(layout.element, Math.min(length, mostRowsAtFirst(perRow)) * perRow);
  let rows = 0;
  return {
    get bytes() {
      return rows * perRow * data.BYTES_PER_ELEMENT;
    },
    set(at, rowCount, { tensor, width, element }, onNotFinite) {
      if (tensor.dtype === "string" || columnTypeOfTensor(tensor.dtype) !== type) {
        throw new TypeError(`expected ${JSON.stringify(type)}, found a tensor of ${tensor.dtype}`);
      }
      rows = Math.max(rows, at + rowCount);
      data = withRows(data, rows * perRow, length * perRow);
      const values = tensor.dtype === "float16" ? widen(tensor.data) : tensor.data;
      if (element === undefined || width === 1) {
        copyValues(data, at * perRow, values, 0, rowCount * perRow);
      } else {
        pickElement(data, at, values, { rowCount, width, element });
      }
      reportNotFinite(data, { at, rowCount, perRow }, onNotFinite);
    },
    finish(rowCount) {
      data = withRows(data, rowCount * perRow, length * perRow);
      return { kind: "fixed", elementsPerValue: 1, data: data.subarray(0, rowCount * perRow), valid: undefined };
    },
  };
}

/** Vectors of many values grow: a span need not be held as a whole. */
function mostRowsAtFirst(perRow: number): number {
  return perRow === 1 ? Number.POSITIVE_INFINITY : Math.ceil(vectorValuesAtFirst / perRow);
}

const vectorValuesAtFirst = 64 * 1024;

/** The same values with as many behind them as `length` asks for; at most `limit`. */
function withRows(data: Values, length: number, limit: number): Values {
  if (length <= data.length) {
    return data;
  }
  const larger = allocate(elementOf(data), Math.min(limit, Math.max(length, data.length * 2)));
  copyValues(larger, 0, data, 0, data.length);
  return larger;
}

function widen(bits: Values): Float32Array<ArrayBuffer> {
  const values = new Float32Array(bits.length);
  for (let index = 0; index < bits.length; index += 1) {
    values[index] = fromFloat16Bits(Number(bits[index]));
  }
  return values;
}

function pickElement(
  target: Values,
  at: number,
  source: Values,
  { rowCount, width, element }: { rowCount: number; width: number; element: number },
): void {
  // One loop for all types: TypeScript cannot see that the two arrays agree.
  const from = source as Float64Array;
  const to = target as Float64Array;
  for (let row = 0, index = element; row < rowCount; row += 1, index += width) {
    to[at + row] = from[index] as number;
  }
}

function reportNotFinite(
  values: Values,
  { at, rowCount, perRow }: { at: number; rowCount: number; perRow: number },
  report: (row: number, value: number) => void,
): void {
  if (!(values instanceof Float32Array || values instanceof Float64Array)) {
    return;
  }
  const end = (at + rowCount) * perRow;
  for (let index = at * perRow; index < end; index += 1) {
    const value = values[index] as number;
    if (!Number.isFinite(value)) {
      const row = Math.floor(index / perRow);
      report(row, value);
      index = (row + 1) * perRow - 1; // on with the next row
    }
  }
}

/** Lists of one length, which the first batch sets. */
function vectors(type: ColumnType, length: number): PredictionColumn {
  let width = 0;
  let child: PredictionColumn | undefined;
  return {
    get bytes() {
      return child?.bytes ?? 0;
    },
    set(at, rowCount, source, onNotFinite) {
      if (child !== undefined && source.width !== width) {
        const found = `a batch has ${source.width} values a row, another has ${width}`;
        throw new JobError("CONTRACT", `running the model: ${found}`, {
          hint: "an output needs one width in all batches: write shrink: false where an input shrinks, or choose another output",
        });
      }
      width = source.width;
      child ??= type === "utf8" ? texts() : numbers(type, length, width);
      if (type === "utf8") {
        child.set(at * width, rowCount * width, { ...source, width: 1 }, onNotFinite);
      } else {
        child.set(at, rowCount, source, onNotFinite);
      }
    },
    finish(rowCount) {
      const offsets = Uint32Array.from({ length: rowCount + 1 }, (_, row) => row * width);
      const values = child ?? createPredictionColumn(type, 0);
      const childRows = type === "utf8" ? rowCount * width : rowCount;
      return { kind: "list", offsets, child: values.finish(child === undefined ? 0 : childRows), valid: undefined };
    },
  };
}

function texts(): PredictionColumn {
  const pieces: { readonly at: number; readonly rowCount: number; readonly column: BytesColumn }[] = [];
  let bytes = 0;
  return {
    get bytes() {
      return bytes;
    },
    set(at, rowCount, { tensor, width, element = 0 }) {
      if (tensor.dtype !== "string") {
        throw new TypeError(`expected strings, found a tensor of ${tensor.dtype}`);
      }
      const all = { kind: "bytes", ...tensor.data, valid: undefined } as const;
      const column = width === 1 ? all : everyNth(all, { rowCount, width, element });
      pieces.push({ at, rowCount, column });
      bytes += column.bytes.length + column.offsets.byteLength;
    },
    finish(length) {
      const whole = createColumnBuilder("utf8", length);
      for (const { at, rowCount, column } of pieces.toSorted((a, b) => a.at - b.at)) {
        whole.append(emptyTexts(at - whole.rowCount), 0, at - whole.rowCount); // rows that have no prediction
        whole.append(column, 0, rowCount);
      }
      whole.append(emptyTexts(length - whole.rowCount), 0, length - whole.rowCount);
      return whole.finish();
    },
  };
}

function everyNth(
  column: Column,
  { rowCount, width, element }: { rowCount: number; width: number; element: number },
): BytesColumn {
  const picked = createColumnBuilder("utf8", rowCount);
  for (let row = 0; row < rowCount; row += 1) {
    picked.append(column, row * width + element, row * width + element + 1);
  }
  return picked.finish() as BytesColumn; // as all builders of texts make
}
