import { isUtf8 } from "node:buffer";
import type { BytesColumn } from "../columnar/types.js";

/** Checks that each text is UTF-8: all bytes are, and no text begins inside a character. @throws RangeError */
export function checkTexts({ offsets, bytes }: Pick<BytesColumn, "offsets" | "bytes">): void {
  let whole = isUtf8(bytes);
  for (let row = 0; whole && row < offsets.length; row += 1) {
    whole = ((bytes[offsets[row] as number] ?? 0) & 0xc0) !== 0x80;
  }
  if (!whole) {
    throw new RangeError("a text is not UTF-8");
  }
}
