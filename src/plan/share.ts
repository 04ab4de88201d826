/** One of several processes that carry out a run together. */
export interface Worker {
  /** From 0. */
  readonly index: number;
  readonly count: number;
}

/** Spans [from, to). */
export interface SpanRange {
  readonly from: number;
  readonly to: number;
}

/** A worker's part of a run: neighbouring spans, so that it reads neighbouring rows. */
export function shareOf(spanCount: number, { index, count }: Worker): SpanRange {
  return { from: Math.floor((spanCount * index) / count), to: Math.floor((spanCount * (index + 1)) / count) };
}

/** Spans that are taken over at once. */
const stolenAtOnce = 4;

/**
 * Spans of another worker that are worth taking over: the last ones that are pending in the share where most are,
 * since its owner, if it lives, works from the front. Of equal shares each worker takes another one.
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
  const wanted = Math.min(stolenAtOnce, Math.ceil(best.pending / 2));
  return { from: Math.max(best.range.from, to - wanted), to };
}
