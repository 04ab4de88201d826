import type { Column, FixedColumn } from "../../../columnar/types.js";
import { allocate, elementsOf, type Values } from "../../../columnar/values.js";
import { assertNever } from "../../../util/errors.js";
import type { ArrowField, ArrowType } from "./metadata.js";
import { columnTypeOf } from "./types.js";

/** Types whose values are as many bytes each, bits aside. */
export type FixedType = Extract<
  ArrowType,
  { kind: "int" | "float" | "decimal" | "date" | "time" | "timestamp" | "duration" | "fixedBytes" }
>;

/** Bytes a value takes in its buffer. */
export function widthOf(type: FixedType): number {
  switch (type.kind) {
    case "int":
    case "float":
    case "decimal":
    case "time":
      return type.bits / 8;
    case "date":
      return type.unit === "day" ? 4 : 8;
    case "timestamp":
    case "duration":
      return 8;
    case "fixedBytes":
      return type.width;
    default:
      return assertNever(type);
  }
}

type Fixed = Pick<FixedColumn, "elementsPerValue" | "data">;

const one = (data: Values): Fixed => ({ elementsPerValue: 1, data });

/**
 * Converts values of a field of fixed width to the form in which columns store them.
 * @throws RangeError where one that is not NULL cannot be kept
 */
export function fixedColumn(
  field: ArrowField & { readonly type: FixedType },
  bytes: Uint8Array<ArrayBuffer>,
  rows: number,
  valid: Uint8Array | undefined,
): Column {
  const { type } = field;
  if (type.kind !== "fixedBytes") {
    return { kind: "fixed", ...fixedValues(type, bytes, (row) => valid?.[row] === 0), valid };
  }
  if (columnTypeOf(field) === "uuid") {
    return { kind: "fixed", ...uuids(bytes), valid };
  }
  const offsets = new Uint32Array(rows + 1);
  for (let row = 0; row <= rows; row += 1) {
    offsets[row] = row * type.width;
  }
  return { kind: "bytes", offsets, bytes, valid };
}

/** `isNull`: values without a meaning. */
function fixedValues(
  type: Exclude<FixedType, { kind: "fixedBytes" }>,
  bytes: Uint8Array<ArrayBuffer>,
  isNull: (index: number) => boolean,
): Fixed {
  switch (type.kind) {
    case "int":
      return one(elementsOf(`${type.signed ? "int" : "uint"}${type.bits}`, bytes));
    case "float":
      return one(
        type.bits === 16
          ? fromHalves(elementsOf("uint16", bytes) as Uint16Array)
          : elementsOf(type.bits === 32 ? "float32" : "float64", bytes),
      );
    case "decimal":
      return decimals(type, bytes, isNull);
    case "date":
      return one(
        type.unit === "day"
          ? elementsOf("int32", bytes)
          : Int32Array.from(longs(bytes), (ms, index) => (isNull(index) ? 0 : daysOf(ms))),
      );
    case "time":
      return one(scaled(type.bits === 32 ? fromInts(bytes) : longs(bytes), unitSteps[type.unit], isNull));
    case "timestamp":
      return one(scaled(longs(bytes), unitSteps[type.unit], isNull));
    case "duration":
      return one(longs(bytes));
    default:
      return assertNever(type);
  }
}

/** Each of the float16 values is one of float32. */
function fromHalves(halves: Uint16Array): Float32Array<ArrayBuffer> {
  const floats = new Float32Array(halves.length);
  for (let index = 0; index < halves.length; index += 1) {
    floats[index] = floatOfHalf(halves[index] as number);
  }
  return floats;
}

