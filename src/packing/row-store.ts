import type { DistinctRows } from "./distinct-rows.js";
import { createRowIndex } from "./row-index.js";
import type { NamedTensor } from "../columnar/tensor.js";

/** Rows as the model reads them: found by a hash, and compared by their bytes. */
export interface RowStore {
  /** Forgets all rows: another span begins. */
  clear(): void;
  /** Adds the rows of some tensors to those of a span: each that is the same as one that is kept, as its repeat. */
  add(tensors: readonly NamedTensor[], rows: number, distinct: DistinctRows): void;
}

/** The limit of kept rows, in bytes. Beyond it rows are forgotten, and rows equal to them are scored again. */
const keptBytes = 64 * 1024 * 1024;

export interface RowStoreOptions {
  readonly limitBytes?: number;
  /** Returns a 32-bit hash of words [from, to). */
  readonly hashOf?: (words: Int32Array, from: number, to: number) => number;
}

export function createRowStore({ limitBytes = keptBytes, hashOf = hashWords }: RowStoreOptions = {}): RowStore {
  const limitWords = limitBytes / 4;
  const index = createRowIndex();
  let memory = memoryOf(1 << 14);
  let used = 0;
  const clear = (): void => {
    used = 0;
    index.clear();
  };
  return {
    clear,
    add(tensors, rows, distinct) {
      const fields = tensors.map((tensor) => fieldOf(tensor, rows));
      for (let row = 0; row < rows; row += 1) {
        const length = wordsOf(fields, row);
        if (used + length + index.words > limitWords) {
          clear();
        }
        memory = grownTo(memory, used + length);
        // Behind those that are kept: a new one is kept by moving the end.
        const end = write(memory, used, fields, row);
        const hash = hashOf(memory.words, used, end);
        const distinctIndex = index.find(hash, memory.words, used, end);
        if (distinctIndex >= 0) {
          distinct.repeat(distinctIndex);
        } else {
          index.add(hash, used, distinct.count);
          distinct.add();
          used = end;
        }
      }
    },
  };
}

/** The same bytes, four at a time and one at a time. */
interface Memory {
  readonly words: Int32Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

function memoryOf(length: number): Memory {
  const words = new Int32Array(length);
  return { words, bytes: new Uint8Array(words.buffer) };
}

function grownTo(memory: Memory, length: number): Memory {
  if (memory.words.length >= length) {
    return memory;
  }
  const larger = memoryOf(Math.max(length, memory.words.length * 2));
  larger.words.set(memory.words);
  return larger;
}

/** The values of an input: so many words or bytes each row, or texts. */
type Field =
  | { readonly kind: "words"; readonly words: Int32Array; readonly width: number }
  | { readonly kind: "bytes"; readonly bytes: Uint8Array; readonly width: number }
  | { readonly kind: "texts"; readonly offsets: Uint32Array; readonly bytes: Uint8Array };

function fieldOf(tensor: NamedTensor, rows: number): Field {
  if (tensor.dtype === "string") {
    return { kind: "texts", ...tensor.data };
  }
  const { buffer, byteOffset, byteLength } = tensor.data;
  const width = byteLength / rows;
  return width % 4 === 0 && byteOffset % 4 === 0
    ? { kind: "words", words: new Int32Array(buffer, byteOffset, byteLength / 4), width: width / 4 }
    : { kind: "bytes", bytes: new Uint8Array(buffer, byteOffset, byteLength), width };
}

function wordsOf(fields: readonly Field[], row: number): number {
  let words = 0;
  for (const field of fields) {
    words +=
      field.kind === "words"
        ? field.width
        : field.kind === "bytes"
          ? wholeWords(field.width)
          : 1 + wholeWords(textLength(field.offsets, row));
  }
  return words;
}

function wholeWords(bytes: number): number {
  return Math.ceil(bytes / 4);
}

function textLength(offsets: Uint32Array, row: number): number {
  return (offsets[row + 1] as number) - (offsets[row] as number);
}

/** Puts a row's fields one after the other, and returns where they end. A text says its length first: no two rows look alike. */
function write(memory: Memory, at: number, fields: readonly Field[], row: number): number {
  const { words } = memory;
  let end = at;
  for (const field of fields) {
    if (field.kind === "words") {
      const { words: source, width } = field;
      for (let index = row * width, last = index + width; index < last; index += 1) {
        words[end] = source[index] as number;
        end += 1;
      }
    } else if (field.kind === "bytes") {
      end = writeBytes(memory, end, field.bytes, { from: row * field.width, length: field.width });
    } else {
      const length = textLength(field.offsets, row);
      words[end] = length;
      end = writeBytes(memory, end + 1, field.bytes, { from: field.offsets[row] as number, length });
    }
  }
  return end;
}

/** Writes bytes, padded with zeros to whole words. */
function writeBytes(
  { words, bytes }: Memory,
  at: number,
  source: Uint8Array,
  { from, length }: { from: number; length: number },
): number {
  const end = at + wholeWords(length);
  if (end > at) {
    words[end - 1] = 0;
    bytes.set(source.subarray(from, from + length), at * 4);
  }
  return end;
}

/** Two interleaved hashes, since one would wait for its own last product; then as MurmurHash3 ends (public domain, A. Appleby). */
function hashWords(words: Int32Array, from: number, to: number): number {
  let a = 0x2c1b3c6d;
  let b = 0x297a2d39;
  let index = from;
  for (; index + 1 < to; index += 2) {
    a = Math.imul(a ^ (words[index] as number), 0x7feb352d);
    b = Math.imul(b ^ (words[index + 1] as number), 0x27d4eb2f);
    // Downwards, too: floats of few digits differ in their upper bits only.
    a ^= a >>> 15;
    b ^= b >>> 13;
  }
  if (index < to) {
    a = Math.imul(a ^ (words[index] as number), 0x7feb352d);
    a ^= a >>> 15;
  }
  let hash = a ^ Math.imul(b, 0x5bd1e995);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}
