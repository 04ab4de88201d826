import { decodedRowBytes } from "../binding/row-bytes.js";
import type { Projection } from "../binding/contract.js";

/**
 * What decoding may hold for each thread that there could be. A thread that decodes holds a page of each column, mostly
 * of 128 Ki values: 100 MB where there are 200 columns of floats.
 */
const decodingBytesPerThread = 64 * 1024 * 1024;
const pageValues = 128 * 1024;

/** Threads that decode: fewer than `threads` where each would hold more than its share of memory. */
export function decodingThreads(threads: number, projection: Projection): number {
  const fitting = Math.floor((threads * decodingBytesPerThread) / (decodedRowBytes(projection) * pageValues));
  return Math.max(1, Math.min(threads, fitting));
}
