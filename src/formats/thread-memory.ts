import { decodedRowBytes } from "../binding/row-bytes.js";
import type { Projection } from "../binding/contract.js";

/**
 * What decoding may hold for each thread that there could be. A thread that decodes holds a page of each column, mostly
 * of 128 Ki values: 100 MB where there are 200 columns of floats.
 */
const decodingBytesPerThread = 64 * 1024 * 1024;
const pageValues = 128 * 1024;

/** Fewer than `threads` where each holds more than its part. */
export function decodingThreads(threads: number, projection: Projection): number {
  const fitting = Math.floor((threads * decodingBytesPerThread) / (decodedRowBytes(projection) * pageValues));
  return Math.max(1, Math.min(threads, fitting));
}
