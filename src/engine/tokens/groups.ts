/** Rows that are scored in one call of the model. */
export interface RowGroup {
  /** Their indices among the rows of the batch. */
  readonly rows: Uint32Array;
  /** Tokens of the longest of them. */
  readonly width: number;
}

/** A call of the model costs about as much as so many tokens of padding. */
const callTokens = 256;
/** More tokens than these leave the processor's cache between two layers. */
const mostTokens = 8192;

/** Sorts rows by length, and cuts them into groups in which little is padding. No row is of no length. */
export function groupByLength(lengths: readonly number[]): RowGroup[] {
  const order = Uint32Array.from(lengths.keys()).toSorted((one, other) => (lengths[other] ?? 0) - (lengths[one] ?? 0));
  const groups: RowGroup[] = [];
  for (let from = 0; from < order.length; ) {
    const width = Math.max(1, lengths[order[from] ?? 0] ?? 0);
    let to = from;
    for (let padding = 0; to < order.length; to += 1) {
      padding += width - (lengths[order[to] ?? 0] ?? 0);
      if (to > from && (padding > callTokens || (to + 1 - from) * width > mostTokens)) {
        break;
      }
    }
    groups.push({ rows: order.subarray(from, to), width });
    from = to;
  }
  return groups;
}

/** All rows in their order, in one group. @param width the width of the group; default: that of its longest row */
export function oneGroup(lengths: readonly number[], width?: number): RowGroup {
  const longest = lengths.reduce((most, length) => Math.max(most, length), 1);
  return { rows: Uint32Array.from(lengths.keys()), width: width ?? longest };
}
