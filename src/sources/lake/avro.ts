import { randomBytes } from "node:crypto";
import { inflateRawSync } from "node:zlib";
import avsc, { type ForSchemaOptions, type Schema } from "avsc";
import { messageOf } from "../../base/errors.js";

/** Bytes of an unpacked block, at most: writers make blocks of some megabytes. */
const mostBlockBytes = 256 * 1024 * 1024;

/** Integers of 64 bits are bigints: JavaScript's numbers would round ids of snapshots. @public so that tests write such files */
export const exactLong = avsc.types.LongType["__with"]({
  fromBuffer: (bytes: Buffer) => bytes.readBigInt64LE(),
  toBuffer(value: bigint) {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(value);
    return bytes;
  },
  fromJSON: BigInt,
  toJSON: Number,
  isValid: (value: unknown) => typeof value === "bigint",
  compare: (left: bigint, right: bigint) => (left < right ? -1 : left > right ? 1 : 0),
});

function typeOf(schema: Schema): avsc.Type {
  return avsc.Type.forSchema(schema, {
    registry: { long: exactLong },
    noAnonymousTypes: false,
    typeHook(part, options) {
      if (typeof part !== "object" || !("type" in part)) {
        return undefined;
      }
      // Of other writers, letters of any language are in names.
      const { fields = [] } = part as Partial<AvroSchema>;
      if (fields.some(({ name }) => name !== avroName(name))) {
        const renamed = fields.map((field) => Object.assign({}, field, { name: avroName(field.name) }));
        return avsc.Type.forSchema({ ...part, fields: renamed } as Schema, options);
      }
      if (part.type === "array" || part.type === "map") {
        return typeOfMany(part, options);
      }
      // Those with a logical type, such as instants, are not looked up.
      return part.type === "long" ? exactLong : undefined;
    },
  });
}

interface Tap {
  readonly pos: number;
  isValid(): boolean;
  readLong(): number;
  skipLong(): void;
  readString(): string;
}

interface Values {
  _read(tap: Tap): unknown;
}

/** avsc reads as many as a few bytes say there are, beyond the last byte, too. */
function typeOfMany(schema: Schema & { readonly type: "array" | "map" }, options: ForSchemaOptions): avsc.Type {
  if (schema.type === "array") {
    const type = new avsc.types.ArrayType(schema, options);
    const items = type.itemsType as unknown as Values;
    return Object.create(type, {
      _read: { value: (tap: Tap) => readMany(tap, () => items["_read"](tap)) },
    }) as avsc.Type;
  }
  const type = new avsc.types.MapType(schema, options);
  const values = type.valuesType as Values;
  const read = (tap: Tap): unknown =>
    Object.fromEntries(readMany(tap, () => [tap.readString(), values["_read"](tap)] as const));
  return Object.create(type, { _read: { value: read } }) as avsc.Type;
}

function readMany<T>(tap: Tap, read: () => T): T[] {
  const many: T[] = [];
  for (let due = tap.readLong(); due !== 0; due = tap.readLong()) {
    if (due < 0) {
      due = -due;
      tap.skipLong(); // the bytes that they have
    }
    for (; due > 0; due -= 1) {
      const start = tap.pos;
      many.push(read());
      if (tap.pos === start || !tap.isValid()) {
        throw new RangeError("it has more values than bytes");
      }
    }
  }
  return many;
}

