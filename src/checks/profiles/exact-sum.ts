import { type FloatBits, upperWord } from "./float-bits.js";

/**
 * Sums of float64 numbers without rounding: a sum is a whole number of units of 2^-1074, the smallest float64. So it
 * is the same for every order in which rows, spans and workers are added. The idea is the small superaccumulator of R. Neal,
 * "Fast exact summation using small and large superaccumulators" (2015), with a BigInt in place of its carries.
 * Subnormal numbers, below 2.3e-308, count as zero.
 */
export interface ExactAccumulator {
  /** Adds the first `count` values, all of them finite. */
  add(bits: FloatBits, count: number): void;
  /** What was added, in units of 2^-1074; begins anew. */
  take(): bigint;
}

const smallestExponent = -1074;
const exponents = 2048;
/** Values between two carries: the sum of so many lower words is below 2^53. */
const carryAfter = 2 ** 20;

export function createExactAccumulator(): ExactAccumulator {
  // By sign and exponent, the sums of the upper 21 bits of the fractions and of the lower 32.
  const upper = new Float64Array(2 * exponents);
  const lower = new Float64Array(2 * exponents);
  let waiting = 0;
  let sum = 0n;
  const carry = (): void => {
    for (let index = 0; index < upper.length; index += 1) {
      if (upper[index] !== 0 || lower[index] !== 0) {
        sum += sumOfFractions(index, (BigInt(upper[index] as number) << 32n) + BigInt(lower[index] as number));
      }
    }
    upper.fill(0);
    lower.fill(0);
    waiting = 0;
  };
  return {
    add(bits, count) {
      if (waiting + count > carryAfter) {
        carry();
      }
      waiting += count;
      addFractions(bits.words, count, upper, lower);
    },
    take() {
      carry();
      const taken = sum;
      sum = 0n;
      return taken;
    },
  };
}

// The loop declares its constants: V8 reads those of a module anew for each value, which doubles the time.
function addFractions(words: Uint32Array, count: number, upper: Float64Array, lower: Float64Array): void {
  const [high, low] = [upperWord, 1 - upperWord];
  for (let index = 0; index < count; index += 1) {
    const word = words[2 * index + high] as number;
    const place = word >>> 20;
    upper[place] = (upper[place] as number) + ((word & 0xfffff) | 0x100000);
    lower[place] = (lower[place] as number) + (words[2 * index + low] as number);
  }
}

/**
 * The sum of float64 numbers that share sign and exponent, in units of 2^-1074: of their fractions, with the bit that a
 * float64 leaves out.
 */
export function sumOfFractions(signAndExponent: number, fractions: bigint): bigint {
  const exponent = signAndExponent % exponents;
  if (exponent === 0) {
    return 0n;
  }
  const sum = fractions << BigInt(exponent - 1);
  return signAndExponent < exponents ? sum : -sum;
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
