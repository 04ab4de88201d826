import type { Column, ListColumn } from "../../../columnar/types.js";
import type { FieldWriter, Out } from "./fields.js";

/** The binary form of pgvector's `vector`: int16 dimensions, int16 zero, then a float32 each. */
const headerBytes = 4;
/** The most dimensions that pgvector stores. */
export const mostDimensions = 16_000;

/** Writes lists of float32, without NULLs among their elements, as pgvector's `vector`. */
export function vectorField(column: Column): FieldWriter {
  const { offsets, valid, numbers } = vectorsOf(column);
  const bytesOf = (row: number): number => headerBytes + 4 * ((offsets[row + 1] as number) - (offsets[row] as number));
  const writeRow = ({ view }: Out, at: number, row: number): number => {
    const [start, end] = [offsets[row] as number, offsets[row + 1] as number];
    view.setInt32(at, bytesOf(row));
    view.setInt16(at + 4, end - start);
    view.setInt16(at + 6, 0);
    let next = at + 4 + headerBytes;
    for (let index = start; index < end; index += 1, next += 4) {
      view.setFloat32(next, numbers[index] as number);
    }
    return next;
  };
  return {
    width: undefined,
    measure(from, to, sizes) {
      for (let row = from; row < to; row += 1) {
        sizes[row - from] = (sizes[row - from] as number) + (valid?.[row] === 0 ? 0 : bytesOf(row));
      }
    },
    write(from, to, out, positions) {
      for (let row = from; row < to; row += 1) {
        const at = positions[row - from] as number;
        if (valid?.[row] === 0) {
          out.view.setInt32(at, -1);
          positions[row - from] = at + 4;
        } else {
          positions[row - from] = writeRow(out, at, row);
        }
      }
    },
  };
}

/** The lists of a column, and their elements. */
export function vectorsOf(column: Column): Pick<ListColumn, "offsets" | "valid" | "child"> & {
  readonly numbers: Float32Array;
} {
  if (column.kind !== "list" || column.child.kind !== "fixed" || !(column.child.data instanceof Float32Array)) {
    throw new TypeError(`a ${column.kind} column came where lists of float32 are due`);
  }
  const { offsets, valid, child } = column;
  return { offsets, valid, child, numbers: column.child.data };
}
