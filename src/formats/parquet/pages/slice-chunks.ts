import type { MemoryBudget } from "../../../util/memory-budget.js";
import type { SliceRequest } from "../../port.js";
import { tooLarge } from "../../too-large.js";
import type { Damage } from "../damage.js";
import { type ColumnChunk, type Footer, placeOf } from "../footer/footer.js";
import { groupsBetween } from "../footer/groups.js";
import type { Leaf } from "../footer/leaves.js";
import { chunksOf } from "../long-values.js";

/** A column chunk that a slice reads. */
export interface SliceChunk {
  readonly chunk: ColumnChunk;
  readonly leaf: Leaf;
  /** "row group 3, column `user.age`" */
  readonly place: string;
  /** The first row of the slice that the chunk has. */
  readonly rowStart: number;
}

/** Yields the column chunks that a slice reads, row group by row group, except encrypted ones. */
export function* sliceChunks(footer: Footer, slice: SliceRequest): Generator<SliceChunk> {
  for (const { group, chunks, rowStart } of groupsBetween(footer, slice)) {
    for (const chunk of chunksOf(chunks, slice)) {
      const leaf = footer.leaves[chunks.indexOf(chunk)];
      if (leaf !== undefined && !chunk.encrypted) {
        yield { chunk, leaf, place: placeOf(group, chunk), rowStart };
      }
    }
  }
}

/** Returns the error for a chunk with a page that exceeds the memory limit. */
export function largePage(
  path: string,
  { place, rowStart }: SliceChunk,
  { memory, sizeBytes, what }: { readonly memory: MemoryBudget; readonly sizeBytes: number; readonly what: string },
): Damage {
  const page = { sizeBytes, limitBytes: memory.pageBytes, what, remedy: smallerPages };
  return { error: tooLarge(`reading ${path}: ${place}`, memory, page), rowStart };
}

/** How to write a shard so that its pages fit into memory. */
const smallerPages =
  "write the shard with smaller pages (pyarrow: write_batch_size and data_page_size), or leave the column out of output.columns";