function floatOfHalf(half: number): number {
  const sign = (half & 0x8000) === 0 ? 1 : -1;
  const exponent = (half >> 10) & 31;
  const fraction = half & 1023;
  if (exponent === 31) {
    return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  }
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const unitSteps = { s: 1_000_000n, ms: 1000n, us: 1n, ns: 1n };

function longs(bytes: Uint8Array<ArrayBuffer>): BigInt64Array<ArrayBuffer> {
  return elementsOf("int64", bytes) as BigInt64Array<ArrayBuffer>;
}

function fromInts(bytes: Uint8Array<ArrayBuffer>): BigInt64Array<ArrayBuffer> {
  return BigInt64Array.from(elementsOf("int32", bytes) as Int32Array, BigInt);
}

const dayMs = 86_400_000n;

function daysOf(ms: bigint): number {
  return Number((ms - (((ms % dayMs) + dayMs) % dayMs)) / dayMs);
}

const longMax = 2n ** 63n - 1n;

function scaled(
  values: BigInt64Array<ArrayBuffer>,
  step: bigint,
  isNull: (index: number) => boolean,
): BigInt64Array<ArrayBuffer> {
  if (step === 1n) {
    return values;
  }
  const most = longMax / step;
  return values.map((value, index) => {
    if (isNull(index)) {
      return 0n;
    }
    if (value > most || value < -most) {
      throw new RangeError(`the time ${value}, which has no microseconds`);
    }
    return value * step;
  });
}

/** Returns decimals as the smallest integers that hold the precision. DuckDB stores 128 bits in the order of Arrow. */
function decimals(
  { precision, bits }: ArrowType & { kind: "decimal" },
  bytes: Uint8Array<ArrayBuffer>,
  isNull: (index: number) => boolean,
): Fixed {
  const words = Math.max(1, bits / 64);
  const signed = bits === 32 ? fromInts(bytes) : longs(bytes);
  if (bits === 128 && precision > 18) {
    const data = elementsOf("uint64", bytes) as BigUint64Array<ArrayBuffer>;
    refuseLong(data, precision, isNull);
    return { elementsPerValue: 2, data };
  }
  const rows = signed.length / words;
  const low = (row: number): bigint => signed[row * words] as bigint;
  const fits = (row: number, from: number, sign: bigint): boolean => {
    for (let word = from; word < words; word += 1) {
      if (signed[row * words + word] !== sign) {
        return false;
      }
    }
    return true;
  };
  if (precision > 18) {
    const data = new BigInt64Array(rows * 2);
    for (let row = 0; row < rows; row += 1) {
      const high = words > 1 ? (signed[row * words + 1] as bigint) : low(row) >> 63n;
      if (!isNull(row) && !fits(row, 2, high >> 63n)) {
        throw tooLong(precision);
      }
      data[row * 2] = low(row);
      data[row * 2 + 1] = high;
    }
    const unsigned = new BigUint64Array(data.buffer);
    refuseLong(unsigned, precision, isNull);
    return { elementsPerValue: 2, data: unsigned };
  }
  const limit = 10n ** BigInt(precision);
  const data = allocate(precision > 9 ? "int64" : precision > 4 ? "int32" : "int16", rows);
  for (let row = 0; row < rows; row += 1) {
    const value = isNull(row) ? 0n : low(row);
    if (value >= limit || value <= -limit || (!isNull(row) && !fits(row, 1, value >> 63n))) {
      throw tooLong(precision);
    }
    data[row] = data instanceof BigInt64Array ? value : Number(value);
  }
  return one(data);
}

function tooLong(precision: number): RangeError {
  return new RangeError(`a decimal of more than ${precision} digits`);
}

/**
 * Rejects values of 128 bits with too many digits. A value's double is exact to 2^45, and the margin of the comparison
 * is at least 2^53, so only values near the limit are computed exactly.
 * @throws RangeError
 */
function refuseLong(words: BigUint64Array<ArrayBuffer>, precision: number, isNull: (index: number) => boolean): void {
  const limit = 10n ** BigInt(precision);
  const surely = Number(limit) * 0.999;
  const parts = new Uint32Array(words.buffer, words.byteOffset, words.length * 2);
  for (let row = 0, at = 0; at < parts.length; row += 1, at += 4) {
    const high = ((parts[at + 3] as number) | 0) * 2 ** 96 + (parts[at + 2] as number) * 2 ** 64;
    const about = high + (parts[at + 1] as number) * 2 ** 32 + (parts[at] as number);
    if ((about < surely && about > -surely) || isNull(row)) {
      continue;
    }
    const value = (BigInt.asIntN(64, words[row * 2 + 1] as bigint) << 64n) | (words[row * 2] as bigint);
    if (value >= limit || value <= -limit) {
      throw tooLong(precision);
    }
  }
}

/** DuckDB's form: two words, the higher one last and its highest bit flipped, so that they sort as signed numbers. */
function uuids(bytes: Uint8Array): Fixed {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const data = new BigUint64Array(bytes.length / 8);
  for (let word = 0; word < data.length; word += 2) {
    data[word] = view.getBigUint64((word + 1) * 8);
    data[word + 1] = view.getBigUint64(word * 8) ^ (1n << 63n);
  }
  return { elementsPerValue: 2, data };
}
