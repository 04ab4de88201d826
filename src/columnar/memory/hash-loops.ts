/**
 * MurmurHash3_x86_128 of many rows at once in WebAssembly (`hash-loops.wat`), in a sixth of the time of JavaScript. The
 * rows are copied into its memory a block at a time, which costs little compared with hashing them.
 */
import { hashLoopsCode } from "./hash-loops-code.js";
import { loopsWithMemory } from "./vectors.js";

/** See `hash-loops.wat`. */
interface Loops {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly hashRows: (
    at: number,
    words: number,
    rows: number,
    to: number,
    a: number,
    b: number,
    c: number,
    d: number,
  ) => void;
  readonly unifyNan: (at: number, words: number) => void;
}

/** Words of a hash. */
export const hashWords = 4;
/** Rows that are hashed at once, and their words: what stays in the cache of a core. */
const mostRows = 4096;
const mostWords = 32 * 1024;

/** Loops of this thread, and their memory: the rows of a block, then their hashes. */
export interface HashLoops {
  /** Rows of so many words that are hashed at once; 0: a row is too long. A multiple of four. */
  rowsAtOnce(words: number): number;
  /** Takes the words of the rows of a block. */
  readonly block: Int32Array;
  /** Hashes the rows of the block. The result holds until the next call. */
  hash(rows: number, words: number, seed: Int32Array): Int32Array;
  /** Gives all NaN among the first words of the block, which are floats, the same bits. */
  unifyNan(words: number): void;
}

let opened: { readonly loops: HashLoops | undefined } | undefined;

/** undefined: this thread does without WebAssembly. */
export function hashLoops(): HashLoops | undefined {
  opened ??= { loops: open() };
  return opened.loops;
}

function open(): HashLoops | undefined {
  const loops = loopsWithMemory(hashLoopsCode) as Loops | undefined;
  if (loops === undefined) {
    return undefined;
  }
  const { buffer } = loops.memory;
  const block = new Int32Array(buffer, 0, mostWords);
  const hashes = new Int32Array(buffer, block.byteLength, mostRows * hashWords);
  return {
    rowsAtOnce: (words) => Math.min(mostRows, Math.floor(mostWords / Math.max(1, words))) & ~3,
    block,
    hash(rows, words, seed) {
      const [a = 0, b = 0, c = 0, d = 0] = seed;
      loops.hashRows(0, words, (rows + 3) & ~3, hashes.byteOffset, a, b, c, d);
      return hashes.subarray(0, rows * hashWords);
    },
    unifyNan(words) {
      loops.unifyNan(0, (words + 3) & ~3);
    },
  };
}
