import { writeSync } from "node:fs";

/** Writes all bytes at an offset of a file: on a disk that is full, the system may write a part of them first. */
export function writeAll(file: number, bytes: Uint8Array, at: number): void {
  for (let written = 0; written < bytes.length; ) {
    written += writeSync(file, bytes, written, bytes.length - written, at + written);
  }
}
