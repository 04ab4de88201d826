import { loopsWithMemory } from "../../columnar/memory/vectors.js";
import { hashOf } from "../features/row-sample.js";
import { blockValues } from "../profiles/number-profile.js";
import { differenceLoopsCode } from "./difference-loops-code.js";
import { numberAt, type RowNumbers } from "./prediction-pair.js";

/** Compares the numbers of two models, a block of at most `blockValues` rows at a time. */
export interface BlockComparer {
  /** The numbers to compare: each model's. */
  readonly one: Float64Array;
  readonly other: Float64Array;
  /** Compares the first `count` numbers. What it returns is valid until the next call. */
  compare(count: number, about: BlockRows): BlockDifferences;
}

export interface BlockRows {
  readonly rowNumbers: RowNumbers;
  /** The index of the block's first row among them. */
  readonly from: number;
  readonly tolerance: number;
  /** The least difference that is listed in `different`. */
  readonly least: number;
  /** The level of the sample, see `RankSample`. */
  readonly level: number;
}

export interface BlockDifferences {
  /** The absolute differences of rows for which both numbers are finite, in the order of the rows. */
  readonly finite: Float64Array;
  /** How many rows differ by more than the tolerance. A number that is not finite differs from all others. */
  readonly beyond: number;
  /** Indices in the block of rows that differ by `least` or more, but not by 0. */
  readonly different: Uint32Array;
  /** Indices in the block of rows in the sample, if their difference is finite. */
  readonly sampled: Uint32Array;
}

/** The difference of two numbers; infinite if one of them is not finite and the other one differs. */
export function distanceOf(one: number, other: number): number {
  const distance = Math.abs(one - other);
  return distance < Number.POSITIVE_INFINITY ? distance : Object.is(one, other) ? 0 : Number.POSITIVE_INFINITY;
}

let opened: BlockComparer | undefined;

/** Returns what compares blocks in this thread, one comparison after the other. */
export function blockComparer(): BlockComparer {
  opened ??= comparerInLoops() ?? plainComparer();
  return opened;
}

/** See `difference-loops.wat`. */
interface Loops {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly countFrom: (first: number, count: number) => void;
  readonly compare: (count: number, tolerance: number, least: number, mask: number) => void;
}

/**
 * Compares in WebAssembly: V8 interprets JavaScript for a good part of the few million rows that most runs have, and
 * compiles WebAssembly at once. undefined: this thread has no WebAssembly.
 */
export function comparerInLoops(): BlockComparer | undefined {
  const loops = loopsWithMemory(differenceLoopsCode) as Loops | undefined;
  if (loops === undefined) {
    return undefined;
  }
  const { buffer } = loops.memory;
  const numbers = new Float64Array(buffer, 0x10000, blockValues);
  const differences = new Float64Array(buffer, 0x18000, blockValues);
  const different = new Uint32Array(buffer, 0x20000, blockValues);
  const sampled = new Uint32Array(buffer, 0x24000, blockValues);
  const found = new Uint32Array(buffer, 0x28000, 4);
  return {
    one: new Float64Array(buffer, 0, blockValues),
    other: new Float64Array(buffer, 0x8000, blockValues),
    compare(count, { rowNumbers, from, tolerance, least, level }) {
      if (rowNumbers instanceof Float64Array) {
        numbers.set(rowNumbers.subarray(from, from + count));
      } else {
        loops.countFrom(rowNumbers.first + from, count);
      }
      loops.compare(count, tolerance, least, maskOf(level));
      const [finite, beyond = 0, differing, samples] = found;
      return {
        finite: differences.subarray(0, finite),
        beyond,
        different: different.subarray(0, differing),
        sampled: sampled.subarray(0, samples),
      };
    },
  };
}

/** Does the same in JavaScript: where there is no WebAssembly. */
export function plainComparer(): BlockComparer {
  const [one, other] = [new Float64Array(blockValues), new Float64Array(blockValues)];
  const differences = new Float64Array(blockValues);
  const [different, sampled] = [new Uint32Array(blockValues), new Uint32Array(blockValues)];
  return {
    one,
    other,
    compare(count, { rowNumbers, from, tolerance, least, level }) {
      const mask = maskOf(level);
      let [finite, beyond, differing, samples] = [0, 0, 0, 0];
      for (let index = 0; index < count; index += 1) {
        const distance = distanceOf(one[index] as number, other[index] as number);
        if (Number.isFinite((one[index] as number) - (other[index] as number))) {
          differences[finite] = distance;
          finite += 1;
          sampled[samples] = index;
          samples += (hashOf(numberAt(rowNumbers, from + index)) & mask) === 0 ? 1 : 0;
        }
        beyond += distance > tolerance ? 1 : 0;
        different[differing] = index;
        differing += distance > 0 && distance >= least ? 1 : 0;
      }
      return {
        finite: differences.subarray(0, finite),
        beyond,
        different: different.subarray(0, differing),
        sampled: sampled.subarray(0, samples),
      };
    },
  };
}

/** Bits that are 0 in the hash of the number of each row in a sample of this level. */
function maskOf(level: number): number {
  return level < 32 ? (1 << level) - 1 : -1;
}
