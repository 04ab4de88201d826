import type { ColumnChunk, Footer } from "./footer.js";

/** The rows that a row group has in a range of the shard's rows. */
export interface GroupRows {
  /** The row group's number. */
  readonly group: number;
  /** The row group's first row, as a row of the shard, and how many rows it has. */
  readonly groupStart: number;
  readonly groupRows: number;
  /** Rows of the shard, those of the range that the row group has: [rowStart, rowEnd), at least one. */
  readonly rowStart: number;
  readonly rowEnd: number;
  readonly chunks: readonly ColumnChunk[];
}

/** The row groups that have rows of a range, in order. */
export function* groupsBetween(
  { rowGroups }: Pick<Footer, "rowGroups">,
  range: { readonly rowStart: number; readonly rowEnd: number },
): Generator<GroupRows> {
  let groupStart = 0;
  for (const [group, { rows: groupRows, chunks }] of rowGroups.entries()) {
    const rowStart = Math.max(groupStart, range.rowStart);
    const rowEnd = Math.min(groupStart + groupRows, range.rowEnd);
    if (rowStart < rowEnd) {
      yield { group, groupStart, groupRows, rowStart, rowEnd, chunks };
    }
    groupStart += groupRows;
  }
}
