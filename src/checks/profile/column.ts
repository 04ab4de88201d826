import { numberTexts } from "../../columns/numbered-texts.js";
import { rowCountOf } from "../../columns/columns.js";
import {
  type BytesColumn,
  type Column,
  type ColumnType,
  type FixedColumn,
  type ListColumn,
  showType,
} from "../../columns/types.js";
import { isElementType } from "../../columns/values.js";
import { assertNever } from "../../base/errors.js";
import {
  type Histogram,
  countKeys,
  emptyHistogram,
  keyOfBytes,
  keyOfNumber,
  mergeHistograms,
  mixHash,
  quantile,
  rangeOfBin,
  rowsIn,
} from "./histogram.js";
import { type NextNumbers, blockValues, countNumbers } from "./profile-loops.js";
import { unscaled, withPoint } from "../../columns/value-text.js";

/** Counts, extremes and sums that do not depend on order: equal whichever spans and workers it was merged from. */
export type ColumnProfile = NumberColumn | ValueColumn | VectorColumn | CountedColumn;

interface RowCounts {
  /** As plans and messages name it. */
  readonly type: string;
  readonly rows: number;
  readonly nulls: number;
}

/** Numbers, dates and times. */
export interface NumberColumn extends RowCounts {
  readonly kind: "numbers";
  readonly nan: number;
  /** Rows that are minus infinity, and infinity. */
  readonly infinite: readonly [negative: number, positive: number];
  /** Of finite numbers; infinite if there are none. */
  readonly min: number;
  readonly max: number;
  /** The sum of finite numbers, and what it was rounded by. */
  readonly sum: readonly [rounded: number, rest: number];
  readonly values: Histogram;
}

/** Texts and truths ("true", "false"); of a list of them its elements. */
export interface ValueColumn extends RowCounts {
  readonly kind: "values";
  readonly values: Histogram;
  /** Names of keys, while each value has a bin of its own. */
  readonly names: ReadonlyMap<number, string>;
}

/** Lists of numbers. */
export interface VectorColumn extends RowCounts {
  readonly kind: "vectors";
  /** The least and the largest dimension; [Infinity, 0]: there is no vector. */
  readonly dimensions: readonly [least: number, largest: number];
  readonly zero: number;
  readonly notFinite: number;
  readonly values: Histogram;
  /** The sum of the directions, folded to a few dimensions, in units of 2^-20. */
  readonly direction: readonly number[];
}

/** Of other types, and of keys, whose values are never reported. */
interface CountedColumn extends RowCounts {
  readonly kind: "rows";
}

export interface ColumnToProfile {
  readonly name: string;
  readonly type: ColumnType;
  /** Its values tell one row from another. */
  readonly isKey?: boolean;
}

const foldedDimensions = 64;
/** What a direction of length 1 is stored as. */
export const directionUnit = 2 ** 20;
/** Longer texts, in bytes, have no name. */
const namedBytes = 64;

export function profileKind({ type, isKey = false }: Pick<ColumnToProfile, "type" | "isKey">): ColumnProfile["kind"] {
  if (isKey) {
    return "rows";
  }
  const [element, isList] = typeof type === "object" && type.kind === "list" ? [type.element, true] : [type, false];
  if (element === "bool" || element === "utf8") {
    return "values";
  }
  return numbersOfType(element) === undefined ? "rows" : isList ? "vectors" : "numbers";
}

/** The profile of all rows of a column. @param bins the most bins of its histogram */
export function profileColumn(about: ColumnToProfile, column: Column, bins: number): ColumnProfile {
  const counts = { type: showType(about.type), rows: rowCountOf(column), nulls: nullsOf(column) };
  const kind = profileKind(about);
  if (kind === "numbers") {
    const read = numbersOfType(about.type) as ReadNumbers;
    return { ...profileNumbers(readBlocks(column as FixedColumn, read), bins), ...counts };
  }
  if (kind === "values") {
    return { ...counts, kind, ...countValues(column, about.name, bins) };
  }
  return kind === "vectors"
    ? { ...counts, kind, ...countVectors(about.type, column as ListColumn, bins) }
    : { ...counts, kind };
}

function nullsOf({ valid }: Column): number {
  let nulls = 0;
  for (let row = 0; row < (valid?.length ?? 0); row += 1) {
    nulls += valid?.[row] === 0 ? 1 : 0;
  }
  return nulls;
}

