import { assertNever } from "../../util/errors.js";
import type { AllRows } from "./all-rows.js";
import type { ColumnProfile } from "./column-profile.js";
import { type RareValues, rareBins } from "./few-values.js";
import type { Histogram } from "./histogram.js";
import type { NumberProfile } from "./number-profile.js";
import type { OutsideValues } from "./outside-values.js";
import type { ValueCounts } from "./value-counts.js";
import type { VectorProfile } from "./vector-profile.js";

/** A profile as plain JSON, from which `parseProfile` makes the same again. Its keys are in one order. */
export type ProfileJson = Readonly<Record<string, unknown>>;

export function profileJson(profile: ColumnProfile): ProfileJson {
  const { type, rows, nulls } = profile;
  const counts = { kind: profile.kind, type, rows, nulls, ...allJson(profile.all), ...outsideJson(profile.outside) };
  switch (profile.kind) {
    case "numbers":
      return { ...counts, ...numbersJson(profile.numbers) };
    case "values":
      return { ...counts, ...valuesJson(profile.values) };
    case "vectors":
      return { ...counts, ...vectorsJson(profile.vectors) };
    case "rows":
      return counts;
    default:
      return assertNever(profile);
  }
}

/** A list of rows and NULLs; for numbers followed by NaN, infinite, -infinite, finite, min, max and sum. */
function allJson(all: AllRows | undefined): { readonly all?: readonly unknown[] } {
  if (all === undefined) {
    return {};
  }
  const { rows, nulls, numbers } = all;
  if (numbers === undefined) {
    return { all: [rows, nulls] };
  }
  const { nan, positiveInfinite, negativeInfinite, finite, min, max, sum } = numbers;
  const extremes = finite === 0 ? [null, null] : [min, max];
  return { all: [rows, nulls, nan, positiveInfinite, negativeInfinite, finite, ...extremes, exactJson(sum)] };
}

function parseAll(json: readonly unknown[]): AllRows {
  const [rows, nulls, nan, positiveInfinite, negativeInfinite, finite] = json as number[];
  const [min, max] = json.slice(6) as (number | null)[];
  const sum = json[8] as string | undefined;
  const counts = { rows: rows ?? 0, nulls: nulls ?? 0 };
  return sum === undefined
    ? counts
    : {
        ...counts,
        numbers: {
          nan: nan ?? 0,
          positiveInfinite: positiveInfinite ?? 0,
          negativeInfinite: negativeInfinite ?? 0,
          finite: finite ?? 0,
          min: min ?? Number.POSITIVE_INFINITY,
          max: max ?? Number.NEGATIVE_INFINITY,
          sum: parseExact(sum),
        },
      };
}

/** A list of the digest, the rows, the rows of each example by its name, and the cut-off if there is one. */
function outsideJson(outside: OutsideValues | undefined): { readonly outside?: readonly unknown[] } {
  if (outside === undefined) {
    return {};
  }
  const { digest, rows, examples, cutOff } = outside;
  return { outside: [digest, rows, Object.fromEntries(examples), ...(cutOff === undefined ? [] : [cutOff])] };
}

function parseOutside([digest, rows, examples, cutOff]: readonly unknown[]): OutsideValues {
  const counts = Object.entries(examples as Readonly<Record<string, number>>);
  return {
    digest: String(digest),
    rows: Number(rows),
    examples: new Map(counts.toSorted(([one], [other]) => (one < other ? -1 : 1))),
    ...(cutOff === undefined ? {} : { cutOff: cutOff as string }),
  };
}

function numbersJson(numbers: NumberProfile): ProfileJson {
  const { nan, positiveInfinite, negativeInfinite, finite, min, max, sum, squares, histogram, values, wide } = numbers;
  return {
    nan,
    positive_infinite: positiveInfinite,
    negative_infinite: negativeInfinite,
    finite,
    min: finite === 0 ? null : min,
    max: finite === 0 ? null : max,
    ...(wide && { integers: [String(wide.min), String(wide.max)] }),
    sum: exactJson(sum),
    squares: exactJson(squares),
    histogram: histogramJson(histogram),
    ...valuesJson(values),
  };
}

function vectorsJson({
  minDimension,
  maxDimension,
  zero,
  notFinite,
  norms,
  directions,
  hashed,
}: VectorProfile): ProfileJson {
  return {
    min_dimension: Number.isFinite(minDimension) ? minDimension : null,
    max_dimension: maxDimension,
    zero,
    not_finite: notFinite,
    norms: numbersJson(norms),
    directions: [...directions.sums],
    ...(directions.areGroups && { groups: true }),
    hashed: [...hashed],
  };
}

/** A whole number of 2^exponent: hexadecimal digits, `@` and the exponent; of 2^-1074 zeros are left out. */
function exactJson(sum: bigint): string {
  if (sum === 0n) {
    return "0";
  }
  const digits = sum.toString(16);
  const short = digits.replace(/0+$/, "");
  return `${short}@${(digits.length - short.length) * 4 - 1074}`;
}

/** The shift, then for each bin how far its key is from the one before (the first from 0), and its count. */
function histogramJson({ shift, keys, counts }: Histogram): readonly number[] {
  const numbers = [shift];
  let last = 0;
  for (let index = 0; index < keys.length; index += 1) {
    const key = keys[index] as number;
    numbers.push(key - last, counts[index] as number);
    last = key;
  }
  return numbers;
}

