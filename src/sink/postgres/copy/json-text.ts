import { jsonOf } from "../../../columnar/json-text.js";
import type { BytesColumn, Column, ColumnType } from "../../../columnar/types.js";

/** Lists and structs as JSON, a text a row, in the shape that Postgres's own `to_json` gives. */
export function jsonTexts(type: ColumnType, column: Column, rowCount: number): BytesColumn {
  const encoder = new TextEncoder();
  const offsets = new Uint32Array(rowCount + 1);
  let bytes = new Uint8Array(rowCount * 64);
  let at = 0;
  for (let row = 0; row < rowCount; row += 1) {
    if (column.valid?.[row] !== 0) {
      const text = jsonOf(type, column, row);
      const textLimit = text.length * 3; // UTF-8 takes at most 3 bytes a UTF-16 unit
      if (at + textLimit > bytes.length) {
        const larger = new Uint8Array(Math.max(at + textLimit, bytes.length * 2));
        larger.set(bytes.subarray(0, at));
        bytes = larger;
      }
      at += encoder.encodeInto(text, bytes.subarray(at)).written;
    }
    offsets[row + 1] = at;
  }
  return { kind: "bytes", offsets, bytes: bytes.subarray(0, at), valid: column.valid };
}
