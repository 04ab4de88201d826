import type { ColumnProfile } from "../profiles/column-profile.js";
import { binEdges, coarsen, type Histogram } from "../profiles/histogram.js";
import { mergeValues, type ValueCounts } from "../profiles/value-counts.js";
import { hashOfName } from "../profiles/value-names.js";
import type { NumberProfile } from "../profiles/number-profile.js";
import { type FewValues, matchNames } from "../profiles/few-values.js";

/** The counts of two profiles of one column, side by side. */
export interface Aligned {
  /** In the order of the values; entry i of both is the same bin or value. */
  readonly before: Float64Array;
  readonly now: Float64Array;
  /** What entries [from, to] are, for people. */
  readonly name: (from: number, to: number) => string;
  /** NULL, NaN and infinite values. */
  readonly special: readonly { readonly name: string; readonly before: number; readonly now: number }[];
}

/** undefined: profiles of these kinds have no distribution in common. */
export function alignProfiles(before: ColumnProfile, now: ColumnProfile): Aligned | undefined {
  const nulls = { name: "NULL", before: before.nulls, now: now.nulls };
  if (before.kind === "numbers" && now.kind === "numbers") {
    const { special, ...counts } = alignNumbers(before.numbers, now.numbers);
    return { ...counts, special: [nulls, ...special] };
  }
  if (before.kind === "values" && now.kind === "values") {
    return { ...alignValues(before.values, now.values), special: [nulls] };
  }
  return undefined;
}

function alignNumbers(before: NumberProfile, now: NumberProfile): Aligned {
  const shift = Math.max(before.histogram.shift, now.histogram.shift);
  const [a, b] = [coarsen(before.histogram, shift), coarsen(now.histogram, shift)];
  const isSame = a.keys === b.keys;
  const keys = isSame ? a.keys : unionOf(a.keys, b.keys);
  return {
    before: isSame ? a.counts : countsAt(a, keys),
    now: isSame ? b.counts : countsAt(b, keys),
    name: (from, to) =>
      `${edgeText(binEdges(keys[from] as number, shift)[0])} to ${edgeText(binEdges(keys[to] as number, shift)[1])}`,
    special: [
      { name: "NaN", before: before.nan, now: now.nan },
      { name: "Infinity", before: before.positiveInfinite, now: now.positiveInfinite },
      { name: "-Infinity", before: before.negativeInfinite, now: now.negativeInfinite },
    ],
  };
}

/** Six digits tell the edges of neighbouring bins apart: they differ by a two-thousandth at least. */
function edgeText(edge: number): string {
  return String(Number(edge.toPrecision(6)));
}

function unionOf(one: Int32Array, other: Int32Array): Int32Array {
  const keys = new Int32Array(one.length + other.length);
  let [length, atOne, atOther] = [0, 0, 0];
  while (atOne < one.length || atOther < other.length) {
    const [a, b] = [one[atOne] ?? Number.POSITIVE_INFINITY, other[atOther] ?? Number.POSITIVE_INFINITY];
    keys[length] = Math.min(a, b);
    length += 1;
    atOne += a <= b ? 1 : 0;
    atOther += b <= a ? 1 : 0;
  }
  return keys.subarray(0, length);
}

/** `keys` has all keys of the histogram, both in ascending order. */
function countsAt(histogram: Histogram, keys: Int32Array): Float64Array {
  const counts = new Float64Array(keys.length);
  let at = 0;
  for (let index = 0; index < keys.length; index += 1) {
    if (histogram.keys[at] === keys[index]) {
      counts[index] = histogram.counts[at] as number;
      at += 1;
    }
  }
  return counts;
}

const noNames = { values: 0, nameBytes: 0 };

function alignValues(before: ValueCounts, now: ValueCounts): Omit<Aligned, "special"> {
  if (before.kind === "few" && now.kind === "few") {
    return alignFew(...matchNames(before, now));
  }
  return {
    before: hashedOf(before),
    now: hashedOf(now),
    name: (from, to) => `values with hash ${from}${from === to ? "" : ` to ${to}`}`,
  };
}

/** The entries of rare values, which have no names, come after the others. */
function alignFew(before: FewValues, now: FewValues): Omit<Aligned, "special"> {
  const names = [...new Set([...before.counts.keys(), ...now.counts.keys()])].toSorted();
  const bins = (before.rare ?? now.rare)?.hashed.length ?? 0;
  const countsOf = ({ counts, rare }: FewValues): Float64Array =>
    Float64Array.from({ length: names.length + bins }, (_, entry) =>
      entry < names.length ? (counts.get(names[entry] as string) ?? 0) : (rare?.hashed[entry - names.length] ?? 0),
    );
  const nameOf = (entry: number): string => names[entry] ?? `rare values with hash ${entry - names.length}`;
  return {
    before: countsOf(before),
    now: countsOf(now),
    name: (from, to) => (from === to ? nameOf(from) : `${nameOf(from)} to ${nameOf(to)}`),
  };
}

function hashedOf(values: ValueCounts): Float64Array {
  const hashed = mergeValues({ kind: "few", counts: new Map([["", 0]]) }, values, noNames, hashOfName);
  return hashed.kind === "many" && hashed.hashed !== undefined ? hashed.hashed : new Float64Array(0);
}