/**
 * `values`: by name, in the order of names; a list where values are counted by hash; null where there are many numbers.
 * `rare`: how many values are not named, how many bins count their rows, and of each bin that is not empty its index and
 * its rows.
 */
function valuesJson(values: ValueCounts): ProfileJson {
  if (values.kind === "many") {
    return { values: values.hashed === undefined ? null : [...values.hashed] };
  }
  const { counts, rare } = values;
  const named = Object.fromEntries([...counts].toSorted(([one], [other]) => (one < other ? -1 : 1)));
  if (rare === undefined) {
    return { values: named };
  }
  return { values: named, rare: [rare.values, rare.hashed.length, ...rareBins(values).flat()] };
}

/** The profile that `profileJson` made this of; trusts it to be one. */
export function parseProfile(json: ProfileJson): ColumnProfile {
  const { kind, type, rows, nulls } = json as Pick<ColumnProfile, "kind" | "type" | "rows" | "nulls">;
  const { all, outside } = json as { readonly all?: readonly unknown[]; readonly outside?: readonly unknown[] };
  const counts = {
    type,
    rows,
    nulls,
    ...(all === undefined ? {} : { all: parseAll(all) }),
    ...(outside === undefined ? {} : { outside: parseOutside(outside) }),
  };
  switch (kind) {
    case "numbers":
      return { ...counts, kind, numbers: parseNumbers(json) };
    case "values":
      return { ...counts, kind, values: parseValues(json) };
    case "vectors":
      return { ...counts, kind, vectors: parseVectors(json) };
    case "rows":
      return { ...counts, kind };
    default:
      return assertNever(kind);
  }
}

function parseNumbers(json: ProfileJson): NumberProfile {
  const [least, greatest] = (json.integers ?? []) as readonly string[];
  return {
    nan: json.nan as number,
    positiveInfinite: json.positive_infinite as number,
    negativeInfinite: json.negative_infinite as number,
    finite: json.finite as number,
    min: (json.min as number | null) ?? Number.POSITIVE_INFINITY,
    max: (json.max as number | null) ?? Number.NEGATIVE_INFINITY,
    sum: parseExact(json.sum as string),
    squares: parseExact(json.squares as string),
    histogram: parseHistogram(json.histogram as readonly number[]),
    values: parseValues(json),
    ...(least !== undefined && greatest !== undefined && { wide: { min: BigInt(least), max: BigInt(greatest) } }),
  };
}

function parseVectors(json: ProfileJson): VectorProfile {
  return {
    minDimension: (json.min_dimension as number | null) ?? Number.POSITIVE_INFINITY,
    maxDimension: json.max_dimension as number,
    zero: json.zero as number,
    notFinite: json.not_finite as number,
    norms: parseNumbers(json.norms as ProfileJson),
    directions: {
      sums: Float64Array.from(json.directions as readonly number[]),
      ...(json.groups === true && { areGroups: true as const }),
    },
    hashed: Float64Array.from(json.hashed as readonly number[]),
  };
}

function parseExact(text: string): bigint {
  const [, sign, digits = "0", exponent = "-1074"] = /^(-?)([0-9a-f]+)(?:@(-?\d+))?$/.exec(text) ?? [];
  const magnitude = BigInt(`0x${digits}`) << BigInt(Number(exponent) + 1074);
  return sign === "-" ? -magnitude : magnitude;
}

function parseHistogram(numbers: readonly number[]): Histogram {
  const keys = new Int32Array((numbers.length - 1) / 2);
  const counts = new Float64Array(keys.length);
  let last = 0;
  for (let index = 0, at = 1; index < keys.length; index += 1, at += 2) {
    last += numbers[at] as number;
    keys[index] = last;
    counts[index] = numbers[at + 1] as number;
  }
  return { shift: numbers[0] ?? 0, keys, counts };
}

function parseValues({ values, rare }: ProfileJson): ValueCounts {
  if (values === null || Array.isArray(values)) {
    return { kind: "many", hashed: values === null ? undefined : Float64Array.from(values as readonly number[]) };
  }
  const counts = new Map(Object.entries(values as Readonly<Record<string, number>>));
  return { kind: "few", counts, ...(rare === undefined ? {} : { rare: parseRare(rare as readonly number[]) }) };
}

function parseRare([values = 0, length = 0, ...bins]: readonly number[]): RareValues {
  const hashed = new Float64Array(length);
  for (let at = 0; at < bins.length; at += 2) {
    hashed[bins[at] as number] = bins[at + 1] as number;
  }
  return { values, hashed };
}

/** Profiles of columns, by name, as plain JSON. */
export type ColumnsJson = readonly (readonly [string, ProfileJson])[];

export function columnsJson(columns: ReadonlyMap<string, ColumnProfile>): ColumnsJson {
  return [...columns].map(([name, profile]) => [name, profileJson(profile)]);
}

/** Reads what `columnsJson` made. */
export function parseColumns(columns: ColumnsJson): Map<string, ColumnProfile> {
  return new Map(columns.map(([name, profile]) => [name, parseProfile(profile)]));
}
