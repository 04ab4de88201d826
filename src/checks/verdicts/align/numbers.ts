import { namedRows } from "../../profiles/rare-values.js";
import { binEdges, binOf, coarsen, type Histogram } from "../../profiles/histogram.js";
import type { NumberProfile } from "../../profiles/number-profile.js";
import type { ValueCounts } from "../../profiles/value-counts.js";

/** The finite numbers of two profiles, or other counts, side by side. */
export interface AlignedCounts {
  /** In the order of the values; entry i of both is the same bin or value. */
  readonly before: Float64Array;
  readonly now: Float64Array;
  /** What entries [from, to] are, for people. */
  readonly name: (from: number, to: number) => string;
}

/** A value with at least this share of either side has a bin of its own in a PSI. */
export const ownShare = 0.05;

/** Numbers of one side, and the rows of its column, those without a number included. */
export interface NumbersOfRows {
  readonly numbers: NumberProfile;
  readonly rows: number;
}

/**
 * Aligns numbers by the bins of their histograms. Where both profiles count values one by one, each value has an entry of its
 * own, and the entry of its bin has the other rows, which are those of values without a name.
 */
export function alignNumbers(before: NumbersOfRows, now: NumbersOfRows): AlignedCounts {
  const bins = alignHistograms(before.numbers.histogram, now.numbers.histogram);
  const named = namedIn(before.numbers, now.numbers);
  if (named.length === 0) {
    const entry = (index: number): Entry => ({ before: 0, now: 0, key: bins.keys[index] as number });
    return {
      before: bins.before,
      now: bins.now,
      name: (from, to) => rangeText(entry(from), entry(to), bins.shift),
    };
  }
  const entries: Entry[] = [];
  let at = 0;
  for (let index = 0; index < bins.keys.length; index += 1) {
    const key = bins.keys[index] as number;
    const inBin: NamedValue[] = [];
    for (; at < named.length && binOf(named[at]?.number as number, bins.shift) === key; at += 1) {
      inBin.push(named[at] as NamedValue);
    }
    const counts = { before: bins.before[index] as number, now: bins.now[index] as number };
    entries.push(...(inBin.length === 0 ? [{ ...counts, key }] : entriesOf({ counts, key, inBin }, [before, now])));
  }
  return {
    before: Float64Array.from(entries, (entry) => entry.before),
    now: Float64Array.from(entries, (entry) => entry.now),
    name: (from, to) => rangeText(entries[from] as Entry, entries[to] as Entry, bins.shift),
  };
}

