import type { FixedColumn } from "../../columnar/types.js";
import { firstWordIsLow } from "./column-numbers.js";
import { countBytes } from "./distinct-texts.js";
import { limitValues, manyNumbers, type ValueCounts, type ValueLimits } from "./value-counts.js";

/**
 * The least and the greatest of integers of which one is 2^53 or more, or -2^53 or less: float64 does not tell such an
 * integer from its neighbours.
 */
export interface WideExtremes {
  readonly min: bigint;
  readonly max: bigint;
}

/** The numbers of a profile that tell whether its integers are wide. */
interface KnownExtremes {
  readonly finite: number;
  readonly min: number;
  readonly max: number;
  readonly wide?: WideExtremes | undefined;
}

/** Whether a number, or the integer that it was rounded from, may be wide. */
export function mayBeWide({ finite, min, max }: KnownExtremes): boolean {
  return finite > 0 && (min <= -(2 ** 53) || max >= 2 ** 53);
}

/** Merges the extremes of integers; undefined: none is wide. */
export function mergeWide(one: KnownExtremes, other: KnownExtremes): WideExtremes | undefined {
  if (one.wide === undefined && other.wide === undefined) {
    return undefined;
  }
  if (one.finite === 0 || other.finite === 0) {
    return one.wide ?? other.wide;
  }
  const [a, b] = [exactExtremes(one), exactExtremes(other)];
  return { min: a.min < b.min ? a.min : b.min, max: a.max > b.max ? a.max : b.max };
}

function exactExtremes({ wide, min, max }: KnownExtremes): WideExtremes {
  return wide ?? { min: BigInt(min), max: BigInt(max) };
}

/** Profiles a column of int64 or uint64 without rounding. At least one value is not NULL. */
export function wideIntegers(
  { data, valid }: FixedColumn,
  limits: ValueLimits,
): { readonly wide: WideExtremes; readonly values: ValueCounts } {
  const integers = data as BigInt64Array | BigUint64Array;
  const bytes = new Uint8Array(integers.buffer, integers.byteOffset, integers.byteLength);
  const offsets = new Uint32Array(integers.length + 1);
  for (let row = 0; row < offsets.length; row += 1) {
    offsets[row] = 8 * row;
  }
  const counted = countBytes({ kind: "bytes", offsets, bytes, valid }, limits);
  const values =
    counted === undefined
      ? manyNumbers
      : limitValues(new Map(counted.map(({ from, count }) => [String(integers[from / 8]), count])), limits, undefined);
  return { wide: extremesOf(integers, valid), values };
}

/** A comparison of words takes a tenth of the time of one of BigInts. */
function extremesOf(integers: BigInt64Array | BigUint64Array, valid: Uint8Array | undefined): WideExtremes {
  const words = new Uint32Array(integers.buffer, integers.byteOffset, integers.length * 2);
  const [low, high] = firstWordIsLow ? [0, 1] : [1, 0];
  // The order of unsigned words is that of signed ones if the highest bit is the other one.
  const flip = integers instanceof BigInt64Array ? 0x80000000 : 0;
  let [least, greatest] = [-1, -1];
  let [leastHigh, leastLow, greatestHigh, greatestLow] = [0, 0, 0, 0];
  for (let row = 0; row < integers.length; row += 1) {
    if (valid !== undefined && valid[row] === 0) {
      continue;
    }
    const upper = ((words[2 * row + high] as number) ^ flip) >>> 0;
    const lower = words[2 * row + low] as number;
    if (least < 0 || upper < leastHigh || (upper === leastHigh && lower < leastLow)) {
      [least, leastHigh, leastLow] = [row, upper, lower];
    }
    if (greatest < 0 || upper > greatestHigh || (upper === greatestHigh && lower > greatestLow)) {
      [greatest, greatestHigh, greatestLow] = [row, upper, lower];
    }
  }
  return { min: integers[least] as bigint, max: integers[greatest] as bigint };
}
