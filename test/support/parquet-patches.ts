import { readFile, writeFile } from "node:fs/promises";

/** Replaces bytes of a file by as many others, wherever they are. */
export async function replaceBytes(path: string, from: Buffer, to: Buffer): Promise<void> {
  const bytes = await readFile(path);
  let at = bytes.indexOf(from);
  if (at < 0 || from.length !== to.length) {
    throw new Error(`${path} does not have the bytes ${from.toString("hex")}`);
  }
  for (; at >= 0; at = bytes.indexOf(from, at)) {
    to.copy(bytes, at);
  }
  await writeFile(path, bytes);
}

/** A 64-bit integer as Parquet stores it. */
export function longBytes(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64LE(value);
  return bytes;
}

/** Makes DuckDB's columns of nanoseconds columns in UTC: TimestampType is `{1: isAdjustedToUTC, 2: {3: NANOS}}`. */
export async function makeNanosUtc(path: string): Promise<void> {
  await replaceBytes(path, Buffer.from([0x12, 0x1c, 0x3c, 0, 0]), Buffer.from([0x11, 0x1c, 0x3c, 0, 0]));
}
