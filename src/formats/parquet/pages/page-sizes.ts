import { promises } from "node:fs";
import { errnoOf, JobError } from "../../../util/errors.js";
import type { MemoryBudget } from "../../../util/memory-budget.js";
import type { SliceRequest } from "../../port.js";
import type { Damage } from "../damage.js";
import { type ColumnChunk, type Footer, placeOf } from "../footer/footer.js";
import { groupsBetween } from "../footer/groups.js";
import { chunksOf } from "../long-values.js";
import { tooLarge } from "../../too-large.js";
import { PageFault, pagesOf, unbuffered } from "./page-walk.js";

/**
 * The first page of a slice, or dictionary, that there is no memory for. What a page holds is decoded as a whole,
 * whatever part of it is wanted. Only headers are read, of chunks that are larger than a page may be.
 */
export async function findLargePage(
  footer: Footer,
  slice: SliceRequest,
  memory: MemoryBudget,
): Promise<Damage | undefined> {
  const { path } = slice.file;
  for (const { group, chunks, rowStart } of groupsBetween(footer, slice)) {
    for (const chunk of chunksOf(chunks, slice)) {
      if (!chunk.encrypted && chunk.uncompressedBytes > memory.pageBytes) {
        const size = await largestPage(path, footer, chunk);
        if (size > memory.pageBytes) {
          const large = { sizeBytes: size, limitBytes: memory.pageBytes, what: "a page", remedy: smallerPages };
          return { error: tooLarge(`reading ${path}: ${placeOf(group, chunk)}`, memory, large), rowStart };
        }
      }
    }
  }
  return undefined;
}

/** Bytes of the largest page of a chunk, unpacked; 0 where its headers are damaged, which reading it tells. */
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

/** How a shard is written so that its pages fit. */
export const smallerPages =
  "write the shard with smaller pages (pyarrow: write_batch_size and data_page_size), or leave the column out of output.columns";
