import { columnField, fieldOf, grownTo, memoryOf, wordsOf, write, type Field } from "./row-words.js";
import type { NamedTensor } from "./tensor.js";
import type { Column } from "./types.js";

/** Words of a hash. */
export const hashWords = 4;

/** Hashes rows with 128 bits. Hashes are stored one after the other, four words each. */
export interface RowHasher {
  /** Puts the hashes of the rows of tensors into `hashes`, from row `at` on. NaN counts as one value, -0 is not 0. */
  tensors(tensors: readonly NamedTensor[], rows: number, hashes: Int32Array, at: number): void;
  /** The hashes of rows of columns, each with the hash of that row in `hashes`. @throws TypeError for a struct */
  columns(hashes: Int32Array, columns: readonly Column[], rows: number): Int32Array;
}

/**
 * @param seed four words: hashes of different seeds have nothing in common
 * @param hasNan whether tensors may have NaN
 */
export function createRowHasher(seed: Int32Array, hasNan: boolean): RowHasher {
  let memory = memoryOf(1 << 10);
  const hashAll = (fields: readonly Field[], rows: number, hashes: Int32Array, at: number): void => {
    const [first, ...others] = fields;
    if (first?.kind === "words" && others.length === 0) {
      const { words, width } = first; // as for most models: the words of a row are consecutive
      for (let row = 0; row < rows; row += 1) {
        hash128({ words, from: row * width, to: (row + 1) * width }, seed, hashes, (at + row) * hashWords);
      }
      return;
    }
    for (let row = 0; row < rows; row += 1) {
      memory = grownTo(memory, wordsOf(fields, row));
      const end = write(memory, 0, fields, row);
      hash128({ words: memory.words, from: 0, to: end }, seed, hashes, (at + row) * hashWords);
    }
  };
  return {
    tensors(tensors, rows, hashes, at) {
      for (const tensor of hasNan ? tensors : []) {
        unifyNan(tensor);
      }
      hashAll(
        tensors.map((tensor) => fieldOf(tensor, rows)),
        rows,
        hashes,
        at,
      );
    },
    columns(hashes, columns, rows) {
      const result = new Int32Array(rows * hashWords);
      hashAll([{ kind: "words", words: hashes, width: hashWords }, ...columns.map(columnField)], rows, result, 0);
      return result;
    },
  };
}

/** Gives all NaN of a tensor the same bits: decoders make different ones of NULL, and no model can tell them apart. */
function unifyNan({ dtype, data }: NamedTensor): void {
  if (dtype === "float32") {
    const bits = new Uint32Array(data.buffer, data.byteOffset, data.length);
    for (let index = 0; index < bits.length; index += 1) {
      if (((bits[index] as number) & 0x7fffffff) > 0x7f800000) {
        bits[index] = 0x7fc00000;
      }
    }
  } else if (dtype === "float64") {
    const words = new Uint32Array(data.buffer, data.byteOffset, data.length * 2); // little-endian, as all of Node's platforms
    for (let index = 0; index < data.length; index += 1) {
      if (Number.isNaN(data[index])) {
        words[index * 2] = 0;
        words[index * 2 + 1] = 0x7ff80000;
      }
    }
  } else if (dtype === "float16") {
    for (let index = 0; index < data.length; index += 1) {
      if (((data[index] as number) & 0x7fff) > 0x7c00) {
        data[index] = 0x7e00;
      }
    }
  }
}

/** Words [from, to). */
interface Words {
  readonly words: Int32Array;
  readonly from: number;
  readonly to: number;
}

/** MurmurHash3_x86_128 (public domain, A. Appleby), with a seed of four words. Puts the hash into `into`, from `at` on. */
function hash128({ words, from, to }: Words, seed: Int32Array, into: Int32Array, at: number): void {
  let a = seed[0] as number;
  let b = seed[1] as number;
  let c = seed[2] as number;
  let d = seed[3] as number;
  const whole = from + ((to - from) & ~3);
  let index = from;
  for (; index < whole; index += 4) {
    a ^= mixA(words[index] as number);
    a = (Math.imul(((a << 19) | (a >>> 13)) + b, 5) + 0x561ccd1b) | 0;
    b ^= mixB(words[index + 1] as number);
    b = (Math.imul(((b << 17) | (b >>> 15)) + c, 5) + 0x0bcaa747) | 0;
    c ^= mixC(words[index + 2] as number);
    c = (Math.imul(((c << 15) | (c >>> 17)) + d, 5) + 0x96cd1c35) | 0;
    d ^= mixD(words[index + 3] as number);
    d = (Math.imul(((d << 13) | (d >>> 19)) + a, 5) + 0x32ac3b17) | 0;
  }
  c ^= to - index > 2 ? mixC(words[index + 2] as number) : 0;
  b ^= to - index > 1 ? mixB(words[index + 1] as number) : 0;
  a ^= to - index > 0 ? mixA(words[index] as number) : 0;
  const bytes = (to - from) * 4;
  a = ((a ^ bytes) + (b ^ bytes) + (c ^ bytes) + (d ^ bytes)) | 0;
  b = scramble(((b ^ bytes) + a) | 0);
  c = scramble(((c ^ bytes) + a) | 0);
  d = scramble(((d ^ bytes) + a) | 0);
  a = (scramble(a) + b + c + d) | 0;
  into[at] = a;
  into[at + 1] = (b + a) | 0;
  into[at + 2] = (c + a) | 0;
  into[at + 3] = (d + a) | 0;
}

function mixA(word: number): number {
  const k = Math.imul(word, 0x239b961b);
  return Math.imul((k << 15) | (k >>> 17), 0xab0e9789);
}

function mixB(word: number): number {
  const k = Math.imul(word, 0xab0e9789);
  return Math.imul((k << 16) | (k >>> 16), 0x38b34ae5);
}

function mixC(word: number): number {
  const k = Math.imul(word, 0x38b34ae5);
  return Math.imul((k << 17) | (k >>> 15), 0xa1e38b93);
}

function mixD(word: number): number {
  const k = Math.imul(word, 0xa1e38b93);
  return Math.imul((k << 18) | (k >>> 14), 0x239b961b);
}

function scramble(hash: number): number {
  let h = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return h ^ (h >>> 16);
}
