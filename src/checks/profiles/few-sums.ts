import { createExactAccumulator, type ExactAccumulator, sumOfFractions } from "./exact-sum.js";
import { createFloatBits, type FloatBits, upperWord } from "./float-bits.js";

/**
 * Adds up finite numbers without rounding, as few as some hundred: an `ExactAccumulator` takes longer to begin and to end.
 * J. R. Shewchuk, "Adaptive Precision Floating-Point Arithmetic and Fast Robust Geometric Predicates" (1997): the sum is
 * kept as numbers that do not overlap. No sum may be near 2^1023.
 */
export interface FewAdder {
  /** Adds each `step`-th value from the one at `from` on. */
  add(values: Float64Array, from: number, step: number): void;
  /** The sum, in units of 2^-1074. */
  finish(): bigint;
}

/** More than numbers that do not overlap are: each has 53 of some 2,100 bits. */
const mostParts = 64;

export function createFewAdder(): FewAdder {
  const parts = new Float64Array(mostParts);
  let many = 0;
  return {
    add(values, from, step) {
      for (let at = from; at < values.length; at += step) {
        let x = values[at] as number;
        if (x === 0) {
          continue;
        }
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
      }
    },
    finish: () => parts.subarray(0, many).reduce((sum, part) => sum + unitsOf(part), 0n),
  };
}

const one = createFloatBits(1);

/** A finite number in units of 2^-1074. */
function unitsOf(value: number): bigint {
  one.values[0] = value;
  const word = one.words[upperWord] as number;
  const fraction = (BigInt((word & 0xfffff) | 0x100000) << 32n) + BigInt(one.words[1 - upperWord] as number);
  return sumOfFractions(word >>> 20, fraction);
}

let shared: { readonly exact: ExactAccumulator; readonly bits: FloatBits } | undefined;

/** The sum of any numbers, in units of 2^-1074. */
export function exactSumOf(values: Float64Array): bigint {
  shared ??= { exact: createExactAccumulator(), bits: createFloatBits(1024) };
  const { exact, bits } = shared;
  for (let from = 0; from < values.length; from += bits.values.length) {
    const some = values.subarray(from, from + bits.values.length);
    bits.values.set(some);
    exact.add(bits, some.length);
  }
  return exact.take();
}
