import type { BytesColumn, Column } from "../../../columnar/types.js";
import {
  allocate,
  bytesPerElement,
  elementsOf,
  type ElementType,
  unpackBits,
  type Values,
} from "../../../columnar/values.js";
import { assertNever } from "../../../util/errors.js";
import { checkTexts } from "../../utf8.js";
import type { Storage } from "./storage.js";

/** `count` consecutive values from `at` to the end: views of `bytes` where they can be. */
export function plainValues(
  storage: Storage,
  bytes: Uint8Array<ArrayBuffer>,
  { at, count }: { readonly at: number; readonly count: number },
): Column {
  switch (storage.kind) {
    case "bits":
      requireBytes(bytes, at, Math.ceil(count / 8));
      return { kind: "fixed", elementsPerValue: 1, data: unpackBits(bytes.subarray(at), 0, count), valid: undefined };
    case "fixed": {
      const { stored, element } = storage;
      requireBytes(bytes, at, count * bytesPerElement(stored));
      const values = elementsOf(stored, bytes.subarray(at));
      const data = element === stored ? values : narrowed(values, element);
      return { kind: "fixed", elementsPerValue: 1, data, valid: undefined };
    }
    case "bytes":
      return readTexts(bytes, { at, count, isText: storage.isText });
    default:
      return assertNever(storage);
  }
}

function requireBytes(bytes: Uint8Array, at: number, size: number): void {
  // More bytes than that: the values may be others, or not all.
  if (at + size !== bytes.length) {
    throw new RangeError(`values of ${size} bytes in ${bytes.length - at}`);
  }
}

/** Whole numbers with fewer bits, each of which must fit. */
function narrowed(values: Values, element: ElementType): Values {
  const target = allocate(element, values.length) as Int32Array<ArrayBuffer>;
  const source = values as Int32Array<ArrayBuffer>;
  for (let index = 0; index < source.length; index += 1) {
    const value = source[index] as number;
    target[index] = value;
    if (target[index] !== value) {
      throw new RangeError(`${value} is no ${element}`);
    }
  }
  return target;
}

const lengthBytes = 4;

function readTexts(
  bytes: Uint8Array<ArrayBuffer>,
  { at: start, count, isText }: { at: number; count: number; isText: boolean },
): BytesColumn {
  const most = bytes.length - start - count * lengthBytes;
  if (count < 0 || most < 0) {
    throw new RangeError(`${count} texts in ${bytes.length - start} bytes`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const offsets = new Uint32Array(count + 1);
  // In the page's memory: each text moves towards the start, over the lengths before it.
  const texts = bytes.subarray(start, start + most);
  let at = start;
  let filled = 0;
  for (let index = 0; index < count; index += 1) {
    const length = at + lengthBytes <= bytes.length ? view.getUint32(at, true) : bytes.length;
    at += lengthBytes;
    if (filled + length > texts.length) {
      throw new RangeError("a text ends outside of its page");
    }
    moveText(bytes, start + filled, at, length);
    at += length;
    filled += length;
    offsets[index + 1] = filled;
  }
  if (filled !== most) {
    throw new RangeError(`texts of ${filled} bytes in ${most}`);
  }
  const column: BytesColumn = { kind: "bytes", offsets, bytes: texts, valid: undefined };
  if (isText) {
    checkTexts(column);
  }
  return column;
}

/** A call of the engine costs more than this many bytes. */
const shortText = 32;

function moveText(bytes: Uint8Array, to: number, from: number, length: number): void {
  if (length >= shortText) {
    bytes.copyWithin(to, from, from + length);
    return;
  }
  for (let index = 0; index < length; index += 1) {
    bytes[to + index] = bytes[from + index] as number;
  }
}
