import { createFloatBits, upperWord } from "./float-bits.js";

/**
 * Sums of float64 numbers without rounding: a sum is a whole number of units of 2^-1074, the smallest float64. So it
 * is the same for every order in which rows, spans and workers are added. Subnormal numbers, below 2.3e-308, count as zero.
 * J. R. Shewchuk, "Adaptive Precision Floating-Point Arithmetic and Fast Robust Geometric Predicates" (1997): the sum is
 * kept as numbers that do not overlap.
 */
export interface ExactAdder {
  /** Adds a finite number, or an infinite one as 2^1024. */
  add(value: number): void;
  /** The sum, in units of 2^-1074. */
  finish(): bigint;
}

const smallestExponent = -1074;
const exponents = 2048;
/** Sums of numbers between these neither overflow nor become subnormal. */
const [least, greatest] = [2 ** -900, 2 ** 900];

export function createExactAdder(): ExactAdder {
  const parts: number[] = [];
  let many = 0;
  let others = 0n;
  return {
    add(value) {
      const magnitude = Math.abs(value);
      if (!(magnitude > least && magnitude < greatest)) {
        others = value === 0 ? others : others + unitsOf(value);
        return;
      }
      let x = value;
      let kept = 0;
      for (let index = 0; index < many; index += 1) {
        const y = parts[index] as number;
        const sum = x + y;
        const lower = Math.abs(x) < Math.abs(y) ? x - (sum - y) : y - (sum - x);
        if (lower !== 0) {
          parts[kept] = lower;
          kept += 1;
        }
        x = sum;
      }
      parts[kept] = x;
      many = x === 0 ? kept : kept + 1;
    },
    finish: () => parts.slice(0, many).reduce((sum, part) => sum + unitsOf(part), others),
  };
}

const one = createFloatBits(1);

/** A number in units of 2^-1074. */
function unitsOf(value: number): bigint {
  one.values[0] = value;
  const word = one.words[upperWord] as number;
  const exponent = (word >>> 20) % exponents;
  if (exponent === 0) {
    return 0n;
  }
  const fraction = (BigInt((word & 0xfffff) | 0x100000) << 32n) + BigInt(one.words[1 - upperWord] as number);
  const units = fraction << BigInt(exponent - 1);
  return value < 0 ? -units : units;
}

/** The float64 next to a number in units of 2^-1074, ties to even; infinite beyond the largest. */
export function roundExact(sum: bigint): number {
  const magnitude = sum < 0n ? -sum : sum;
  const dropped = Math.max(bitLength(magnitude) - 64, 0);
  const top = magnitude >> BigInt(dropped);
  // One bit more says whether something was dropped: without it, a tie could not be distinguished from a value just above one.
  const rest = top << BigInt(dropped) === magnitude ? 0n : 1n;
  const value =
    dropped === 0
      ? Number(top) * 2 ** smallestExponent
      : Number((top << 1n) | rest) * 2 ** (dropped - 1 + smallestExponent);
  return sum < 0n ? -value : value;
}

/** The mean of `count` values whose sum is in units of 2^-1074; NaN of none. */
export function exactMean(sum: bigint, count: number): number {
  return count === 0 ? Number.NaN : roundExact(sum / BigInt(count));
}

/** At least the bits of a number, at most three more. */
function bitLength(value: bigint): number {
  return value.toString(16).length * 4;
}
