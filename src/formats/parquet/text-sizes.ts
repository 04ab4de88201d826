import { promises } from "node:fs";
import { errnoOf, JobError } from "../../util/errors.js";
import type { SliceRequest } from "../port.js";
import { type ColumnChunk, type Footer, withChunks } from "./footer/footer.js";
import { groupsBetween } from "./footer/groups.js";
import { chunksOf, longValueBytes } from "./long-values.js";
import { codecs } from "./pages/codecs.js";
import { PageFault, pagesOf, unbuffered } from "./pages/page-walk.js";
import { hasReadableStart, unpackStart } from "./pages/prefix.js";

/** The number of BYTE_ARRAY in parquet.thrift. */
const byteArray = 6;

/**
 * Fills in the bytes of a slice's texts in a footer of a writer without SizeStatistics. A dictionary stores a text
 * once, even if many rows have it: each row is assumed to have the longest one.
 * @param isConcerned default: all columns that the slice reads
 */
export async function withTextSizes(
  footer: Footer,
  slice: Pick<SliceRequest, "file" | "rowStart" | "rowEnd" | "projection">,
  isConcerned: (chunk: ColumnChunk) => boolean = () => true,
): Promise<Footer> {
  const found = new Map<ColumnChunk, number>();
  for (const { chunks } of groupsBetween(footer, slice)) {
    for (const chunk of chunksOf(chunks, slice)) {
      if (isUnknown(chunk) && isConcerned(chunk)) {
        const longest = await longestEntry(slice.file.path, footer, chunk);
        if (longest >= longValueBytes) {
          found.set(chunk, longest * chunk.values);
        }
      }
    }
  }
  return withChunks(footer, found, (chunk, unencodedBytes) => ({ ...chunk, unencodedBytes }));
}

function isUnknown({ type, unencodedBytes, uncompressedBytes, encrypted, codec }: ColumnChunk): boolean {
  return (
    type === byteArray &&
    unencodedBytes === undefined &&
    uncompressedBytes >= longValueBytes &&
    !encrypted &&
    hasReadableStart(codec)
  );
}

/** Returns the bytes of the longest text in a chunk's dictionary; 0 without one, or if it is damaged: reading reports it. */
async function longestEntry(path: string, footer: Footer, chunk: ColumnChunk): Promise<number> {
  try {
    await using file = await promises.open(path);
    const read = unbuffered(file, footer);
    for await (const { header, bodyStart } of pagesOf(read, chunk, footer)) {
      const { kind, compressedBytes, uncompressedBytes, isCompressed, entries } = header;
      if (kind !== "dictionary" || uncompressedBytes < longValueBytes) {
        return 0;
      }
      const packed = await read(bodyStart, compressedBytes);
      const isPlain = chunk.codec === codecs.none || !isCompressed;
      const size = { length: uncompressedBytes, wholeBytes: uncompressedBytes };
      return longestOf(isPlain ? packed : await unpackStart(chunk.codec, packed, size), entries);
    }
    return 0;
  } catch (error) {
    if (error instanceof PageFault || error instanceof RangeError) {
      return 0;
    }
    throw new JobError("DISK", `reading ${path}: ${errnoOf(error)}`, { cause: error });
  }
}

/** @throws RangeError where a length goes past the end of the bytes */
function longestOf(bytes: Uint8Array, entries: number): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let longest = 0;
  for (let at = 0, index = 0; index < entries; index += 1) {
    const length = view.getUint32(at, true);
    longest = Math.max(longest, length);
    at += Uint32Array.BYTES_PER_ELEMENT + length;
  }
  return longest;
}
