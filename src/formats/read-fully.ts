import { readSync } from "node:fs";

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
