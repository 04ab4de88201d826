import type { RowRange } from "../columnar/types.js";
import type { SpanRange } from "./worker-shares.js";
import type { Plan, PlannedShard, Slice, Span } from "./plan.js";

/** The number of a plan's spans. */
export function spanCount(plan: Plan): number {
  return Math.ceil(plan.input.rows / plan.commitRows);
}

/** The span with this index. */
export function spanAt(plan: Plan, index: number): Span {
  const rowStart = index * plan.commitRows;
  return { index, rowStart, rowEnd: Math.min(rowStart + plan.commitRows, plan.input.rows) };
}

/** The rows of the spans [from, to), by index. */
export function rowsOfSpans(
  { input: { rows }, commitRows }: Plan,
  { from, to }: SpanRange,
): RowRange {
  return { rowStart: from * commitRows, rowEnd: Math.min(to * commitRows, rows) };
}

/** The spans of a plan. */
export interface Spans {
  readonly count: number;
  at(index: number): Span;
  /** The slices of shards that make up rows [rowStart, rowEnd) of the run, in order; none is empty. */
  slices(range: RowRange): Slice[];
  /** The shard that contains a row of the run, and the row's number within it. @throws RangeError without shards */
  locate(row: number): { shard: PlannedShard; row: number };
}

/** Indexes a plan's shards, to find rows among very many of them by binary search. */
export function spansOf(plan: Plan): Spans {
  const { shards } = plan.input;
  const starts = new Float64Array(shards.length + 1);
  for (const [index, shard] of shards.entries()) {
    starts[index + 1] = (starts[index] ?? 0) + shard.rows;
  }
  const shardOf = (row: number): number => {
    let low = 0;
    let high = shards.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if ((starts[middle] ?? 0) <= row) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  };
  return {
    count: spanCount(plan),
    at: (index) => spanAt(plan, index),
    slices({ rowStart, rowEnd }) {
      const slices: Slice[] = [];
      for (let index = shardOf(rowStart); index < shards.length; index += 1) {
        const shard = shards[index];
        const start = starts[index] ?? 0;
        if (shard === undefined || start >= rowEnd) {
          break;
        }
        const from = Math.max(0, rowStart - start);
        const to = Math.min(shard.rows, rowEnd - start);
        if (from < to) {
          slices.push({ shard, rowStart: from, rowEnd: to });
        }
      }
      return slices;
    },
    locate(row) {
      const index = shardOf(row);
      const shard = shards[index];
      if (shard === undefined) {
        throw new RangeError(`row ${row} of a plan without shards`);
      }
      return { shard, row: row - (starts[index] ?? 0) };
    },
  };
}
