import { promises } from "node:fs";
import { errnoOf, JobError } from "../../util/errors.js";
import type { SliceRequest } from "../port.js";
import { type ColumnChunk, type Footer, withChunks } from "./footer/footer.js";
import { groupsBetween } from "./footer/groups.js";
import { chunksOf } from "./long-values.js";
import { PageFault, pagesOf, unbuffered } from "./pages/page-walk.js";

/** The size of lists from which a row group is cut into several units, as far as it has pages for them. */
export const listUnitBytes = 8 * 1024 * 1024;

/**
 * Fills in the size of pages in the chunks of lists that a slice reads. Writers cut pages of lists at very different
 * sizes: pyarrow at 1 MiB, DuckDB at 100 MB.
 */
export async function withPageBytes(
  footer: Footer,
  slice: Pick<SliceRequest, "file" | "rowStart" | "rowEnd" | "projection">,
): Promise<Footer> {
  const found = new Map<ColumnChunk, number>();
  for (const { chunks } of groupsBetween(footer, slice)) {
    for (const chunk of chunksOf(chunks, slice)) {
      const isList = footer.leaves[chunks.indexOf(chunk)]?.list !== undefined;
      if (isList && !chunk.encrypted && !chunk.isElsewhere) {
        found.set(chunk, await pageBytesOf(slice.file.path, footer, chunk));
      }
    }
  }
  return withChunks(footer, found, (chunk, pageBytes) => ({ ...chunk, pageBytes }));
}

/** Returns the size of a chunk's first page with rows, or of the dictionary before it, if that is larger. */
async function pageBytesOf(path: string, footer: Footer, chunk: ColumnChunk): Promise<number> {
  if (chunk.uncompressedBytes <= listUnitBytes) {
    return chunk.uncompressedBytes; // no page is larger than that
  }
  let largest = 0;
  try {
    await using file = await promises.open(path);
    for await (const { header } of pagesOf(unbuffered(file, footer), chunk, footer)) {
      largest = Math.max(largest, header.uncompressedBytes);
      if (header.kind !== "dictionary") {
        break;
      }
    }
    return largest;
  } catch (error) {
    if (error instanceof PageFault) {
      return largest; // reading it reports what is wrong
    }
    throw new JobError("DISK", `reading ${path}: ${errnoOf(error)}`, { cause: error });
  }
}
