import { type ColumnType, showType } from "#src/columns/types.js";
import type { TensorShape } from "../support/onnx.js";
import { rangeOf, type Value } from "./values.js";

/** How a model takes what a row has, as docs/types.md says it. */
export interface CastRules {
  readonly exact: boolean;
  readonly nan: boolean;
}

/** An element of a model's input: integers are bigint. */
export type Feature = number | bigint | boolean | string;

/** Why a row is bad; `shown`: the value as a reject tells it, where the test knows its text. */
export interface Fault {
  readonly reason: string;
  readonly column: string;
  readonly shown?: string | null;
}

export type Dtype = TensorShape["dtype"];

type CastResult = { readonly feature: Feature } | { readonly reason: string };

const unfit: CastResult = { reason: "does_not_fit" };

/** Significant bits of a float type, and its largest value. */
const floats: Partial<Record<Dtype, readonly [round: (value: number) => number, limit: number]>> = {
  float32: [Math.fround, 3.402_823_466_385_288_6e38],
  float64: [Number, Number.MAX_VALUE],
};

/** What a value becomes as an element of a tensor, or why it cannot. */
export function castFeature(value: Value, type: ColumnType, dtype: Dtype, rules: CastRules): CastResult {
  const float = floats[dtype];
  if (value === null) {
    return rules.nan && float !== undefined ? { feature: Number.NaN } : { reason: "null" };
  }
  if (dtype === "string") {
    return (value as string).includes("\0") ? unfit : { feature: value as string };
  }
  if (float === undefined) {
    return toInteger(value, type, dtype, rules);
  }
  return toFloat(value, type, float, rules);
}

function toFloat(
  value: Value,
  type: ColumnType,
  [round, limit]: readonly [(value: number) => number, number],
  { exact, nan }: CastRules,
): CastResult {
  const number = numberOf(value, type);
  if (Number.isNaN(number) ? !nan : !Number.isFinite(number)) {
    return { reason: "not_finite" };
  }
  const rounded = round(number);
  if (Math.abs(rounded) > limit) {
    return unfit;
  }
  if (exact && rangeOf(type) !== undefined && BigInt(rounded) !== value) {
    return unfit;
  }
  return { feature: rounded };
}

/** The number that a value is, decimals by way of their text. */
function numberOf(value: Value, type: ColumnType): number {
  return typeof type === "object" && type.kind === "decimal"
    ? Number(decimalText(value as bigint, type.scale))
    : Number(value);
}

function decimalText(unscaled: bigint, scale: number): string {
  const digits = (unscaled < 0n ? -unscaled : unscaled).toString().padStart(scale + 1, "0");
  return `${unscaled < 0n ? "-" : ""}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

function toInteger(value: Value, type: ColumnType, dtype: Dtype, { exact }: CastRules): CastResult {
  const whole = wholeOf(value, type, exact || dtype === "bool");
  if (whole === undefined) {
    return unfit;
  }
  if (dtype === "bool") {
    return whole === 0n || whole === 1n ? { feature: whole === 1n } : unfit;
  }
  const [low, high] = rangeOf(dtype as ColumnType) ?? [0n, 0n];
  return whole >= low && whole <= high ? { feature: whole } : unfit;
}

/** The integer that a value is, or is rounded to: halves away from zero. */
function wholeOf(value: Value, type: ColumnType, exact: boolean): bigint | undefined {
  if (typeof value === "boolean") {
    return BigInt(value);
  }
  if (typeof type === "object" && type.kind === "decimal") {
    const one = 10n ** BigInt(type.scale);
    const unscaled = value as bigint;
    const half = unscaled < 0n ? -one / 2n : one / 2n;
    return exact ? (unscaled % one === 0n ? unscaled / one : undefined) : (unscaled + half) / one;
  }
  if (typeof value !== "number") {
    return value as bigint;
  }
  if (!Number.isFinite(value) || (exact && !Number.isInteger(value))) {
    return undefined;
  }
  return BigInt(Math.sign(value) * Math.round(Math.abs(value)));
}

/** The text of a feature that a reject tells; undefined where the test does not say how it is written. */
export function shownValue(value: Value, type: ColumnType): string | null | undefined {
  if (value === null) {
    return null;
  }
  if (typeof value === "number") {
    return Number.isNaN(value) ? "nan" : value === Infinity ? "inf" : value === -Infinity ? "-inf" : undefined;
  }
  if (typeof type === "object" && type.kind === "decimal") {
    return decimalText(value as bigint, type.scale);
  }
  return rangeOf(type) !== undefined || showType(type) === "bool" || type === "utf8" ? String(value) : undefined;
}
