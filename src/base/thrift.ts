/**
 * Thrift's compact protocol, as far as Parquet needs it: reads the requested fields of a struct and skips the others,
 * and encodes replacements for fields. No read goes past the given bytes, even if a stored length does.
 * https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
 */
export interface Cursor {
  readonly bytes: Uint8Array;
  at: number;
}

const types = {
  yes: 1,
  no: 2,
  i8: 3,
  i32: 5,
  i64: 6,
  double: 7,
  binary: 8,
  list: 9,
  set: 10,
  map: 11,
  struct: 12,
  uuid: 13,
};

/** Deeper than any struct of Parquet. */
const depthLimit = 32;
const varintBytes = 10;

/** Reads the value of a field, or returns false for it to be stepped over. */
export type FieldReader = (id: number, type: number) => boolean;

/**
 * @throws RangeError when the bytes end inside the struct
 * @throws Error when they are no struct
 */
export function readStruct(cursor: Cursor, read: FieldReader, depth = 0): void {
  if (depth > depthLimit) {
    throw new Error("structs are nested too deeply");
  }
  let id = 0;
  for (;;) {
    const head = readByte(cursor);
    const type = head & 15;
    if (type === 0) {
      return;
    }
    const delta = head >> 4;
    id = delta === 0 ? zigzag(readVarint(cursor)) : id + delta;
    if (!read(id, type)) {
      skip(cursor, type, depth);
    }
  }
}

/** A struct in a field or a list. */
export function readInner(cursor: Cursor, type: number, read: FieldReader): void {
  expectType(type, type === types.struct, types.struct);
  readStruct(cursor, read);
}

/** Calls `read` for each element, which it must read. */
export function readList(cursor: Cursor, type: number, read: (type: number, index: number) => void): void {
  expectType(type, type === types.list, types.list);
  const head = readByte(cursor);
  const length = head >> 4 === 15 ? readVarint(cursor) : head >> 4;
  for (let index = 0; index < length; index += 1) {
    read(head & 15, index);
  }
}

/** Whether a field of this type is the value `true`: there are no more bytes of it. */
export function isYes(type: number): boolean {
  return type === types.yes;
}

/** Whether it is the value `false`. A field of another type is neither. */
export function isNo(type: number): boolean {
  return type === types.no;
}

export function isStruct(type: number): boolean {
  return type === types.struct;
}

export function readI32(cursor: Cursor, type: number): number {
  return readInteger(cursor, type, types.i32);
}

export function readI64(cursor: Cursor, type: number): number {
  return readInteger(cursor, type, types.i64);
}

/**
 * An integer of a list, of any width above 8 bits: readers that are generated from parquet.thrift do not look at the type
 * of a list's elements.
 */
export function readListed(cursor: Cursor, type: number): number {
  return readInteger(cursor, type, type > types.i8 && type < types.i64 ? type : types.i64);
}

/** Of exactly this type: readers that skip other types would treat the field as missing. */
function readInteger(cursor: Cursor, type: number, due: number): number {
  expectType(type, type === due, due);
  const value = zigzag(readVarint(cursor));
  if (!Number.isSafeInteger(value)) {
    throw new Error(`the number ${value} is too large`);
  }
  return value;
}

/** A view of the bytes. */
export function readBinary(cursor: Cursor, type: number): Uint8Array {
  expectType(type, type === types.binary, types.binary);
  const start = cursor.at + lengthOf(cursor);
  return cursor.bytes.subarray(start, cursor.at);
}

/** Moves behind a text or bytes; returns how long the length itself was. */
function lengthOf(cursor: Cursor): number {
  const start = cursor.at;
  const length = readVarint(cursor);
  const prefix = cursor.at - start;
  advance(cursor, length);
  return prefix;
}

function skip(cursor: Cursor, type: number, depth: number, element = false): void {
  switch (type) {
    case types.yes:
    case types.no:
      advance(cursor, element ? 1 : 0); // the value of a field is its type
      return;
    case types.i8:
      advance(cursor, 1);
      return;
    case types.double:
      advance(cursor, 8);
      return;
    case types.binary:
      lengthOf(cursor);
      return;
    case types.uuid:
      advance(cursor, 16);
      return;
    case types.list:
    case types.set: {
      readList(cursor, types.list, (inner) => {
        nested(cursor, inner, depth);
      });
      return;
    }
    case types.map: {
      const size = readVarint(cursor);
      const kinds = size === 0 ? 0 : readByte(cursor);
      for (let index = 0; index < size; index += 1) {
        nested(cursor, kinds >> 4, depth);
        nested(cursor, kinds & 15, depth);
      }
      return;
    }
    case types.struct:
      readStruct(cursor, () => false, depth + 1);
      return;
    default:
      expectType(type, type > types.i8 && type <= types.i64, "1 to 13");
      readVarint(cursor);
  }
}

function nested(cursor: Cursor, type: number, depth: number): void {
  if (depth >= depthLimit) {
    throw new Error("lists are nested too deeply");
  }
  skip(cursor, type, depth + 1, true);
}

function expectType(type: number, fits: boolean, expected: number | string): void {
  if (!fits) {
    throw new Error(`a value has type ${type}, where type ${expected} is due`);
  }
}

function readByte(cursor: Cursor): number {
  const byte = cursor.bytes[cursor.at];
  if (byte === undefined) {
    throw new RangeError("the bytes end in the middle");
  }
  cursor.at += 1;
  return byte;
}

function advance(cursor: Cursor, length: number): void {
  if (cursor.at + length > cursor.bytes.length) {
    throw new RangeError("the bytes end in the middle");
  }
  cursor.at += length;
}

/** Numbers above 2^53 lose their last bits: none that is used may be so large. */
export function readVarint(cursor: Cursor): number {
  let value = 0;
  let scale = 1;
  for (let count = 0; count < varintBytes; count += 1) {
    const byte = readByte(cursor);
    value += (byte & 127) * scale;
    if (byte < 128) {
      return value;
    }
    scale *= 128;
  }
  throw new Error("a number has more than 10 bytes");
}

/** The bytes of an i64, or of another integer: their field says which it is. */
export function writeInteger(value: number): Uint8Array {
  return writeVarint(value < 0 ? -value * 2 - 1 : value * 2);
}

/** Reads the type and the length of a list, which precede its elements. */
export function writeListHead(type: number, length: number): Uint8Array {
  return length < 15 ? Uint8Array.of((length << 4) | type) : Uint8Array.of(0xf0 | type, ...writeVarint(length));
}

/** Seven bits a byte, the lowest first (LEB128). */
function writeVarint(value: number): Uint8Array {
  const bytes: number[] = [];
  let left = value;
  for (; left >= 128; left = Math.floor(left / 128)) {
    bytes.push((left % 128) | 128);
  }
  return Uint8Array.of(...bytes, left);
}

function zigzag(value: number): number {
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}
