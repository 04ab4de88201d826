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
