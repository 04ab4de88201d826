/** Buckets for each doubling: the upper bound of a bucket is 9% above its lower bound. */
const perDoubling = 8;
/** Up to 2^22 ms, more than an hour. */
const bucketCount = 22 * perDoubling;

/** Latencies, counted in buckets: their number does not grow with the requests. */
export interface Latencies {
  add(ms: number): void;
  /** The latency that a share of the requests did not exceed, in milliseconds; null without requests. */
  quantile(share: number): number | null;
}

export function createLatencies(): Latencies {
  const counts = new Uint32Array(bucketCount);
  let total = 0;
  return {
    add(ms) {
      const bucket = Math.floor(Math.log2(Math.max(1, ms)) * perDoubling);
      const at = Math.min(bucketCount - 1, bucket);
      counts[at] = (counts[at] ?? 0) + 1;
      total += 1;
    },
    quantile(share) {
      let seen = 0;
      for (const [bucket, count] of counts.entries()) {
        seen += count;
        if (count > 0 && seen >= total * share) {
          return 2 ** ((bucket + 1) / perDoubling);
        }
      }
      return null;
    },
  };
}
