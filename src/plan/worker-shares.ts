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
export function shareOf(spanCount: number, { index, count }: Worker): SpanRange {
  return { from: Math.floor((spanCount * index) / count), to: Math.floor((spanCount * (index + 1)) / count) };
}

/** The most spans that a worker takes over at once. */
const maxStolenSpans = 4;

/**
 * The spans to take over from another worker: the last pending ones of the share with the most pending spans,
 * because its owner works from the front. Among equal shares each worker picks a different one.
 * @param committed a flag for each span
 */
export function spansToSteal(committed: Uint8Array, worker: Worker): SpanRange | undefined {
  let best: { readonly range: SpanRange; readonly pending: number } | undefined;
  for (let step = 1; step <= worker.count; step += 1) {
    const index = (worker.index + step) % worker.count;
    const range = shareOf(committed.length, { index, count: worker.count });
    const pending = committed.subarray(range.from, range.to).reduce((sum, flag) => sum + 1 - flag, 0);
    if (pending > (best?.pending ?? 0)) {
      best = { range, pending };
    }
  }
  if (best === undefined) {
    return undefined;
  }
  const to = committed.lastIndexOf(0, best.range.to - 1) + 1;
  const wanted = Math.min(maxStolenSpans, Math.ceil(best.pending / 2));
  return { from: Math.max(best.range.from, to - wanted), to };
}
