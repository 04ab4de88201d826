import { type ColumnType, showType } from "#src/columns/types.js";
import type { Dice } from "./dice.js";

/**
 * A value as the test knows it. Integers are bigint, and so are timestamps (microseconds since 1970) and decimals
 * (without their point); floats are numbers (float32 ones rounded), dates are numbers of days since 1970. A struct is
 * the list of its fields' values.
 */
export type Value = null | bigint | number | boolean | string | readonly Value[];

/** A column of a random table. */
export interface TableColumn {
  readonly name: string;
  readonly type: ColumnType;
  /** Whether a NULL may occur: a writer that can say so calls the column required where it may not. */
  readonly nullable: boolean;
  readonly make: () => Value;
}

const integers = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"] as const;
const decimals = [
  { kind: "decimal", precision: 4, scale: 2 },
  { kind: "decimal", precision: 9, scale: 3 },
  { kind: "decimal", precision: 18, scale: 5 },
  { kind: "decimal", precision: 38, scale: 10 },
] as const;
export const numberTypes: readonly ColumnType[] = [...integers, "float32", "float64", ...decimals];
const scalarTypes: readonly ColumnType[] = [
  ...numberTypes,
  "bool",
  "utf8",
  "date32",
  "timestamp[us]",
  "timestamp[us, UTC]",
];
/** Types that parquetjs-lite can write, too. */
export const plainTypes: readonly ColumnType[] = ["int16", "int32", "int64", "float32", "float64", "bool", "utf8"];
/** Types that need no DuckDB, whose columns are read where they are scored. */
export const directTypes: readonly ColumnType[] = scalarTypes.filter((type) => typeof type === "string");
const listElements: readonly ColumnType[] = ["int32", "int64", "float32", "float64", "utf8"];

export function anyType(dice: Dice): ColumnType {
  return dice.chance(0.15) ? { kind: "list", element: dice.pick(listElements) } : dice.pick(scalarTypes);
}

/** The smallest and the largest value of an integer type; undefined for other types. */
export function rangeOf(type: ColumnType): readonly [bigint, bigint] | undefined {
  const [, unsigned, bits] = /^(u?)int(\d+)$/.exec(showType(type)) ?? [];
  if (bits === undefined) {
    return undefined;
  }
  const size = BigInt(bits);
  return unsigned === "u" ? [0n, 2n ** size - 1n] : [-(2n ** (size - 1n)), 2n ** (size - 1n) - 1n];
}

/** `wild`: extremes are as frequent as others; `tame`: small numbers, as features mostly are. */
export type Temper = "wild" | "tame";

/** Makes values of a type. */
export function makerOf(type: ColumnType, temper: Temper, dice: Dice): () => Exclude<Value, null> {
  const range = rangeOf(type);
  if (range !== undefined) {
    return temper === "tame" ? tameInteger(range, dice) : wildInteger(range, dice);
  }
  if (typeof type === "object" && type.kind === "list") {
    const element = makerOf(type.element, temper, dice);
    return () => Array.from({ length: dice.int(0, 5) }, () => (dice.chance(0.1) ? null : element()));
  }
  if (typeof type === "object" && type.kind === "struct") {
    const fields = type.fields.map((field) => makerOf(field.type, temper, dice));
    return () => fields.map((field) => (dice.chance(0.1) ? null : field()));
  }
  if (typeof type === "object" && type.kind === "decimal") {
    const limit = 10n ** BigInt(type.precision) - 1n;
    return temper === "tame" ? () => BigInt(dice.int(-999, 999)) : wildInteger([-limit, limit], dice);
  }
  if (type === "float32" || type === "float64") {
    return temper === "tame" ? tameFloat(type, dice) : wildFloat(type, dice);
  }
  switch (showType(type)) {
    case "bool":
      return () => dice.chance(0.5);
    case "utf8":
      return textMaker(temper, dice);
    case "date32":
      return () => dice.pick([0, -1, -719_162, 2_932_896, dice.int(-99_999, 99_999)]);
    case "timestamp[us]":
    case "timestamp[us, UTC]":
    case "timestamp[ns]":
      return () => dice.pick([0n, -1n, 1n, 253_402_300_799_999_999n, BigInt(dice.int(-(2 ** 50), 2 ** 51))]);
    default:
      throw new TypeError(`no values of ${showType(type)}`);
  }
}

