import { withPoint, unscaled } from "../../columnar/value-text.js";
import type { ColumnType, FixedColumn } from "../../columnar/types.js";
import { isElementType } from "../../columnar/values.js";

/**
 * Copies values [from, to) of a column to the start of `target`, as float64: integers beyond 2^53 and decimals are
 * rounded, dates and times are whole numbers of their unit. The number of a NULL is undefined.
 */
export type ReadNumbers = (column: FixedColumn, from: number, to: number, target: Float64Array) => void;

/** undefined: values of this type are no numbers. */
export function numbersOfType(type: ColumnType): ReadNumbers | undefined {
  if (typeof type === "string") {
    return isElementType(type) || isTime(type) ? copyNumbers : undefined;
  }
  return type.kind === "decimal" ? scaledNumbers(type.precision, type.scale) : undefined;
}

function isTime(type: Exclude<ColumnType, object>): boolean {
  return type === "date32" || type.startsWith("time");
}

/** Copies numbers as `ReadNumbers` does, of any type of elements. */
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