function readBlocks(column: FixedColumn, read: ReadNumbers): NextNumbers {
  const { valid } = column;
  const rows = rowCountOf(column);
  let at = 0;
  return (block) => {
    let count = 0;
    while (at < rows && count === 0) {
      const from = at;
      at = Math.min(from + blockValues, rows);
      read(column, from, at, block);
      count = at - from;
      if (valid !== undefined) {
        count = 0;
        for (let row = from; row < at; row += 1) {
          block[count] = block[row - from] as number;
          count += valid[row] === 0 ? 0 : 1;
        }
      }
    }
    return count;
  };
}

function profileNumbers(next: NextNumbers, bins: number): NumberColumn {
  const { sum, rest, ...counted } = countNumbers(next, bins);
  return { kind: "numbers", type: "float64", nulls: 0, ...counted, sum: addSums([sum, 0], [rest, 0]) };
}

/** Adds with twice the digits of a float64 (Knuth's two-sum), so that the order does not show. */
function addSums([sum, rest]: NumberColumn["sum"], [more, moreRest]: NumberColumn["sum"]): NumberColumn["sum"] {
  const total = sum + more;
  const part = total - sum;
  const left = rest + moreRest + (sum - (total - part) + (more - part));
  const rounded = total + left;
  return Number.isFinite(rounded) ? [rounded, left - (rounded - total)] : [total, 0];
}

/** Leaves out the last digits, which depend on the order of additions. null: whether the sum overflows does, too. */
function storedSum({ sum: [sum, rest], min, max, rows }: NumberColumn): NumberColumn["sum"] | null {
  const largest = Math.max(0, -min, max) * rows;
  if (largest > Number.MAX_VALUE) {
    return null;
  }
  const unit = 2 ** (Math.floor(Math.log2(largest)) - 76);
  const stored = unit === 0 ? 0 : Math.round(rest / unit) * unit;
  return addSums([sum, 0], [stored, 0]);
}