function tameInteger([low, high]: readonly [bigint, bigint], dice: Dice): () => bigint {
  const least = low === 0n ? 0 : -100;
  const most = high < 1000n ? 100 : 1000;
  return () => BigInt(dice.int(least, most));
}

function wildInteger([low, high]: readonly [bigint, bigint], dice: Dice): () => bigint {
  const edges = [0n, 1n, low, high, low + 1n, high - 1n, 2n ** 24n, 2n ** 24n + 1n, 2n ** 53n, 2n ** 53n + 1n, 255n];
  const inside = edges.filter((edge) => edge >= low && edge <= high);
  const width = high - low;
  return () => {
    if (dice.chance(0.4)) {
      return dice.pick(inside);
    }
    const random =
      (BigInt(dice.int(0, 2 ** 52)) << 84n) | (BigInt(dice.int(0, 2 ** 52)) << 42n) | BigInt(dice.int(0, 2 ** 42));
    return low + (random % (width + 1n));
  };
}

function tameFloat(type: "float32" | "float64", dice: Dice): () => number {
  return () => {
    const value = dice.chance(0.5) ? dice.int(-640, 640) / 64 : dice.number() * 200 - 100;
    return type === "float32" ? Math.fround(value) : value;
  };
}

function wildFloat(type: "float32" | "float64", dice: Dice): () => number {
  const odd = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  const single = [0, -0, 1.5, 2 ** -149, 3.402_823_466_385_288_6e38, -1e38, 0.1, 16_777_216];
  const double = [5e-324, 1.797_693_134_862_315_7e308, -1e300, 1e39, 2 ** 53 + 2, 255.5, -0.5, 3.7];
  const edges = [...odd, ...single, ...(type === "float64" ? double : [])];
  return () => {
    const value = dice.chance(0.4) ? dice.pick(edges) : (dice.number() - 0.5) * 10 ** dice.int(-10, 10);
    return type === "float32" ? Math.fround(value) : value;
  };
}

const oddTexts = [
  "",
  "a",
  "ä",
  "日本語",
  "👩‍👩‍👧‍👦",
  "exactly 12 b",
  "exactly 13 by",
  "x".repeat(33),
  "long ".repeat(99),
  "a\0b",
  "NULL",
  "'\"\\",
];

function textMaker(temper: Temper, dice: Dice): () => string {
  return temper === "tame"
    ? () => `level ${dice.int(0, 9)}`
    : () => (dice.chance(0.5) ? dice.pick(oddTexts) : `text ${dice.int(0, 99_999)}`);
}

/** Adds NULLs: `share` of all values, or in runs. */
export function withNulls(make: () => Value, share: number, dice: Dice): () => Value {
  if (share === 0 || dice.chance(0.7)) {
    return () => (share > 0 && dice.chance(share) ? null : make());
  }
  let left = 0;
  return () => {
    if (left === 0 && dice.chance(share / 20)) {
      left = dice.int(1, 40);
    }
    left -= left > 0 ? 1 : 0;
    return left > 0 ? null : make();
  };
}

/** A value by which two readings can be compared, as text that tells every bit but those of a NaN. */
export function textOf(value: unknown): string {
  if (Array.isArray(value)) {
    return `[${value.map(textOf).join(", ")}]`;
  }
  if (value === null || value === undefined) {
    return "NULL";
  }
  if (typeof value === "number") {
    return Object.is(value, -0) ? "-0" : String(value);
  }
  return typeof value === "bigint" || typeof value === "boolean" ? String(value) : JSON.stringify(value);
}
