import { hashLoopsCode } from "./loops/hash-loops-code.js";
import { loopsWithMemory } from "./loops/vectors.js";
import { assertNever } from "../base/errors.js";
import type { NamedTensor, Tensor } from "./tensor.js";
import type { Column } from "./types.js";
import type { Values } from "./values.js";

/**
 * MurmurHash3_x86_128 of many rows at once in WebAssembly (`hash-loops.wat`), in a sixth of the time of JavaScript. The
 * rows are copied into its memory a block at a time, which costs little compared with hashing them.
 */

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
interface HashLoops {
  readonly loops: Loops;
  readonly block: Int32Array;
  readonly hashes: Int32Array;
}

let opened: { readonly loops: HashLoops | undefined } | undefined;

/** undefined: this thread does without WebAssembly. @public so that tests see it */
export function hashLoops(): HashLoops | undefined {
  opened ??= { loops: open() };
  return opened.loops;
}

function open(): HashLoops | undefined {
  const loops = loopsWithMemory(hashLoopsCode) as Loops | undefined;
  if (loops === undefined) {
    return undefined;
  }
  const block = new Int32Array(loops.memory.buffer, 0, mostWords);
  return { loops, block, hashes: new Int32Array(loops.memory.buffer, block.byteLength, mostRows * hashWords) };
}

/** Hashes rows with 128 bits. Hashes are stored one after the other, four words each. */
interface RowHasher {
  /** Puts the hashes of the rows of tensors into `hashes`, from row `at` on. NaN counts as one value, -0 is not 0. */
  tensors(tensors: readonly NamedTensor[], rows: number, hashes: Int32Array, at: number): void;
  /** The hashes of rows of columns; with `hashes`, each with the hash of that row. @throws TypeError for a struct */
  columns(columns: readonly Column[], rows: number, hashes?: Int32Array): Int32Array<ArrayBuffer>;
}

/**
 * @param seed four words: hashes of different seeds have nothing in common
 * @param hasNan whether tensors may have NaN
 */
