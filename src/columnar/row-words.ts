import type { Tensor } from "./tensor.js";
import type { Column } from "./types.js";
import type { Values } from "./values.js";
import { assertNever } from "../util/errors.js";

/** The same bytes, four at a time and one at a time. */
export interface Memory {
  readonly words: Int32Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Memory of so many words. */
export function memoryOf(length: number): Memory {
  const words = new Int32Array(length);
  return { words, bytes: new Uint8Array(words.buffer) };
}

/** The same memory, or a larger copy with at least `length` words. */
export function grownTo(memory: Memory, length: number): Memory {
  if (memory.words.length >= length) {
    return memory;
  }
  const larger = memoryOf(Math.max(length, memory.words.length * 2));
  larger.words.set(memory.words);
  return larger;
}

/** The values of an input or a column: so many words or bytes each row, texts, or lists of values. */
export type Field =
  | { readonly kind: "words"; readonly words: Int32Array; readonly width: number }
  | { readonly kind: "bytes"; readonly bytes: Uint8Array; readonly width: number }
  | { readonly kind: "texts"; readonly offsets: Uint32Array; readonly bytes: Uint8Array }
  | { readonly kind: "lists"; readonly offsets: Uint32Array; readonly child: Field };

/** The rows of a tensor. */
export function fieldOf(tensor: Tensor, rows: number): Field {
  return tensor.dtype === "string"
    ? { kind: "texts", ...tensor.data }
    : valuesOf(tensor.data, tensor.data.byteLength / rows);
}

/** The rows of a column. A NULL is read as the value that is stored under it. @throws TypeError for a struct */
export function columnField(column: Column): Field {
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

/** Words that a row's fields take. */
export function wordsOf(fields: readonly Field[], row: number): number {
  let words = 0;
  for (const field of fields) {
    words += fieldWords(field, row);
  }
  return words;
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

/**
 * Puts a row's fields one after the other, and returns where they end. Texts and lists say their length first: no two rows
 * look alike.
 */
export function write(memory: Memory, at: number, fields: readonly Field[], row: number): number {
  let end = at;
  for (const field of fields) {
    end = writeField(memory, end, field, row);
  }
  return end;
}

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
