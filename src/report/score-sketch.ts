import type { BytesColumn, Column, ColumnType } from "../columnar/types.js";
import type { Values } from "../columnar/values.js";

/** How the values of a predicted column are distributed, from a sample of each span. */
export type ScoreSummary = ScoreCount & (NumberSummary | ValueSummary);

interface ScoreCount {
  readonly column: string;
  /** All of them; of a list column its elements. */
  readonly values: number;
  /** Those that were looked at. */
  readonly sampled: number;
}

interface NumberSummary {
  readonly kind: "numbers";
  readonly min: number;
  readonly max: number;
  readonly mean: number;
  /** Equal steps from `min` to `max`, with the values in each, extrapolated from the sample. */
  readonly bins: readonly number[];
}

interface ValueSummary {
  readonly kind: "values";
  /** Most first. */
  readonly counts: readonly { readonly value: string; readonly count: number }[];
  /** Of values beyond those that are kept apart. */
  readonly others: number;
}

export interface ScoreSketch {
  add(column: Column): void;
  /** undefined while there is nothing to tell. */
  summary(): ScoreSummary | undefined;
}

/** Values of a span that are looked at: its cost stays the same however large the span is. */
const sampledNumbers = 16_384;
/** Texts are decoded one by one. */
const sampledTexts = 1024;
/** More different ones are told as others. */
const valuesKept = 48;
const binCount = 24;

/** A sketch for a column of this type; undefined for types that are no prediction's. Its size is bounded. */
export function createScoreSketch(column: string, type: ColumnType): ScoreSketch | undefined {
  const element = typeof type === "object" && type.kind === "list" ? type.element : type;
  if (element === "bool" || element === "utf8") {
    return valueSketch(column, element === "bool" ? boolAt : textAt);
  }
  return typeof element === "string" ? numberSketch(column) : undefined;
}

/** A number's bucket: sign, exponent and five bits of the fraction of the float32 next to it. */
const fractionBits = 5;
const dropped = 23 - fractionBits;
const bucketCount = 2 ** (32 - dropped);
const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

interface Counted {
  readonly buckets: Float64Array;
  sum: number;
  min: number;
  max: number;
  /** Whether all of them are whole numbers. */
  whole: boolean;
}

function numberSketch(column: string): ScoreSketch {
  const draw = sampler(sampledNumbers);
  let counted: Counted | undefined;
  let [values, sampled] = [0, 0];
  return {
    add(given) {
      const data = numbersOf(given);
      if (data === undefined || data.length === 0) {
        return;
      }
      counted ??= {
        buckets: new Float64Array(bucketCount),
        sum: 0,
        min: Number.POSITIVE_INFINITY,
        max: Number.NEGATIVE_INFINITY,
        whole: true,
      };
      const sample = draw(data.length);
      countNumbers(counted, data, sample);
      values += data.length;
      sampled += sample.places.length;
    },
    summary() {
      if (counted === undefined) {
        return undefined;
      }
      const { buckets, sum, min, max, whole } = counted;
      const found = { column, values, sampled };
      const weighed = weigh(buckets);
      // Buckets hold one whole number each as long as those are small.
      if (whole && Math.max(Math.abs(min), Math.abs(max)) < 2 ** (fractionBits + 1) && weighed.length <= valuesKept) {
        const counts = weighed.map(({ from, to, count }) => ({
          value: String(from < 0 ? to : from),
          count: Math.round(count),
        }));
        return { ...found, kind: "values", counts, others: 0 };
      }
      return { ...found, kind: "numbers", min, max, mean: sum / values, bins: binsOf(weighed, min, max) };
    },
  };
}

/** Locals, since numbers that a closure holds are allocated anew each time that they change. */
function countNumbers(counted: Counted, data: Values, { places, weight }: Sample): void {
  const { buckets } = counted;
  let { sum, min, max, whole } = counted;
  for (let index = 0; index < places.length; index += 1) {
    const value = Number(data[places[index] as number]);
    float[0] = value;
    const bucket = (bits[0] as number) >>> dropped;
    buckets[bucket] = (buckets[bucket] as number) + weight;
    sum += value * weight;
    min = value < min ? value : min;
    max = value > max ? value : max;
    whole &&= value === Math.trunc(value);
  }
  counted.sum = sum;
  counted.min = min;
  counted.max = max;
  counted.whole = whole;
}

