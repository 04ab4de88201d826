/**
 * Texts that share their beginning with the one before (DELTA_BYTE_ARRAY). DuckDB makes all texts of a page at once, and
 * takes memory for one before it looks whether the text before is as long as the beginning that they share: so a page
 * of some bytes can take any memory. https://github.com/apache/parquet-format/blob/master/Encodings.md#DELTASTRING
 */
import { promises } from "node:fs";
import { errnoOf, JobError, messageOf } from "../../../util/errors.js";
import type { MemoryBudget } from "../../../util/memory-budget.js";
import type { SliceRequest } from "../../port.js";
import { corrupt, type Damage } from "../damage.js";
import type { ColumnChunk, Footer } from "../footer/footer.js";
import type { Leaf } from "../footer/leaves.js";
import { codecs } from "./codecs.js";
import { readLengths } from "./delta-lengths.js";
import { type Page, PageFault, pagesOf, type ReadBytes, windowed } from "./page-walk.js";
import { hasReadableStart, unpackStart } from "./prefix.js";
import { largePage, sliceChunks } from "./slice-chunks.js";

/** The number of DELTA_BYTE_ARRAY in parquet.thrift. */
const prefixedEncoding = 7;

/** Finds the first page of a slice whose prefixes contradict each other, or whose texts do not fit into memory. */
export async function findUnfitPrefixes(
  footer: Footer,
  slice: SliceRequest,
  memory: MemoryBudget,
): Promise<Damage | undefined> {
  const { path } = slice.file;
  for (const found of sliceChunks(footer, slice)) {
    const { chunk, leaf, place, rowStart } = found;
    if (!chunk.hasPrefixes || !hasReadableStart(chunk.codec)) {
      continue;
    }
    try {
      await using file = await promises.open(path);
      const sizeBytes = await largestTexts(windowed(file, footer), { footer, chunk, leaf });
      if (sizeBytes > memory.pageBytes) {
        return largePage(path, found, { memory, sizeBytes, what: "a page of texts that share their beginnings" });
      }
    } catch (error) {
      if (error instanceof PageFault) {
        return { error: corrupt(path, `${place}: ${error.message}`), rowStart };
      }
      throw new JobError("DISK", `reading ${path}: ${errnoOf(error) ?? messageOf(error)}`, { cause: error });
    }
  }
  return undefined;
}

interface PrefixedChunk {
  readonly footer: Footer;
  readonly chunk: ColumnChunk;
  readonly leaf: Leaf;
}

/** Returns the size of the texts of the page with the largest texts. @throws PageFault */
async function largestTexts(read: ReadBytes, { footer, chunk, leaf }: PrefixedChunk): Promise<number> {
  const end = chunk.start + chunk.compressedBytes;
  let largest = 0;
  for await (const page of pagesOf(read, chunk, footer)) {
    const { header, place, bodyEnd } = page;
    if (header.kind.startsWith("data") && header.encoding === prefixedEncoding && header.values > 0) {
      try {
        const bytes = await unpackPage(read, chunk, page);
        largest = Math.max(largest, textBytes(bytes.subarray(valuesAt(bytes, page, leaf)), header.values));
      } catch (error) {
        throw errnoOf(error) === undefined ? new PageFault(chunk, `${place}: ${messageOf(error)}`) : error;
      }
    }
    if (bodyEnd >= end) {
      break;
    }
  }
  return largest;
}

/** Uncompresses a page. The levels of a page of version 2 come before the compressed bytes. */
async function unpackPage(read: ReadBytes, { codec }: ColumnChunk, { header, bodyStart }: Page): Promise<Uint8Array> {
  const { kind, levelBytes, compressedBytes, uncompressedBytes, isCompressed } = header;
  const levels = kind === "data-v2" ? levelBytes.repetition + levelBytes.definition : 0;
  const packed = await read(bodyStart, compressedBytes);
  if (packed.length < compressedBytes || levels > compressedBytes) {
    throw new RangeError("it ends in the middle");
  }
  if (codec === codecs.none || !isCompressed) {
    return packed;
  }
  const wholeBytes = uncompressedBytes - levels;
  const values = await unpackStart(codec, packed.subarray(levels), { length: wholeBytes, wholeBytes });
  return Buffer.concat([packed.subarray(0, levels), values]);
}

/** Returns where values begin, behind the levels. */
function valuesAt(bytes: Uint8Array, { header: { kind, levelBytes } }: Page, leaf: Leaf): number {
  if (kind === "data-v2") {
    return levelBytes.repetition + levelBytes.definition;
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  for (const most of [leaf.repetition, leaf.definition]) {
    at += most === 0 ? 0 : Uint32Array.BYTES_PER_ELEMENT + view.getUint32(at, true);
  }
  return at;
}

/** Returns the size of all texts of a page. @throws RangeError for a prefix that is longer than the text before */
function textBytes(values: Uint8Array, most: number): number {
  const cursor = { bytes: values, at: 0 };
  const prefixes = readLengths(cursor, most);
  const suffixes = readLengths(cursor, most);
  if (prefixes.length !== suffixes.length) {
    throw new RangeError(`${prefixes.length} beginnings and ${suffixes.length} ends of texts`);
  }
  let before = 0;
  let total = 0;
  for (let index = 0; index < prefixes.length; index += 1) {
    const prefix = prefixes[index] as number;
    if (prefix > before) {
      throw new RangeError(`a text begins like ${prefix} bytes of the one before it, which has ${before}`);
    }
    before = prefix + (suffixes[index] as number);
    total += before;
  }
  return total;
}
