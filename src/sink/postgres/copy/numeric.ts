import { unscaled } from "../../../columnar/json-text.js";
import type { BytesColumn, FixedColumn } from "../../../columnar/types.js";

/**
 * Integers scaled by 10^scale as Postgres sends `numeric`: int16 digit count, int16 weight of the first digit,
 * uint16 sign (0x4000: negative), int16 decimal places, then the digits to base 10,000. See numeric_send in
 * src/backend/utils/adt/numeric.c.
 */
export function numericBytes(column: FixedColumn, scale: number, signed: boolean): BytesColumn {
  const rows = column.data.length / column.elementsPerValue;
  const offsets = new Uint32Array(rows + 1);
  const fieldLimit = 8 + 2 * 12; // 38 digits on either side of the point take at most 11 words
  const bytes = new Uint8Array(rows * fieldLimit);
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (let row = 0; row < rows; row += 1) {
    if (column.valid?.[row] !== 0) {
      at = putNumeric(view, at, unscaled(column, row, signed), scale);
    }
    offsets[row + 1] = at;
  }
  return { kind: "bytes", offsets, bytes: bytes.subarray(0, at), valid: column.valid };
}

const negativeSign = 0x4000;

function putNumeric(view: DataView, at: number, text: string, scale: number): number {
  const negative = text.startsWith("-");
  const digits = (negative ? text.slice(1) : text).padStart(scale + 1, "0");
  const whole = digits.slice(0, digits.length - scale);
  const fraction = digits.slice(digits.length - scale);
  const left = whole.padStart(Math.ceil(whole.length / 4) * 4, "0");
  const words = left + fraction.padEnd(Math.ceil(fraction.length / 4) * 4, "0");
  let first = 0;
  let end = words.length;
  while (first < end && words.startsWith("0000", first)) {
    first += 4;
  }
  while (end > first && words.startsWith("0000", end - 4)) {
    end -= 4;
  }
  const count = (end - first) / 4;
  view.setInt16(at, count);
  view.setInt16(at + 2, count === 0 ? 0 : (left.length - first) / 4 - 1);
  view.setUint16(at + 4, negative && count > 0 ? negativeSign : 0);
  view.setInt16(at + 6, scale);
  let next = at + 8;
  for (let word = first; word < end; word += 4) {
    view.setInt16(next, Number(words.slice(word, word + 4)));
    next += 2;
  }
  return next;
}
