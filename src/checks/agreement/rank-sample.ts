import { hashOfRow } from "../profile/features.js";

/** The numbers that two models predict for a sample of the rows. */
export interface RankSample {
  /** A row is in the sample if its hash ends in at least this many zero bits; 0: all rows are. */
  readonly level: number;
  readonly rows: Float64Array;
  readonly one: Float64Array;
  readonly other: Float64Array;
}

/** The limit of rows in a sample. */
export const sampledRows = 100_000;

/**
 * Takes at most `limit` rows, chosen by a hash of their numbers: each level halves the sample. The sample depends only
 * on the rows, neither on how they were divided nor on the order of merging.
 */
export function limitSample(sample: RankSample, limit = sampledRows): RankSample {
  let limited = sample;
  while (limited.rows.length > limit && limited.level < 32) {
    limited = raise(limited, limited.level + 1);
  }
  return limited;
}

/** Merges the samples of different rows. */
export function mergeSamples(first: RankSample, second: RankSample, limit = sampledRows): RankSample {
  const level = Math.max(first.level, second.level);
  const [a, b] = [raise(first, level), raise(second, level)];
  return limitSample(
    { level, rows: joined(a.rows, b.rows), one: joined(a.one, b.one), other: joined(a.other, b.other) },
    limit,
  );
}

/** Whether a sample of this level has a row. */
export function isSampled(row: number, level: number): boolean {
  const hash = hashOfRow(row);
  return level < 32 ? (hash & ((1 << level) - 1)) === 0 : hash === 0; // a remainder of floats takes longer than all else
}

/** The level of a sample that has about `limit` of so many rows, at most. */
export function levelFor(rows: number, limit: number): number {
  return Math.max(0, Math.ceil(Math.log2(rows / limit)));
}

function raise(sample: RankSample, level: number): RankSample {
  if (sample.level === level) {
    return sample;
  }
  const isKept = (_value: number, index: number): boolean => isSampled(sample.rows[index] as number, level);
  return {
    level,
    rows: sample.rows.filter(isKept),
    one: sample.one.filter(isKept),
    other: sample.other.filter(isKept),
  };
}

function joined(one: Float64Array, other: Float64Array): Float64Array {
  const all = new Float64Array(one.length + other.length);
  all.set(one);
  all.set(other, one.length);
  return all;
}

/**
 * Computes Spearman's rank correlation of the two predictions: Pearson's correlation of their ranks, where equal numbers
 * share the mean of their ranks. NaN if one model predicts the same number for all rows. The sums are exact for 100,000
 * rows, so that their order does not matter.
 */
export function rankCorrelation({ one, other }: RankSample): number {
  const [a, b] = [ranksOf(one), ranksOf(other)];
  const mean = (a.length + 1) / 2;
  let [product, ones, others] = [0, 0, 0];
  for (let index = 0; index < a.length; index += 1) {
    const [x, y] = [(a[index] as number) - mean, (b[index] as number) - mean];
    product += x * y;
    ones += x * x;
    others += y * y;
  }
  return product / Math.sqrt(ones * others);
}

function ranksOf(values: Float64Array): Float64Array {
  const sorted = values.toSorted();
  const ranks = new Map<number, number>();
  for (let from = 0; from < sorted.length; ) {
    const value = sorted[from] as number;
    let to = from + 1;
    while (to < sorted.length && sorted[to] === value) {
      to += 1;
    }
    ranks.set(value, (from + 1 + to) / 2);
    from = to;
  }
  return values.map((value) => ranks.get(value) as number);
}
