import { readSync } from "node:fs";
import { isUtf8 } from "node:buffer";
import type { BytesColumn } from "../columns/types.js";

/** One read of the system takes 2 GiB at most. */
export const readLimitBytes = 2 ** 30;

/** Fills `bytes` from byte `start` of a file on. Returns how many there were: fewer where the file ends before. */
export function readFully(descriptor: number, bytes: Uint8Array, start: number): number {
  let at = 0;
  while (at < bytes.length) {
    const bytesRead = readSync(descriptor, bytes, at, Math.min(bytes.length - at, readLimitBytes), start + at);
    if (bytesRead === 0) {
      break;
    }
    at += bytesRead;
  }
  return at;
}

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
