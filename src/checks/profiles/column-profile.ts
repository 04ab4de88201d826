import { rowsOf } from "../../columnar/column-rows.js";
import { type Column, type ColumnType, type FixedColumn, showType } from "../../columnar/types.js";
import { assertNever } from "../../util/errors.js";
import { type AllRows, mergeAllRows } from "./all-rows.js";
import { numbersOfType, type ReadNumbers } from "./column-numbers.js";
import { countTexts } from "./distinct-texts.js";
import { blockValues, mergeNumbers, type NextNumbers, type NumberProfile, noNumbers } from "./number-profile.js";
import { mergeOutside, type OutsideValues, outsideValues, type ValueList } from "./outside-values.js";
import { profileNumbers } from "./profile-numbers.js";
import { mergeValues, noValues, type ValueCounts } from "./value-counts.js";
import { hashOfName } from "./value-names.js";
import { mayBeWide, wideIntegers } from "./wide-integers.js";
import { mergeVectors, noVectors, profileVectors, type VectorLimits, type VectorProfile } from "./vector-profile.js";

/**
 * What is known of a column's values without keeping them. All of it is counts, whole numbers and extremes, so the
 * profile of a run is the same whichever spans, attempts and workers it was merged from, in any order.
 */
export type ColumnProfile = RowCounts &
  (
    | { readonly kind: "numbers"; readonly numbers: NumberProfile }
    /** Texts and truths ("true", "false"); of a list of them its elements. */
    | { readonly kind: "values"; readonly values: ValueCounts }
    | { readonly kind: "vectors"; readonly vectors: VectorProfile }
    /** Of other types, and of keys, whose values are never reported. */
    | { readonly kind: "rows" }
  );

interface RowCounts {
  /** As plans and messages name it. */
  readonly type: string;
  readonly rows: number;
  readonly nulls: number;
  /** The exact counts of all rows, if the profile is of a sample of them. */
  readonly all?: AllRows | undefined;
  /** The rows whose values are not in the list of the spec; absent: it has none, or attempts had different ones. */
  readonly outside?: OutsideValues | undefined;
}

export interface ColumnToProfile {
  readonly type: ColumnType;
  /** Its values tell one row from another. */
  readonly isKey?: boolean;
  /** The values that the spec allows; default: all. */
  readonly list?: ValueList | undefined;
}

/** JSON of a span's profiles, in bytes. */
export const spanBytes = 64 * 1024;
/** Columns of a table that are profiled: of more, an exact sum alone may be too long. */
export const profiledColumns = 32;

/** Returns the limits of each of `columns` profiles whose JSON together stays within `jsonBytes`. */
export function profileLimits(columns: number, jsonBytes = spanBytes): VectorLimits {
  const bytes = jsonBytes / Math.max(columns, 1);
  const within = (least: number, bytesEach: number, most: number): number =>
    Math.min(Math.max(Math.floor(bytes / bytesEach), least), most);
  return {
    bins: within(16, 20, 1024),
    values: within(8, 64, 256),
    nameBytes: within(128, 4, 16_384),
    dimensions: within(16, 32, 1024),
  };
}

/** Which kind of profile a column has. */
export function profileKind({ type, isKey = false }: ColumnToProfile): ColumnProfile["kind"] {
  if (isKey) {
    return "rows";
  }
  const [element, many] = typeof type === "object" && type.kind === "list" ? [type.element, true] : [type, false];
  if (element === "bool" || element === "utf8") {
    return "values";
  }
  return numbersOfType(element) === undefined ? "rows" : many ? "vectors" : "numbers";
}

/** The profile of all rows of a column. */
export function profileColumn(about: ColumnToProfile, column: Column, limits: VectorLimits): ColumnProfile {
  const counts = { type: showType(about.type), rows: rowsOf(column), nulls: nullsOf(column) };
  const kind = profileKind(about);
  const outside = (values: ValueCounts): { readonly outside?: OutsideValues } =>
    about.list === undefined ? {} : { outside: outsideValues(about.list, column, values) };
  switch (kind) {
    case "numbers": {
      const numbers = numbersIn(about.type, column as FixedColumn, limits);
      return { ...counts, ...outside(numbers.values), kind: "numbers", numbers };
    }
    case "values": {
      const values = valuesIn(column, limits);
      return { ...counts, ...outside(values), kind: "values", values };
    }
    case "vectors":
      return { ...counts, kind: "vectors", vectors: vectorsIn(about.type, column, limits) };
    case "rows":
      return { ...counts, kind: "rows" };
    default:
      return assertNever(kind);
  }
}

