import type { FileHandle } from "node:fs/promises";
import { JobError } from "../../../util/errors.js";
import { rewriteShard } from "../../error-hints.js";
import type { ShardFile } from "../../port.js";

/** `PAR1`, then pages; at the end the footer, its length and `PAR1`. */
export const magicBytes = 4;
const tailBytes = 8;
const leastBytes = magicBytes + tailBytes;
/** Bytes of the first read: most footers fit. A second request costs more than some more bytes. */
const guessBytes = { local: 32 * 1024, remote: 64 * 1024 };

export function corruptFooter(path: string, found: string, hint: string, cause?: unknown): JobError {
  return new JobError("SHARD_CORRUPT", `reading the footer of ${path}: ${found}`, { hint, cause });
}

/** The bytes of a footer, and where pages end. @throws JobError SHARD_CORRUPT */
export async function readTail(
  file: FileHandle,
  size: number,
  { path, remote }: Pick<ShardFile, "path" | "remote">,
): Promise<{ bytes: Uint8Array; pagesEnd: number }> {
  const readAt = async (start: number, length: number): Promise<Uint8Array> => {
    await remote?.fetch([{ start, end: start + length }], { keep: true });
    const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(length), 0, length, start);
    return buffer.subarray(0, bytesRead);
  };
  if (size === 0) {
    throw corruptFooter(path, "the file is empty (0 bytes)", `its writer was stopped, perhaps; ${rewriteShard}`);
  }
  const guess = Math.min(size, remote === undefined ? guessBytes.local : guessBytes.remote);
  const tail = await readAt(size - guess, guess);
  const magic = size < leastBytes ? "" : latin1(tail.subarray(-magicBytes));
  if (magic === "PARE") {
    throw corruptFooter(
      path,
      "it is encrypted",
      "encrypted files are not supported; write the shard without encryption",
    );
  }
  if (magic !== "PAR1") {
    const head = latin1(await readAt(0, Math.min(size, magicBytes)));
    if (head === "PAR1" || head === "PARE") {
      const hint = `the file was cut off, or is still being written; ${rewriteShard}`;
      throw corruptFooter(path, `it begins as Parquet, but its end is missing (${size} bytes)`, hint);
    }
    const shown = JSON.stringify(head);
    throw corruptFooter(
      path,
      `it is not Parquet: it begins with ${shown}, not "PAR1"`,
      /^(ARRO|\xff{4})$/.test(head)
        ? "Arrow files end in .arrow, streams in .arrows; under another name they need input.format: arrow"
        : `shards are Parquet, or Arrow under names that end in .arrow; ${rewriteShard}`,
    );
  }
  const length = new DataView(tail.buffer, tail.byteOffset + tail.length - tailBytes).getUint32(0, true);
  const pagesEnd = size - tailBytes - length;
  if (pagesEnd < magicBytes) {
    const found = `it claims to have a footer of ${length} bytes, in a file of ${size}`;
    throw corruptFooter(path, found, `the file was damaged, or cut at its beginning; ${rewriteShard}`);
  }
  const within = tail.length - tailBytes - length;
  const bytes = within >= 0 ? tail.subarray(within, within + length) : await readAt(pagesEnd, length);
  return { bytes, pagesEnd };
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("latin1");
}
