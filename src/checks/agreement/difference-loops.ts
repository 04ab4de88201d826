import { loopsWithMemory } from "../../columnar/memory/vectors.js";
import { blockValues } from "../profiles/number-profile.js";
import { type BlockComparer, maskOf } from "./block-comparer.js";
import { differenceLoopsCode } from "./difference-loops-code.js";

/** See `difference-loops.wat`. */
interface Loops {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly countFrom: (first: number, count: number) => void;
  readonly compare: (count: number, tolerance: number, least: number) => void;
  readonly sample: (count: number, mask: number) => void;
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
      loops.compare(count, tolerance, least);
      loops.sample(count, maskOf(level));
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