/** The bins of two histograms side by side, without the values that they count one by one. */
export function alignHistograms(
  before: Histogram,
  now: Histogram,
): Omit<AlignedCounts, "name"> & Pick<Histogram, "keys" | "shift"> {
  const shift = Math.max(before.shift, now.shift);
  const [a, b] = [coarsen(before, shift), coarsen(now, shift)];
  const keys = a.keys === b.keys ? a.keys : unionOf(a.keys, b.keys);
  return { keys, shift, before: countsAt(a, keys), now: countsAt(b, keys) };
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

/** A value that a profile names. undefined: that side has no rows with the value, or too few to name it. */
interface NamedValue {
  readonly name: string;
  readonly number: number;
  readonly before: number | undefined;
  readonly now: number | undefined;
}

/** The named values of both in ascending order; none, if one of the two has too many values to count them one by one. */
function namedIn(before: NumberProfile, now: NumberProfile): NamedValue[] {
  if (before.values.kind !== "few" || now.values.kind !== "few") {
    return [];
  }
  return mergeSorted(sortedValues(before.values.counts), sortedValues(now.values.counts));
}

interface CountedValue {
  readonly name: string;
  readonly number: number;
  readonly rows: number;
}

/** A run is compared with several others, and its values are sorted once. */
const sortedOnce = new WeakMap<ReadonlyMap<string, number>, readonly CountedValue[]>();

function sortedValues(counts: ReadonlyMap<string, number>): readonly CountedValue[] {
  const found =
    sortedOnce.get(counts) ??
    Array.from(counts, ([name, rows]) => ({ name, number: Number(name), rows })).toSorted(compareValues);
  sortedOnce.set(counts, found);
  return found;
}

function mergeSorted(before: readonly CountedValue[], now: readonly CountedValue[]): NamedValue[] {
  const merged: NamedValue[] = [];
  let [atBefore, atNow] = [0, 0];
  while (atBefore < before.length || atNow < now.length) {
    const [was, is] = [before[atBefore], now[atNow]];
    const order = was === undefined ? 1 : is === undefined ? -1 : compareValues(was, is);
    const { name, number } = (order <= 0 ? was : is) as CountedValue;
    merged.push({ name, number, before: order <= 0 ? was?.rows : undefined, now: order >= 0 ? is?.rows : undefined });
    atBefore += order <= 0 ? 1 : 0;
    atNow += order >= 0 ? 1 : 0;
  }
  return merged;
}

/** Integers beyond 2^53 may be equal as float64. */
function compareValues(one: CountedValue, other: CountedValue): number {
  const difference = one.number - other.number;
  return difference === 0 && one.name !== other.name ? (BigInt(one.name) < BigInt(other.name) ? -1 : 1) : difference;
}

/** A bin, or one of its values. */
interface Entry {
  readonly before: number;
  readonly now: number;
  readonly key: number;
  /** The value, if it is one. */
  readonly value?: string;
  /** The values of the bin that have entries of their own. */
  readonly except?: readonly string[];
}

interface Bin {
  readonly counts: { readonly before: number; readonly now: number };
  readonly key: number;
  readonly inBin: readonly NamedValue[];
}

/** The entries of a bin: first that of the rows without a named value, if there are any. */
function entriesOf({ counts, key, inBin }: Bin, sides: readonly [NumbersOfRows, NumbersOfRows]): Entry[] {
  const rest = {
    before: counts.before - total(inBin, "before"),
    now: counts.now - total(inBin, "now"),
  };
  const [before, now] = sides.map(({ numbers: { values }, rows }) => ({ values, rows })) as [Side, Side];
  const values: Entry[] = [];
  for (const { name, number: _, ...rows } of inBin) {
    const found = {
      before: rows.before ?? unnamedRows(rows.now ?? 0, { of: now, other: before, rest: rest.before }),
      now: rows.now ?? unnamedRows(rows.before ?? 0, { of: before, other: now, rest: rest.now }),
    };
    // A value that the other side cannot have stays in its bin, such as a date as a number, which differs each night.
    if ((rows.before ?? found.before ?? 0) === 0 || (rows.now ?? found.now ?? 0) === 0) {
      rest.before += rows.before ?? 0;
      rest.now += rows.now ?? 0;
    } else {
      const { before: was = 0, now: is = 0 } = found;
      rest.before -= rows.before === undefined ? was : 0;
      rest.now -= rows.now === undefined ? is : 0;
      values.push({ before: was, now: is, key, value: name });
    }
  }
  const others = { ...rest, key, except: values.map(({ value = "" }) => value) };
  return rest.before + rest.now > 0 ? [others, ...values] : values;
}

function total(values: readonly NamedValue[], side: "before" | "now"): number {
  return values.reduce((sum, value) => sum + (value[side] ?? 0), 0);
}

interface Side {
  readonly values: ValueCounts;
  readonly rows: number;
}

/**
 * The rows of a value on the side that does not name it, by its rows on the one that does. If that side has rows without a
 * name in the bin (`rest`), they may have the value: as many as are due, but too few to name it. undefined: the value is too rare for
 * a bin of its own.
 */
function unnamedRows(
  rows: number,
  { of, other, rest }: { readonly of: Side; readonly other: Side; readonly rest: number },
): number | undefined {
  if (rest === 0 || (other.values.kind === "few" && other.values.rare === undefined)) {
    return 0;
  }
  const due = Math.round((rows * other.rows) / Math.max(of.rows, 1));
  return rows < ownShare * of.rows ? undefined : Math.min(due, namedRows - 1, rest);
}

/** Six digits tell the edges of neighbouring bins apart: they differ by a two-thousandth at least. */
export function edgeText(edge: number): string {
  return String(Number(edge.toPrecision(6)));
}

/** Nine digits tell any two float32 apart; other numbers have all of their digits. */
function valueText(name: string): string {
  const number = Number(name);
  return Number.isInteger(number) || Math.fround(number) !== number ? name : String(Number(number.toPrecision(9)));
}

/** The lower (0) or the upper (1) end of an entry. */
function endText({ key, value }: Entry, end: 0 | 1, shift: number): string {
  const number = value === undefined ? binEdges(key, shift)[end] : Number(value);
  return value !== undefined && Number.isInteger(number) ? value : edgeText(number);
}

function rangeText(from: Entry, to: Entry, shift: number): string {
  const range = `${endText(from, 0, shift)} to ${endText(to, 1, shift)}`;
  if (from !== to) {
    return range;
  }
  const { value, except = [] } = from;
  const [one] = except;
  const others =
    one === undefined ? "" : `, except ${except.length === 1 ? valueText(one) : `${except.length} other bins`}`;
  return value === undefined ? `${range}${others}` : valueText(value);
}