interface Weighed {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

/** Buckets that hold something, as ranges of numbers in ascending order. */
function weigh(buckets: Float64Array): Weighed[] {
  const found: Weighed[] = [];
  for (const [bucket, count] of buckets.entries()) {
    if (count > 0) {
      const [one, other] = [edge(bucket), edge(bucket + 1)];
      // Among the negative ones bits go up as numbers go down.
      found.push(bucket < bucketCount / 2 ? { from: one, to: other, count } : { from: other, to: one, count });
    }
  }
  return found.toSorted((a, b) => a.from - b.from);
}

function edge(bucket: number): number {
  bits[0] = bucket * 2 ** dropped;
  return float[0] as number;
}

/** What is in a bucket is spread evenly over it; counts add up to the whole. */
function binsOf(weighed: readonly Weighed[], min: number, max: number): number[] {
  // Beyond float32 an edge is infinite or no number.
  const within = (value: number, otherwise: number): number =>
    Number.isNaN(value) ? otherwise : Math.min(Math.max(value, min), max);
  const ranges = weighed.map(({ from, to, count }) => ({ low: within(from, min), high: within(to, max), count }));
  const below = (limit: number): number =>
    ranges.reduce((sum, { low, high, count }) => {
      const share = limit >= high ? 1 : limit <= low ? 0 : (limit - low) / (high - low);
      return sum + count * share;
    }, 0);
  const inner = Array.from(
    { length: binCount - 1 },
    (_, index) => min + (max / binCount - min / binCount) * (index + 1),
  );
  const upTo = [...inner, Number.POSITIVE_INFINITY].map((limit) => Math.round(below(limit)));
  return upTo.map((count, index) => count - (upTo[index - 1] ?? 0));
}

function numbersOf(column: Column): Values | undefined {
  if (column.kind === "list") {
    return numbersOf(column.child);
  }
  return column.kind === "fixed" && column.lanes === 1 ? column.data : undefined;
}

type ValueAt = (column: Column, at: number) => string;

function valueSketch(column: string, valueAt: ValueAt): ScoreSketch {
  const draw = sampler(sampledTexts);
  const counts = new Map<string, number>();
  let [values, sampled, others] = [0, 0, 0];
  return {
    add(given) {
      const flat = given.kind === "list" ? given.child : given;
      const length = lengthOf(flat);
      const { places, weight } = draw(length);
      values += length;
      sampled += places.length;
      for (const at of places) {
        const value = valueAt(flat, at);
        if (counts.has(value) || counts.size < valuesKept) {
          counts.set(value, (counts.get(value) ?? 0) + weight);
        } else {
          others += weight;
        }
      }
    },
    summary() {
      if (values === 0) {
        return undefined;
      }
      const all = [...counts].map(([value, count]) => ({ value, count: Math.round(count) }));
      const sorted = all.toSorted((one, other) => other.count - one.count);
      return { column, values, sampled, kind: "values", counts: sorted, others: Math.round(others) };
    },
  };
}

function lengthOf(column: Column): number {
  return column.kind === "fixed" ? column.data.length : column.kind === "bytes" ? column.offsets.length - 1 : 0;
}

const boolAt: ValueAt = (column, at) => (column.kind === "fixed" && Number(column.data[at]) === 1 ? "true" : "false");

/** A long text is told by its beginning. */
const shownBytes = 64;
const decoder = new TextDecoder();

const textAt: ValueAt = (column, at) => {
  const { offsets, bytes } = column as BytesColumn;
  const [from = 0, to = 0] = [offsets[at], offsets[at + 1]];
  return decoder.decode(bytes.subarray(from, Math.min(to, from + shownBytes)));
};

interface Sample {
  /** Ascending; holds until the next sample is drawn. */
  readonly places: Uint32Array;
  /** Values that one of them stands for. */
  readonly weight: number;
}

const shared = new Uint32Array(sampledNumbers);

/**
 * Draws up to `limit` of `length` places, one in each of as many equal stretches, at random there: rows that come in
 * turns are not taken for each other.
 */
function sampler(limit: number): (length: number) => Sample {
  let state = 1;
  return (length) => {
    const places = shared.subarray(0, Math.min(length, limit));
    const weight = length / Math.max(1, places.length);
    let random = state;
    for (let index = 0; index < places.length; index += 1) {
      random = (Math.imul(random, 1_664_525) + 1_013_904_223) >>> 0; // Numerical Recipes' generator
      places[index] = weight === 1 ? index : (index + random / 2 ** 32) * weight;
    }
    state = random;
    return { places, weight };
  };
}
