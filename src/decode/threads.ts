import { valuesPerRow } from "../batch/contract.js";
import type { Projection } from "./port.js";

/**
 * What decoding may hold for each thread that there could be. A thread that decodes holds a page of each column,
 * mostly 512 KiB a value of a row: 100 MB where there are 200 columns.
 */
const decodingBytesPerThread = 64 * 1024 * 1024;
const pageBytes = 512 * 1024;

/** Fewer than `threads` where each holds more than its part. */
export function decodingThreads(threads: number, projection: Projection): number {
  const fitting = Math.floor((threads * decodingBytesPerThread) / (valuesPerRow(projection) * pageBytes));
  return Math.max(1, Math.min(threads, fitting));
}
