import type { ListColumn } from "../../../columnar/types.js";
import type { FieldWriter, Out } from "./fields.js";

/** int32 dimensions, int32 "has NULLs", int32 element OID; then int32 length and int32 lower bound of each dimension. */
const headerBytes = 12;
const dimensionBytes = 8;

/** Writes lists as arrays of one dimension. `elements` writes the rows of the list's child. */
export function arrayField({ offsets, child, valid }: ListColumn, elements: FieldWriter, oid: number): FieldWriter {
  const { sizeRow, writeElements } = elementTools(elements);
  const hasNulls = child.valid === undefined ? 0 : 1;
  const boundsOf = (row: number): [number, number] => [offsets[row] as number, offsets[row + 1] as number];
  const writeRow = (out: Out, at: number, row: number): number => {
    const [start, end] = boundsOf(row);
    out.view.setInt32(at, headOf(end - start) + sizeRow(start, end));
    out.view.setInt32(at + 4, end === start ? 0 : 1);
    out.view.setInt32(at + 8, hasNulls);
    out.view.setUint32(at + 12, oid);
    if (end === start) {
      return at + 4 + headerBytes;
    }
    out.view.setInt32(at + 16, end - start);
    out.view.setInt32(at + 20, 1);
    return writeElements(out, at + 4 + headerBytes + dimensionBytes, start, end);
  };
  return {
    width: undefined,
    measure(from, to, sizes) {
      for (let row = from; row < to; row += 1) {
        if (valid?.[row] !== 0) {
          const [start, end] = boundsOf(row);
          sizes[row - from] = (sizes[row - from] as number) + headOf(end - start) + sizeRow(start, end);
        }
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

function headOf(length: number): number {
  return headerBytes + (length === 0 ? 0 : dimensionBytes);
}

/** Writes the elements of one row at a time. */
function elementTools(elements: FieldWriter): {
  /** Bytes of elements [start, end), including their length words. */
  sizeRow: (start: number, end: number) => number;
  /** Writes the elements that were sized last; returns where they end. */
  writeElements: (out: Out, at: number, start: number, end: number) => number;
} {
  const { width } = elements;
  let sizes = new Int32Array(1024);
  let positions = new Int32Array(1024);
  return {
    sizeRow(start, end) {
      const length = end - start;
      if (width !== undefined) {
        return length * (4 + width);
      }
      if (length > sizes.length) {
        sizes = new Int32Array(length * 2);
      }
      sizes.fill(4, 0, length);
      elements.measure(start, end, sizes);
      let bytes = 0;
      for (let index = 0; index < length; index += 1) {
        bytes += sizes[index] as number;
      }
      return bytes;
    },
    writeElements(out, at, start, end) {
      const length = end - start;
      if (length > positions.length) {
        positions = new Int32Array(length * 2);
      }
      let next = at;
      for (let index = 0; index < length; index += 1) {
        positions[index] = next;
        next += width === undefined ? (sizes[index] as number) : 4 + width;
      }
      elements.write(start, end, out, positions);
      return next;
    },
  };
}