function countValues(column: Column, name: string, bins: number): Pick<ValueColumn, "values" | "names"> {
  if (column.kind === "list") {
    return countValues(column.child, name, bins);
  }
  const salt = saltOf(name);
  const texts = new Map<string, number>();
  const counter = countKeys(bins);
  const keys = new Map<number, string>();
  const add = (text: Uint8Array, rows: number): void => {
    const key = keyOfBytes(text, 0, text.length, salt);
    counter.add(key, rows);
    if (text.length <= namedBytes && keys.size <= bins) {
      keys.set(key, decoder.decode(text));
    }
  };
  if (column.kind === "bytes") {
    countTexts(column, add);
  } else if (column.kind === "fixed") {
    for (let row = 0; row < column.data.length; row += 1) {
      if (column.valid?.[row] !== 0) {
        const truth = String(column.data[row] === 1);
        texts.set(truth, (texts.get(truth) ?? 0) + 1);
      }
    }
    for (const [truth, rows] of texts) {
      add(encoder.encode(truth), rows);
    }
  }
  const values = counter.finish();
  return { values, names: values.shift === 0 ? keys : new Map() };
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

function saltOf(name: string): number {
  const bytes = encoder.encode(name);
  return keyOfBytes(bytes, 0, bytes.length, 0);
}

/** The key of a value of a column, as it is counted. */
export function keyOfText(name: string, value: string): number {
  const bytes = encoder.encode(value);
  return keyOfBytes(bytes, 0, bytes.length, saltOf(name));
}

function countTexts(column: BytesColumn, add: (text: Uint8Array, rows: number) => void): void {
  const { entries, indices } = numberTexts(column);
  const low = new Int32Array(indices.buffer, indices.byteOffset, indices.length * 2);
  const rows = new Float64Array(entries.offsets.length - 1);
  for (let row = 0; row < indices.length; row += 1) {
    if (column.valid === undefined || column.valid[row] !== 0) {
      const entry = low[row * 2] as number;
      rows[entry] = (rows[entry] as number) + 1;
    }
  }
  for (let entry = 0; entry < rows.length; entry += 1) {
    if ((rows[entry] as number) > 0) {
      add(entries.bytes.subarray(entries.offsets[entry], entries.offsets[entry + 1]), rows[entry] as number);
    }
  }
}

type Vectors = Omit<VectorColumn, "kind" | keyof RowCounts>;

function countVectors(type: ColumnType, { offsets, child, valid }: ListColumn, bins: number): Vectors {
  const read = typeof type === "object" && type.kind === "list" ? numbersOfType(type.element) : undefined;
  const direction = new Float64Array(foldedDimensions);
  const norms = countKeys(bins);
  let [least, largest, zero, notFinite] = [Number.POSITIVE_INFINITY, 0, 0, 0];
  let values = new Float64Array(0);
  for (let row = 0; row < offsets.length - 1; row += 1) {
    if (valid?.[row] === 0 || child.kind !== "fixed" || read === undefined) {
      continue;
    }
    const [from, to] = [offsets[row] as number, offsets[row + 1] as number];
    values = values.length === to - from ? values : new Float64Array(to - from);
    read(child, from, to, values);
    least = Math.min(least, to - from);
    largest = Math.max(largest, to - from);
    let squares = 0;
    for (let at = 0; at < values.length; at += 1) {
      const value = child.valid?.[from + at] === 0 ? Number.NaN : (values[at] as number);
      squares += value * value;
    }
    const norm = Math.sqrt(squares);
    if (!Number.isFinite(norm)) {
      notFinite += 1;
      continue;
    }
    norms.add(keyOfNumber(norm), 1);
    zero += norm === 0 ? 1 : 0;
    const unit = norm === 0 ? 0 : directionUnit / norm;
    for (let at = 0; at < values.length; at += 1) {
      const folded = at % foldedDimensions;
      const sign = at < foldedDimensions || (mixHash(at) & 1) === 0 ? 1 : -1;
      direction[folded] = (direction[folded] as number) + Math.round(sign * (values[at] as number) * unit);
    }
  }
  return { dimensions: [least, largest], zero, notFinite, values: norms.finish(), direction: [...direction] };
}

/** Merges the profiles of different rows of one column, in any order. */
export function mergeColumns(first: ColumnProfile, second: ColumnProfile, bins: number): ColumnProfile {
  const counts = { type: first.type, rows: first.rows + second.rows, nulls: first.nulls + second.nulls };
  if (first.kind === "rows" || second.kind === "rows" || first.kind !== second.kind) {
    return { ...counts, kind: "rows" };
  }
  const values = mergeHistograms([first.values, second.values], bins);
  if (first.kind === "numbers" && second.kind === "numbers") {
    return {
      ...counts,
      kind: "numbers",
      nan: first.nan + second.nan,
      infinite: [first.infinite[0] + second.infinite[0], first.infinite[1] + second.infinite[1]],
      min: Math.min(first.min, second.min),
      max: Math.max(first.max, second.max),
      sum: addSums(first.sum, second.sum),
      values,
    };
  }
  if (first.kind === "vectors" && second.kind === "vectors") {
    const [a, b] = [first.dimensions, second.dimensions];
    return {
      ...counts,
      kind: "vectors",
      dimensions: [Math.min(a[0], b[0]), Math.max(a[1], b[1])],
      zero: first.zero + second.zero,
      notFinite: first.notFinite + second.notFinite,
      values,
      direction: first.direction.map((sum, at) => sum + (second.direction[at] ?? 0)),
    };
  }
  return {
    ...counts,
    kind: "values",
    values,
    names: values.shift > 0 ? new Map() : new Map([...namesOf(first), ...namesOf(second)]),
  };
}

export function namesOf(profile: ColumnProfile): ReadonlyMap<number, string> {
  return profile.kind === "values" ? profile.names : new Map();
}

/** The values that have bins; none of a column whose values are not profiled. */
export function histogramOf(profile: ColumnProfile): Histogram {
  return profile.kind === "rows" ? emptyHistogram : profile.values;
}

/** How many rows have values in bins: those that are no NULL and finite. */
export function countedRows(profile: ColumnProfile): number {
  return rowsIn(histogramOf(profile));
}

/** A quantile of the column's numbers, or of its vectors' norms; undefined: it has none. */
export function quantileOf(profile: ColumnProfile, share: number): number | undefined {
  return profile.kind === "numbers"
    ? quantile(profile.values, share, [profile.min, profile.max])
    : profile.kind === "vectors"
      ? quantile(profile.values, share)
      : undefined;
}

/** The mean of finite numbers; NaN: there are none, or their sum may be larger than any float64. */
export function meanOf({ sum: [sum], values }: NumberColumn): number {
  return sum / rowsIn(values);
}

/** The value of a bin of shift 0 as a text; undefined: it has no name. */
export function valueText(column: ColumnProfile, key: number): string | undefined {
  if (column.kind === "numbers") {
    const [low, high] = rangeOfBin(key, 0);
    return String(Math.abs(high) < 1e-300 ? 0 : Number(((low + high) / 2).toPrecision(6)));
  }
  return namesOf(column).get(key);
}

interface ValueRows {
  readonly key: number;
  readonly rows: number;
}

/** Whether each value of a column has a bin of its own. */
export function areCounted(column: ColumnProfile): boolean {
  return column.kind !== "rows" && column.kind !== "vectors" && histogramOf(column).shift === 0;
}

/** The values that are counted one by one, in the order of their keys; undefined: there are too many. */
export function countedValues(column: ColumnProfile): readonly ValueRows[] | undefined {
  const { keys, counts } = histogramOf(column);
  return areCounted(column) ? keys.map((key, index) => ({ key, rows: counts[index] as number })) : undefined;
}

const mostClasses = 24;

/** Whether the values are classes: texts and truths that are counted, or a few whole numbers. */
export function areClasses(column: ColumnProfile): boolean {
  const values = countedValues(column);
  return (
    values !== undefined &&
    values.length > 0 &&
    (column.kind === "values" ||
      (values.length <= mostClasses && values.every(({ key }) => Number.isInteger(Number(valueText(column, key))))))
  );
}

/** The share of rows without a value: NULL, NaN, infinite, or of vectors zero. */
export function emptyShare(column: ColumnProfile): number | undefined {
  if (column.rows === 0) {
    return undefined;
  }
  const zero = column.kind === "vectors" ? column.zero : 0;
  const empty =
    column.kind === "numbers" || column.kind === "vectors" ? column.rows - countedRows(column) + zero : column.nulls;
  return empty / column.rows;
}

/** A column as plain JSON; equal profiles have equal texts. */
export type ColumnJson = Readonly<Record<string, unknown>>;
export type ColumnsJson = readonly (readonly [name: string, ColumnJson])[];

/** Rows that a value of a feature must have to be named: a rarer one could identify a person. */
export const namedRows = 20;

export interface JsonLimits {
  /** The most bytes of a column's names; the most frequent values come first. */
  readonly nameBytes: number;
  /** Rows that a value must have to be named. */
  readonly namedRows: number;
}

export function columnsJson(columns: ReadonlyMap<string, ColumnProfile>, limits: JsonLimits): ColumnsJson {
  return [...columns].map(([name, profile]) => [name, columnJson(profile, limits)]);
}

export function columnJson(profile: ColumnProfile, limits: JsonLimits): ColumnJson {
  const { kind, type, rows, nulls } = profile;
  const counts = { kind, type, rows, nulls };
  if (profile.kind === "rows") {
    return counts;
  }
  const { keys, shift } = profile.values;
  const steps = keys.map((key, index) => key - (keys[index - 1] ?? 0));
  const bins = { shift, steps, counts: profile.values.counts };
  switch (profile.kind) {
    case "numbers": {
      const { nan, infinite, min, max } = profile;
      return { ...counts, nan, infinite, min: finite(min), max: finite(max), sum: storedSum(profile), ...bins };
    }
    case "values":
      return { ...counts, ...bins, names: namesJson(profile, limits) };
    case "vectors": {
      const { dimensions, zero, notFinite, direction } = profile;
      return { ...counts, dimensions, zero, notFinite, direction, ...bins };
    }
    default:
      return assertNever(profile);
  }
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

function namesJson(
  { values, names }: ValueColumn,
  { nameBytes, namedRows: rows }: JsonLimits,
): (readonly [number, string])[] {
  const ranked = [...values.keys.keys()]
    .filter((index) => names.has(values.keys[index] as number) && (values.counts[index] as number) >= rows)
    .toSorted((left, right) => (values.counts[right] as number) - (values.counts[left] as number) || left - right);
  let bytes = 0;
  const named = ranked.filter((index) => {
    bytes += encoder.encode(names.get(values.keys[index] as number)).length + 8;
    return bytes <= nameBytes;
  });
  return named
    .toSorted((left, right) => left - right)
    .map((index) => [index, names.get(values.keys[index] as number) as string]);
}

export function parseColumns(json: ColumnsJson): Map<string, ColumnProfile> {
  return new Map(json.map(([name, column]) => [name, parseColumn(column)]));
}

/** Reads what `columnJson` made. @throws RangeError for something else */
export function parseColumn(json: ColumnJson): ColumnProfile {
  const { shift, steps, names, ...facts } = json as {
    readonly shift?: number;
    readonly steps?: readonly number[];
    readonly counts: readonly number[];
    readonly names?: readonly (readonly [number, string])[];
  };
  if (json["kind"] === "rows") {
    return json as unknown as CountedColumn;
  }
  const { counts, ...plain } = facts;
  if (shift === undefined || !Array.isArray(steps) || !Array.isArray(counts) || steps.length !== counts.length) {
    throw new RangeError("a column of a profile has no histogram");
  }
  let key = 0;
  const values: Histogram = { shift, counts, keys: steps.map((step) => (key += step)) };
  const profile = { ...plain, values } as unknown as Exclude<ColumnProfile, CountedColumn>;
  if (profile.kind === "values") {
    return { ...profile, names: new Map((names ?? []).map(([index, name]) => [values.keys[index] as number, name])) };
  }
  if (profile.kind === "numbers") {
    const { min, max, sum } = profile as unknown as {
      readonly min: number | null;
      readonly max: number | null;
      readonly sum: NumberColumn["sum"] | null;
    };
    return {
      ...profile,
      min: min ?? Number.POSITIVE_INFINITY,
      max: max ?? Number.NEGATIVE_INFINITY,
      sum: sum ?? [Number.NaN, 0],
    };
  }
  const [least, largest] = profile.dimensions as readonly (number | null)[];
  return { ...profile, dimensions: [least ?? Number.POSITIVE_INFINITY, largest ?? 0] };
}

/** As float64: integers beyond 2^53 and decimals are rounded, dates and times whole numbers of their unit. */
type ReadNumbers = (column: FixedColumn, from: number, to: number, target: Float64Array) => void;

/** undefined: values of this type are no numbers. */
function numbersOfType(type: ColumnType): ReadNumbers | undefined {
  if (typeof type === "string") {
    return isElementType(type) || isTime(type) ? copyNumbers : undefined;
  }
  return type.kind === "decimal" ? scaledNumbers(type.precision, type.scale) : undefined;
}

function isTime(type: Exclude<ColumnType, object>): boolean {
  return type === "date32" || type.startsWith("time");
}

function copyNumbers({ data }: Pick<FixedColumn, "data">, from: number, to: number, target: Float64Array): void {
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    // A BigInt for each value would take ten times as long as its two words.
    const words = new Uint32Array(data.buffer, data.byteOffset, data.length * 2);
    const [low, high] = firstWordIsLow ? [0, 1] : [1, 0];
    const isSigned = data instanceof BigInt64Array;
    for (let index = from; index < to; index += 1) {
      const upper = words[2 * index + high] as number;
      target[index - from] = (isSigned ? upper | 0 : upper) * 2 ** 32 + (words[2 * index + low] as number);
    }
    return;
  }
  target.set(data.subarray(from, to));
}

/** Whether the lower word of 64 bits comes first in memory: on little-endian machines. */
const firstWordIsLow = new Uint32Array(BigUint64Array.of(1n).buffer)[0] === 1;

function scaledNumbers(precision: number, scale: number): ReadNumbers {
  const divisor = 10 ** scale;
  const copy = precision > 18 ? copyWide : copyNumbers;
  return (column, from, to, target) => {
    copy(column, from, to, target);
    for (let index = 0; index < to - from; index += 1) {
      const whole = target[index] as number;
      // A quotient of two exact numbers is rounded once. Others would be rounded before.
      const isExact = scale <= exactTens && Math.abs(whole) <= Number.MAX_SAFE_INTEGER;
      target[index] = isExact ? whole / divisor : Number(withPoint(unscaled(column, from + index, true), scale));
    }
  };
}

/** The largest power of ten that a float64 has. */
const exactTens = 22;

/** Two words of 64 bits each, the lower one first. */
const copyWide: ReadNumbers = ({ data }, from, to, target) => {
  for (let index = from; index < to; index += 1) {
    const bits = (BigInt(data[2 * index + 1] ?? 0) << 64n) | BigInt(data[2 * index] ?? 0);
    target[index - from] = Number(BigInt.asIntN(128, bits));
  }
};