function nullsOf({ valid }: Column): number {
  let nulls = 0;
  for (let row = 0; row < (valid?.length ?? 0); row += 1) {
    nulls += valid?.[row] === 0 ? 1 : 0;
  }
  return nulls;
}

function numbersIn(type: ColumnType, column: FixedColumn, limits: VectorLimits): NumberProfile {
  const read = numbersOfType(type);
  if (read === undefined) {
    return noNumbers;
  }
  const found = profileNumbers(blocksOf(column, read), limits);
  const isInteger = type === "int64" || type === "uint64";
  return isInteger && mayBeWide(found) ? { ...found, ...wideIntegers(column, limits) } : found;
}

/** Those that are not NULL, block by block. */
function blocksOf(column: FixedColumn, read: ReadNumbers): NextNumbers {
  const rows = rowsOf(column);
  let at = 0;
  return (target) => {
    while (at < rows) {
      const from = at;
      at = Math.min(from + blockValues, rows);
      read(column, from, at, target);
      const count = column.valid === undefined ? at - from : dropNulls(target, column.valid, from, at);
      if (count > 0) {
        return count;
      }
    }
    return 0;
  };
}

function dropNulls(values: Float64Array, valid: Uint8Array, from: number, to: number): number {
  let kept = 0;
  for (let row = from; row < to; row += 1) {
    values[kept] = values[row - from] as number;
    kept += valid[row] === 0 ? 0 : 1;
  }
  return kept;
}

function valuesIn(column: Column, limits: VectorLimits): ValueCounts {
  if (column.kind === "list") {
    return valuesIn(column.child, limits);
  }
  if (column.kind === "bytes") {
    return countTexts(column, limits);
  }
  return column.kind === "fixed" ? { kind: "few", counts: countTruths(column) } : noValues;
}

function countTruths({ data, valid }: FixedColumn): ReadonlyMap<string, number> {
  let [no, yes] = [0, 0];
  for (let row = 0; row < data.length; row += 1) {
    if (valid === undefined || valid[row] !== 0) {
      yes += data[row] === 1 ? 1 : 0;
      no += data[row] === 1 ? 0 : 1;
    }
  }
  return new Map([["false", no] as const, ["true", yes] as const].filter(([, count]) => count > 0));
}

function vectorsIn(type: ColumnType, column: Column, limits: VectorLimits): VectorProfile {
  const read = typeof type === "object" && type.kind === "list" ? numbersOfType(type.element) : undefined;
  return column.kind !== "list" || column.child.kind !== "fixed" || read === undefined
    ? noVectors
    : profileVectors({ ...column, child: column.child, read }, limits);
}

/**
 * Merges the profiles of different rows of one column. Apart from `type`, which is that of the first profile, the order of
 * the arguments does not matter. Different types are reported before profiles are merged.
 */
export function mergeProfiles(one: ColumnProfile, other: ColumnProfile, limits: VectorLimits): ColumnProfile {
  const all = one.all === undefined || other.all === undefined ? undefined : mergeAllRows(one.all, other.all);
  const outside = mergeOutside(one.outside, other.outside);
  const counts = {
    type: one.type,
    rows: one.rows + other.rows,
    nulls: one.nulls + other.nulls,
    ...(all === undefined ? {} : { all }),
    ...(outside === undefined ? {} : { outside }),
  };
  if (one.kind === "numbers" && other.kind === "numbers") {
    return { ...counts, kind: "numbers", numbers: mergeNumbers(one.numbers, other.numbers, limits) };
  }
  if (one.kind === "values" && other.kind === "values") {
    return { ...counts, kind: "values", values: mergeValues(one.values, other.values, limits, hashOfName) };
  }
  if (one.kind === "vectors" && other.kind === "vectors") {
    return { ...counts, kind: "vectors", vectors: mergeVectors(one.vectors, other.vectors, limits) };
  }
  return { ...counts, kind: "rows" };
}