/** A name as Avro allows it, escaped as Iceberg does, whose readers go by ids. */
export function avroName(name: string): string {
  return name.replaceAll(/^\d|\W/g, (unit) =>
    /\d/.test(unit) ? `_${unit}` : `_x${unit.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

const header = typeOf({
  type: "record",
  name: "Header",
  fields: [
    { name: "magic", type: { type: "fixed", name: "Magic", size: 4 } },
    { name: "meta", type: { type: "map", values: "bytes" } },
    { name: "sync", type: { type: "fixed", name: "Sync", size: 16 } },
  ],
});

const block = typeOf({
  type: "record",
  name: "Block",
  fields: [
    { name: "count", type: "long" },
    { name: "data", type: "bytes" },
    { name: "sync", type: { type: "fixed", name: "Sync", size: 16 } },
  ],
});

/** Integers of 64 bits are bigints. @param schema with attributes that are no part of a type, such as ids of fields */
export function avroFile(
  schema: AvroSchema,
  meta: Readonly<Record<string, string>>,
  records: readonly unknown[],
): Buffer {
  const type = typeOf(schema as unknown as Schema);
  const sync = randomBytes(16);
  const texts = { ...meta, "avro.schema": JSON.stringify(schema), "avro.codec": "null" };
  const head = {
    magic: Buffer.from(magic, "latin1"),
    meta: Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, Buffer.from(text)])),
    sync,
  };
  const data = Buffer.concat(records.map((record) => type.toBuffer(record)));
  const blocks = records.length === 0 ? [] : [block.toBuffer({ count: BigInt(records.length), data, sync })];
  return Buffer.concat([header.toBuffer(head), ...blocks]);
}

const magic = "Obj\u0001";

export interface AvroSchema {
  readonly type: string;
  readonly fields: readonly { readonly name: string; readonly type: unknown; readonly "field-id"?: number }[];
}

/** The schema in the header of a file. @throws RangeError where it is no Avro file of records */
export function avroSchema(bytes: Buffer): AvroSchema {
  const { meta } = decode(header, bytes, 0).value as { meta: Record<string, Buffer> };
  const schema: unknown = JSON.parse(meta["avro.schema"]?.toString() ?? "null");
  if (typeof schema !== "object" || schema === null || !("fields" in schema)) {
    throw new RangeError("it has no records");
  }
  return schema as AvroSchema;
}

/**
 * The records of an Avro object container file, whose integers of 64 bits are bigints, with names as of `avroName`.
 * @param unpack unpacks blocks of the codecs "snappy" and "zstandard"
 * @throws RangeError where the bytes are not such a file
 * @see https://avro.apache.org/docs/1.12.0/specification/#object-container-files
 */
export function* avroRecords(
  bytes: Buffer,
  unpack: (codec: string, packed: Buffer, mostBytes: number) => Uint8Array,
): Generator<Record<string, unknown>> {
  const { value, offset: start } = decode(header, bytes, 0);
  const first = value as { magic: Buffer; meta: Record<string, Buffer>; sync: Buffer };
  if (first.magic.toString("latin1") !== magic) {
    throw new RangeError("it is no Avro file");
  }
  const type = recordType(first.meta["avro.schema"]?.toString() ?? "");
  const codec = first.meta["avro.codec"]?.toString() ?? "null";
  let at = start;
  while (at < bytes.length) {
    const next = decode(block, bytes, at);
    const { count: due, data: packed, sync } = next.value as { count: bigint; data: Buffer; sync: Buffer };
    if (!sync.equals(first.sync)) {
      throw new RangeError(`the block at byte ${at} does not end with the file's marker`);
    }
    const data = unpacked(codec, packed, unpack);
    let inBlock = 0;
    for (let count = 0n; count < due; count += 1n) {
      const record = decode(type, data, inBlock);
      yield record.value as Record<string, unknown>;
      inBlock = record.offset;
    }
    if (inBlock !== data.length) {
      throw new RangeError(`the block at byte ${at} has more bytes than records`);
    }
    at = next.offset;
  }
}

/** Opens a reader of records of a schema, whose integers of 64 bits are bigints. It throws RangeError for other bytes. */
export function openAvro(schema: string): (bytes: Buffer) => Record<string, unknown> {
  const type = recordType(schema);
  return (bytes) => {
    const { value, offset } = decode(type, bytes, 0);
    if (offset < bytes.length || typeof value !== "object" || value === null) {
      throw new RangeError(offset < bytes.length ? `${bytes.length - offset} bytes are left` : "it is no record");
    }
    return value as Record<string, unknown>;
  };
}

function recordType(schema: string): avsc.Type {
  try {
    return typeOf(JSON.parse(schema) as Schema);
  } catch (error) {
    throw new RangeError(`its schema cannot be used: ${messageOf(error)}`, { cause: error });
  }
}

function decode(type: avsc.Type, bytes: Buffer, at: number): { value: unknown; offset: number } {
  let result: { value?: unknown; offset: number };
  try {
    result = type.decode(bytes, at);
  } catch (error) {
    throw new RangeError(`a value at byte ${at} is damaged: ${messageOf(error)}`, { cause: error });
  }
  const { value, offset } = result;
  if (offset <= at || value === undefined) {
    throw new RangeError(`it ends in the middle of a value at byte ${at}`);
  }
  return { value, offset };
}

function unpacked(
  codec: string,
  packed: Buffer,
  unpack: (codec: string, packed: Buffer, mostBytes: number) => Uint8Array,
): Buffer {
  if (codec === "null") {
    return packed;
  }
  try {
    return codec === "deflate"
      ? inflateRawSync(packed, { maxOutputLength: mostBlockBytes })
      : Buffer.from(unpack(codec, packed, mostBlockBytes));
  } catch (error) {
    throw new RangeError(`a block cannot be unpacked: ${messageOf(error)}`, { cause: error });
  }
}
