import { scaleOf } from "../columns/value-text.js";
import { type ColumnType, showType, type TypedColumn } from "../columns/types.js";
import { isElementType } from "../columns/values.js";

/** How both models of a run are called. */
export const modelNames = ["champion", "challenger"] as const;

export interface MatchedColumns {
  readonly compared: readonly JoinedColumn[];
  /** Columns that cannot be compared, with the reason. */
  readonly apart: readonly { readonly name: string; readonly reason: string }[];
}

export interface JoinedColumn {
  readonly name: string;
  readonly a: ColumnType;
  readonly b: ColumnType;
}

/** Matches the columns of two sides by name. Only columns of comparable types are compared. @param names the sides in reasons */
export function matchColumns(
  ofA: readonly TypedColumn[],
  ofB: readonly TypedColumn[],
  names?: typeof modelNames,
): MatchedColumns {
  const [a, b] = names?.map((name) => `the ${name}`) ?? ["A", "B"];
  const compared: JoinedColumn[] = [];
  const apart: { name: string; reason: string }[] = [];
  const others = new Map(ofB.map(({ name, type }) => [name, type]));
  for (const { name, type } of ofA) {
    const match = others.get(name);
    others.delete(name);
    if (match === undefined) {
      apart.push({ name, reason: `only ${a} has it (${showType(type)})` });
    } else if (comparableKind(type, match) === undefined) {
      const [typeA, typeB] = [showType(type), showType(match)];
      apart.push({ name, reason: typeA === typeB ? `of type ${typeA}` : `${typeA} in ${a}, ${typeB} in ${b}` });
    } else {
      compared.push({ name, a: type, b: match });
    }
  }
  const rest = [...others].map(([name, type]) => ({ name, reason: `only ${b} has it (${showType(type)})` }));
  return { compared, apart: [...apart, ...rest] };
}

export function comparableKind(a: ColumnType, b: ColumnType): Measures["kind"] | undefined {
  const family = familyOf(a);
  if (family === undefined || family !== familyOf(b)) {
    return undefined;
  }
  return typeof a === "string" && timeFamilies[a] !== undefined
    ? "times"
    : family === "numbers"
      ? "numbers"
      : family === "list of numbers"
        ? "vectors"
        : "labels";
}

/** Columns of the same family can be compared. */
const timeFamilies: Readonly<Record<string, string>> = {
  date32: "dates",
  "time64[us]": "times of day",
  "time64[ns]": "times of day",
  "timestamp[us]": "timestamps",
  "timestamp[ns]": "timestamps",
  "timestamp[us, UTC]": "instants",
};

function familyOf(type: ColumnType): string | undefined {
  if (scaleOf(type) !== undefined || type === "float32" || type === "float64") {
    return "numbers";
  }
  if (typeof type === "object") {
    const isComparable =
      type.kind === "list" && typeof type.element === "string" && timeFamilies[type.element] === undefined;
    const element = isComparable ? familyOf(type.element) : undefined;
    return element === undefined ? undefined : `list of ${element}`;
  }
  return isElementType(type) ? "integers" : type === "utf8" || type === "bool" ? type : timeFamilies[type];
}

/** A row for which two sides have different values. */
export interface DifferentRow {
  /** The number of the row; where rows are joined by key, a number that depends on the key alone. */
  readonly row: number;
  /**
   * 1 for two labels; seconds between times; 1 minus the cosine of vectors. null: only one is a number, or has a
   * direction.
   */
  readonly distance: number | null;
  /** Both values, as a reader sees them. */
  readonly one: string;
  readonly other: string;
  /** Values that tell whose row it is, by column; undefined: there are none. */
  readonly keys?: Readonly<Record<string, string | null>> | undefined;
}

/** How well the values of a column agree. Plain JSON. */
export interface Measures {
  readonly kind: "numbers" | "labels" | "vectors" | "times";
  readonly rows: number;
  /** By their JSON names, the most important first. null: it cannot be computed from these rows. */
  readonly figures: Readonly<Record<string, number | null>>;
  /** The pairs of different labels that occur most, the most frequent first. */
  readonly flips: readonly Flip[];
  readonly most: readonly DifferentRow[];
}

export interface Flip {
  readonly one: string;
  readonly other: string;
  readonly rows: number;
}

/** How the rows of two sides match by their keys, under the names of JSON. A is the earlier side. */
export interface MatchedRows {
  readonly rows_a: number;
  readonly rows_b: number;
  /** The number of rows whose key is in A only, and in B only. */
  readonly rows_gone: number;
  readonly rows_added: number;
  /** The number of keys that are once in each side. Their rows are compared. */
  readonly rows_compared: number;
  /** Of those, the number of rows that differ in a column. */
  readonly rows_changed: number;
  /** The number of keys that are several times in a side, and of those that are not as often in the other one. */
  readonly keys_repeated: number;
  readonly keys_uneven: number;
  /** Some repeated keys with their numbers of rows. */
  readonly repeated: readonly { readonly key: string; readonly a: number; readonly b: number }[];
}

/** Which rows are joined, and when two values count as equal. */
export interface JoinRequest {
  readonly key: readonly string[];
  readonly columns: readonly JoinedColumn[];
  readonly shown: readonly string[];
  /** The largest difference of two numbers that count as equal. */
  readonly tolerance: number;
}

export interface Agreement {
  readonly rows: MatchedRows;
  readonly columns: readonly (readonly [string, Measures])[];
  readonly apart: MatchedColumns["apart"];
  readonly tolerance: number;
}