export function createRowHasher(seed: Int32Array, hasNan: boolean): RowHasher {
  const hashLongRows = createLongRowHasher(seed);
  const hashAll = (fields: readonly Field[], rows: number, hashes: Int32Array, at: number): void => {
    const words = fields.flatMap((field) => wordsField(field, rows) ?? []);
    if (words.length < fields.length || !hashFixedRows(words, rows, { seed, hashes, at, floats: false })) {
      hashLongRows(fields, rows, hashes, at);
    }
  };
  return {
    tensors(tensors, rows, hashes, at) {
      const [first, ...others] = tensors;
      // As most models have it: rows lie there as they are hashed.
      if (others.length === 0 && first?.dtype === "float32") {
        const floats = fieldOf(first, rows);
        if (floats.kind === "words" && hashFixedRows([floats], rows, { seed, hashes, at, floats: hasNan })) {
          return;
        }
      }
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
    columns(columns, rows, hashes) {
      const result = new Int32Array(rows * hashWords);
      const own: Field[] = hashes === undefined ? [] : [{ kind: "words", words: hashes, width: hashWords }];
      hashAll([...own, ...columns.map(columnField)], rows, result, 0);
      return result;
    },
  };
}

type WordsField = Extract<Field, { kind: "words" }>;

/** A field whose rows all have the same number of bytes, as whole words; undefined: their lengths differ. */
function wordsField(field: Field, rows: number): WordsField | undefined {
  if (field.kind !== "bytes") {
    return field.kind === "words" ? field : undefined;
  }
  const { bytes, width } = field;
  const words = Math.ceil(width / 4);
  const padded = new Uint8Array(rows * words * 4);
  for (let row = 0, from = 0, to = 0; row < rows; row += 1, from += width, to += words * 4) {
    for (let byte = 0; byte < width; byte += 1) {
      padded[to + byte] = bytes[from + byte] as number;
    }
  }
  return { kind: "words", words: new Int32Array(padded.buffer), width: words };
}

interface FixedRows {
  readonly seed: Int32Array;
  readonly hashes: Int32Array;
  readonly at: number;
  /** The words are floats that may be NaN. */
  readonly floats: boolean;
}

/** Hashes rows of as many words each in WebAssembly; false: there is none here, or rows are too long for it. */
function hashFixedRows(fields: readonly WordsField[], rows: number, { seed, hashes, at, floats }: FixedRows): boolean {
  const here = hashLoops();
  const width = fields.reduce((sum, field) => sum + field.width, 0);
  const most = Math.min(mostRows, Math.floor(mostWords / Math.max(1, width))) & ~3;
  if (here === undefined || most === 0) {
    return false;
  }
  const { loops, block } = here;
  const [a = 0, b = 0, c = 0, d = 0] = seed;
  for (let from = 0; from < rows; from += most) {
    const count = Math.min(most, rows - from);
    let place = 0;
    for (const field of fields) {
      putField(block, place, width, field, { from, count });
      place += field.width;
    }
    if (floats) {
      loops.unifyNan(0, (count * width + 3) & ~3);
    }
    loops.hashRows(0, width, (count + 3) & ~3, here.hashes.byteOffset, a, b, c, d);
    hashes.set(here.hashes.subarray(0, count * hashWords), (at + from) * hashWords);
  }
  return true;
}

/** Puts rows of a field into a block of rows of `stride` words each. */
function putField(
  block: Int32Array,
  place: number,
  stride: number,
  { words, width }: WordsField,
  { from, count }: { readonly from: number; readonly count: number },
): void {
  if (width === stride) {
    block.set(words.subarray(from * width, (from + count) * width));
    return;
  }
  for (let word = 0; word < width; word += 1) {
    for (let row = 0, at = from * width + word, to = place + word; row < count; row += 1, at += width, to += stride) {
      block[to] = words[at] as number;
    }
  }
}

function createLongRowHasher(
  seed: Int32Array,
): (fields: readonly Field[], rows: number, hashes: Int32Array, at: number) => void {
  let memory = memoryOf(1 << 10);
  return (fields, rows, hashes, at) => {
    for (let row = 0; row < rows; row += 1) {
      let length = 0;
      for (const field of fields) {
        length += fieldWords(field, row);
      }
      memory = grownTo(memory, length);
      let end = 0;
      for (const field of fields) {
        end = writeField(memory, end, field, row);
      }
      hash128(memory.words, end, seed, hashes, (at + row) * hashWords);
    }
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

/** MurmurHash3_x86_128 (public domain, A. Appleby) of the first `length` words. Seed and hash have four words. */
function hash128(words: Int32Array, length: number, seed: Int32Array, into: Int32Array, at: number): void {
  let a = seed[0] as number;
  let b = seed[1] as number;
  let c = seed[2] as number;
  let d = seed[3] as number;
  const whole = length & ~3;
  let index = 0;
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
  c ^= length - index > 2 ? mixC(words[index + 2] as number) : 0;
  b ^= length - index > 1 ? mixB(words[index + 1] as number) : 0;
  a ^= length - index > 0 ? mixA(words[index] as number) : 0;
  const bytes = length * 4;
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

/** The values of an input or a column: so many words or bytes each row, texts, or lists of values. */
type Field =
  | { readonly kind: "words"; readonly words: Int32Array; readonly width: number }
  | { readonly kind: "bytes"; readonly bytes: Uint8Array; readonly width: number }
  | { readonly kind: "texts"; readonly offsets: Uint32Array; readonly bytes: Uint8Array }
  | { readonly kind: "lists"; readonly offsets: Uint32Array; readonly child: Field };

function fieldOf(tensor: Tensor, rows: number): Field {
  return tensor.dtype === "string"
    ? { kind: "texts", ...tensor.data }
    : valuesOf(tensor.data, tensor.data.byteLength / rows);
}

/** The rows of a column. A NULL is read as the value that is stored under it. @throws TypeError for a struct */
function columnField(column: Column): Field {
  switch (column.kind) {
    case "fixed":
      return valuesOf(column.data, column.data.BYTES_PER_ELEMENT * column.elementsPerValue);
    case "bytes":
      return { kind: "texts", offsets: column.offsets, bytes: column.bytes };
    case "list":
      return { kind: "lists", offsets: column.offsets, child: columnField(column.child) };
    case "struct":
      throw new TypeError("a struct has no words");
    default:
      return assertNever(column);
  }
}

function valuesOf({ buffer, byteOffset, byteLength }: Values, width: number): Field {
  return width % 4 === 0 && byteOffset % 4 === 0
    ? { kind: "words", words: new Int32Array(buffer, byteOffset, byteLength >> 2), width: width / 4 }
    : { kind: "bytes", bytes: new Uint8Array(buffer, byteOffset, byteLength), width };
}

function fieldWords(field: Field, row: number): number {
  switch (field.kind) {
    case "words":
      return field.width;
    case "bytes":
      return wholeWords(field.width);
    case "texts":
      return 1 + wholeWords(lengthOf(field.offsets, row));
    case "lists": {
      let words = 1;
      for (let item = field.offsets[row] as number; item < (field.offsets[row + 1] as number); item += 1) {
        words += fieldWords(field.child, item);
      }
      return words;
    }
    default:
      return assertNever(field);
  }
}

function wholeWords(bytes: number): number {
  return Math.ceil(bytes / 4);
}

function lengthOf(offsets: Uint32Array, row: number): number {
  return (offsets[row + 1] as number) - (offsets[row] as number);
}

/** Returns where the row ends. Texts and lists say their length first: no two rows look alike. */
function writeField(memory: Memory, at: number, field: Field, row: number): number {
  const { words } = memory;
  switch (field.kind) {
    case "words": {
      const { words: source, width } = field;
      let end = at;
      for (let index = row * width, last = index + width; index < last; index += 1) {
        words[end] = source[index] as number;
        end += 1;
      }
      return end;
    }
    case "bytes":
      return writeBytes(memory, at, field.bytes, { from: row * field.width, length: field.width });
    case "texts": {
      const length = lengthOf(field.offsets, row);
      words[at] = length;
      return writeBytes(memory, at + 1, field.bytes, { from: field.offsets[row] as number, length });
    }
    case "lists": {
      words[at] = lengthOf(field.offsets, row);
      let end = at + 1;
      for (let item = field.offsets[row] as number; item < (field.offsets[row + 1] as number); item += 1) {
        end = writeField(memory, end, field.child, item);
      }
      return end;
    }
    default:
      return assertNever(field);
  }
}

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
