import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

// Field numbers of onnx.proto3: AttributeProto.i, s, t, floats, ints, strings; TensorProto.dims, data_type, float_data,
// int32_data, raw_data, double_data.
const attributeFields = { i: 3, s: 4, t: 5, floats: 7, ints: 8, strings: 9 } as const;
const tensorFields = { dims: 1, dataType: 2, floats: 4, int32s: 5, raw: 9, doubles: 10 } as const;
/** TensorProto.DataType. */
const dataTypes = { float: 1, uint8: 2, double: 11 } as const;

/** The attributes of a node, by name: serialized AttributeProtos. */
export type Attributes = ReadonlyMap<string, Uint8Array>;

/** A list of integers; empty where it is not set. @throws RangeError for one that no number holds exactly */
export function integersIn(attributes: Attributes, name: string): Float64Array {
  return Float64Array.from(numbersOf(attributes, { name, field: attributeFields.ints, read: integerOf }));
}

/** The same, of any size. */
export function longsIn(attributes: Attributes, name: string): bigint[] {
  return numbersOf(attributes, { name, field: attributeFields.ints, read: longOf });
}

/** A list of floats; empty where it is not set. */
export function floatsIn(attributes: Attributes, name: string): Float64Array {
  return Float64Array.from(numbersOf(attributes, { name, field: attributeFields.floats, read: floatOf }));
}

interface ListField<T> {
  readonly name: string;
  readonly field: number;
  readonly read: (reader: BinaryReader) => T;
}

function numbersOf<T>(attributes: Attributes, { name, field, read }: ListField<T>): T[] {
  const values: T[] = [];
  visit(attributes, name, field, (reader, wire) => {
    readPacked(reader, wire, () => values.push(read(reader)));
  });
  return values;
}

/** Reads the numbers of a repeated field, one by one or packed. */
function readPacked(reader: BinaryReader, wire: WireType, read: () => void): void {
  if (wire !== WireType.LengthDelimited) {
    read();
    return;
  }
  for (const end = reader.uint32() + reader.pos; reader.pos < end; ) {
    read();
  }
}

/** A list of texts; empty where it is not set. */
export function textsIn(attributes: Attributes, name: string): string[] {
  const known = new Map<number, string>(); // few differ, by length: decoding each takes long
  const values: string[] = [];
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  visit(attributes, name, attributeFields.strings, (reader) => {
    const bytes = reader.bytes();
    const before = known.get(bytes.length);
    const text = before !== undefined && isAscii(bytes, before) ? before : decoder.decode(bytes);
    known.set(bytes.length, text);
    values.push(text);
  });
  return values;
}

function isAscii(bytes: Uint8Array, text: string): boolean {
  for (let at = 0; at < bytes.length; at += 1) {
    if (bytes[at] !== text.charCodeAt(at) || (bytes[at] ?? 0) > 127) {
      return false;
    }
  }
  return text.length === bytes.length;
}

/** A text; undefined where it is not set. */
export function textIn(attributes: Attributes, name: string): string | undefined {
  let value: string | undefined;
  visit(attributes, name, attributeFields.s, (reader) => {
    value = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(reader.bytes());
  });
  return value;
}

/** An integer; undefined where it is not set. */
export function integerIn(attributes: Attributes, name: string): number | undefined {
  let value: number | undefined;
  visit(attributes, name, attributeFields.i, (reader) => {
    value = integerOf(reader);
  });
  return value;
}

/** The numbers of a tensor of floats, doubles or bytes of one dimension; undefined: not set. */
export function tensorIn(
  attributes: Attributes,
  name: string,
): { readonly dataType: number; readonly values: Float64Array } | undefined {
  let found: { readonly dataType: number; readonly values: Float64Array } | undefined;
  visit(attributes, name, attributeFields.t, (reader) => {
    found = tensorOf(reader.bytes());
  });
  return found;
}

/** The numbers of a serialized TensorProto. @throws RangeError for types, or places of its bytes, that are not known */
export function tensorOf(message: Uint8Array): { readonly dataType: number; readonly values: Float64Array } {
  const reader = new BinaryReader(message);
  const numbers: number[] = [];
  let raw: Uint8Array | undefined;
  let dataType = 0;
  const packed = (wire: WireType, read: () => number): void => {
    readPacked(reader, wire, () => numbers.push(read()));
  };
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === tensorFields.dataType) {
      dataType = reader.int32();
    } else if (field === tensorFields.floats) {
      packed(wire, () => reader.float());
    } else if (field === tensorFields.doubles) {
      packed(wire, () => reader.double());
    } else if (field === tensorFields.int32s) {
      packed(wire, () => reader.int32());
    } else if (field === tensorFields.raw) {
      raw = reader.bytes();
    } else if (field > tensorFields.dataType && field !== tensorName && field !== documentation) {
      throw new RangeError(`a tensor with field ${field}`); // other types, or bytes in other files
    } else {
      reader.skip(wire, field);
    }
  }
  if (!(Object.values(dataTypes) as number[]).includes(dataType)) {
    throw new RangeError(`a tensor of data type ${dataType}`);
  }
  return { dataType, values: raw === undefined ? Float64Array.from(numbers) : numbersIn(raw, dataType) };
}

const tensorName = 8;
const documentation = 12;

function numbersIn(raw: Uint8Array, dataType: number): Float64Array {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const size = dataType === dataTypes.float ? 4 : dataType === dataTypes.double ? 8 : 1;
  const values = new Float64Array(Math.floor(raw.length / size));
  for (let index = 0; index < values.length; index += 1) {
    values[index] =
      size === 4
        ? view.getFloat32(index * 4, true)
        : size === 8
          ? view.getFloat64(index * 8, true)
          : view.getUint8(index);
  }
  return values;
}

function visit(
  attributes: Attributes,
  name: string,
  wanted: number,
  take: (reader: BinaryReader, wire: WireType) => void,
): void {
  const attribute = attributes.get(name);
  if (attribute === undefined) {
    return;
  }
  const reader = new BinaryReader(attribute);
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === wanted) {
      take(reader, wire);
    } else {
      reader.skip(wire, field);
    }
  }
}

function longOf(reader: BinaryReader): bigint {
  return BigInt(reader.int64());
}

function floatOf(reader: BinaryReader): number {
  return reader.float();
}

/** Small ones without a BigInt, which takes long. */
function integerOf(reader: BinaryReader): number {
  const before = reader.pos;
  const low = reader.uint32();
  if (reader.pos - before <= 4) {
    return low;
  }
  reader.pos = before;
  const value = Number(reader.int64());
  if (!Number.isSafeInteger(value)) {
    throw new RangeError("an integer beyond those that are exact");
  }
  return value;
}
