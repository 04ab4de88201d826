import type { RowRange } from "../../columns/types.js";
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
export function rowsOfSpans({ input: { rows }, commitRows }: Plan, { from, to }: SpanRange): RowRange {
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

/** One of several processes that work on a run together. */
export interface Worker {
  /** The worker's index, from 0 to `count` - 1. */
  readonly index: number;
  readonly count: number;
}

/** The spans [from, to), by index. */
export interface SpanRange {
  readonly from: number;
  readonly to: number;
}

/** A worker's share of a run: neighbouring spans, so that it reads neighbouring rows. */
export function shareOf(spans: number, { index, count }: Worker): SpanRange {
  return { from: Math.floor((spans * index) / count), to: Math.floor((spans * (index + 1)) / count) };
}

const maxStolenSpans = 4;

/**
 * The spans to take over from another worker: the last pending ones of the share with the most pending spans,
 * because its owner works from the front. Among equal shares each worker picks a different one.
 */
export function spansToSteal(
  spans: number,
  committed: Pick<ReadonlyMap<number, unknown>, "has">,
  worker: Worker,
): SpanRange | undefined {
  let best: { readonly from: number; readonly pending: readonly number[] } | undefined;
  for (let step = 1; step <= worker.count; step += 1) {
    const index = (worker.index + step) % worker.count;
    const { from, to } = shareOf(spans, { index, count: worker.count });
    const pending = Array.from({ length: to - from }, (_, at) => from + at).filter((span) => !committed.has(span));
    if (pending.length > (best?.pending.length ?? 0)) {
      best = { from, pending };
    }
  }
  if (best === undefined) {
    return undefined;
  }
  const to = (best.pending.at(-1) ?? 0) + 1;
  const wanted = Math.min(maxStolenSpans, Math.ceil(best.pending.length / 2));
  return { from: Math.max(best.from, to - wanted), to };
}
