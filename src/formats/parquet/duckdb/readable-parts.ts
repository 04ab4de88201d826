import type { MemoryBudget } from "../../../util/memory-budget.js";
import type { SliceRequest } from "../../port.js";
import type { Footer } from "../footer/footer.js";
import { readFooter } from "../footer/read-footer.js";
import { plannedColumns } from "../../planned-columns.js";
import { isInexact } from "./exact-table.js";
import { boundedSlices, hasLongTypes } from "../long-values.js";
import { findUnfitLevels } from "../pages/levels.js";
import { findLargePage } from "../pages/page-sizes.js";
import { findUnfitPrefixes } from "../pages/prefixed-texts.js";
import { withTextSizes } from "../text-sizes.js";
import type { Damage } from "../damage.js";

/** The rows of a slice that DuckDB may be given. */
export interface ReadableParts {
  /** Parts that DuckDB reads one after the other, as its memory allows. */
  readonly parts: Iterable<SliceRequest>;
  readonly footer: Footer;
  /** What is wrong with the rows after these; undefined: the parts are the whole slice. */
  readonly unfit: Damage | undefined;
}

/**
 * Finds the rows of a slice that DuckDB may be given. Levels are checked first: if they do not fit their pages, DuckDB
 * may end the process.
 */
export async function readableParts(slice: SliceRequest, memory: MemoryBudget): Promise<ReadableParts> {
  const footer = await withTextSizes(await readFooter(slice.file), slice);
  const large = (await findLargePage(footer, slice, memory)) ?? (await findUnfitPrefixes(footer, slice, memory));
  const unfit = (await findUnfitLevels({ ...slice, rowEnd: large?.rowStart ?? slice.rowEnd })) ?? large;
  return { parts: boundedSlices(footer, { ...slice, rowEnd: unfit?.rowStart ?? slice.rowEnd }, memory), footer, unfit };
}

/** Whether DuckDB may be given whole shards in one query, whose values and types it reads as the plan has them. */
export async function areReadableTogether(slices: readonly SliceRequest[], memory: MemoryBudget): Promise<boolean> {
  for (const slice of slices) {
    const columns = plannedColumns(slice.projection);
    if (
      isInexact(await readFooter(slice.file), columns) ||
      (await findUnfitLevels(slice)) !== undefined ||
      (await isLarge(slice, memory))
    ) {
      return false;
    }
  }
  return true;
}

/**
 * Whether a shard, small as it is on disk, must be read with bounds of its own. Values of fixed width cannot make it
 * large: coalesced shards have few rows.
 */
async function isLarge(slice: SliceRequest, memory: MemoryBudget): Promise<boolean> {
  if (!hasLongTypes(slice.projection)) {
    return false;
  }
  const footer = await withTextSizes(await readFooter(slice.file), slice);
  const [first] = boundedSlices(footer, slice, memory);
  return (
    first?.rowEnd !== slice.rowEnd ||
    footer.rowGroups.some(({ chunks }) => chunks.some(({ hasPrefixes }) => hasPrefixes))
  );
}
