import { promises } from "node:fs";
import { errnoOf, JobError } from "../../../util/errors.js";
import type { MemoryBudget } from "../../../util/memory-budget.js";
import type { SliceRequest } from "../../port.js";
import type { Damage } from "../damage.js";
import type { ColumnChunk, Footer } from "../footer/footer.js";
import { PageFault, pagesOf, unbuffered } from "./page-walk.js";
import { largePage, sliceChunks } from "./slice-chunks.js";

/**
 * The first page of a slice, or dictionary, that there is no memory for. What a page holds is decoded as a whole, even
 * if only a part is needed. Only headers are read, and only in chunks that are larger than the limit of a page.
 */
export async function findLargePage(
  footer: Footer,
  slice: SliceRequest,
  memory: MemoryBudget,
): Promise<Damage | undefined> {
  const { path } = slice.file;
  for (const found of sliceChunks(footer, slice)) {
    if (found.chunk.uncompressedBytes > memory.pageBytes) {
      const sizeBytes = await largestPage(path, footer, found.chunk);
      if (sizeBytes > memory.pageBytes) {
        return largePage(path, found, { memory, sizeBytes, what: "a page" });
      }
    }
  }
  return undefined;
}

/**
 * Returns the uncompressed size of the largest page of a chunk; 0 if its headers are damaged, which the decoder
 * reports.
 */
async function largestPage(path: string, footer: Footer, chunk: ColumnChunk): Promise<number> {
  const end = chunk.start + chunk.compressedBytes;
  let largest = 0;
  try {
    await using file = await promises.open(path);
    for await (const { header, bodyEnd } of pagesOf(unbuffered(file, footer), chunk, footer)) {
      largest = Math.max(largest, header.uncompressedBytes);
      if (bodyEnd >= end) {
        break;
      }
    }
    return largest;
  } catch (error) {
    if (error instanceof PageFault) {
      return 0;
    }
    throw new JobError("DISK", `reading ${path}: ${errnoOf(error)}`, { cause: error });
  }
}
