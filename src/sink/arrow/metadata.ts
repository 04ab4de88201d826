import { Builder } from "flatbuffers";
import { type ColumnType, type ScalarType, showType } from "../../columnar/types.js";
import { assertNever, JobError } from "../../util/errors.js";

/** Numbers are those of Message.fbs and Schema.fbs: https://arrow.apache.org/docs/format/Columnar.html */
const metadataVersion = 4;
const headers = { schema: 1, batch: 3 } as const;
const microseconds = 2;
const nanoseconds = 3;

export interface ArrowColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** A schema as a message. @throws JobError CONTRACT for a type that Arrow's readers do not share */
export function schemaMessage(columns: readonly ArrowColumn[]): Uint8Array {
  const builder = new Builder(1024);
  const fields = vectorOf(
    builder,
    columns.map(({ name, type }) => field(builder, name, { type, column: name })),
  );
  builder.startObject(4);
  builder.addFieldOffset(1, fields, 0);
  return message(builder, headers.schema, { header: builder.endObject(), bodyBytes: 0 });
}

/** Rows and NULLs of a column, or of a child of one. */
export interface NodeFacts {
  readonly length: number;
  readonly nulls: number;
}

/** Position of a buffer in the body. */
export interface BufferFacts {
  readonly offset: number;
  readonly bytes: number;
}

/** The metadata of a record batch, which precedes its body. */
export function batchMessage(
  rows: number,
  {
    nodes,
    buffers,
    bodyBytes,
  }: { readonly nodes: readonly NodeFacts[]; readonly buffers: readonly BufferFacts[]; readonly bodyBytes: number },
): Uint8Array {
  const builder = new Builder(256 + 16 * (nodes.length + buffers.length));
  const nodesAt = pairs(
    builder,
    nodes.map(({ length, nulls }) => [length, nulls]),
  );
  const buffersAt = pairs(
    builder,
    buffers.map(({ offset, bytes }) => [offset, bytes]),
  );
  builder.startObject(5);
  builder.addFieldInt64(0, BigInt(rows), 0n);
  builder.addFieldOffset(1, nodesAt, 0);
  builder.addFieldOffset(2, buffersAt, 0);
  return message(builder, headers.batch, { header: builder.endObject(), bodyBytes });
}

function message(
  builder: Builder,
  kind: number,
  { header, bodyBytes }: { header: number; bodyBytes: number },
): Uint8Array {
  builder.startObject(5);
  builder.addFieldInt16(0, metadataVersion, 0);
  builder.addFieldInt8(1, kind, 0);
  builder.addFieldOffset(2, header, 0);
  builder.addFieldInt64(3, BigInt(bodyBytes), 0n);
  builder.finish(builder.endObject());
  return builder.asUint8Array();
}

function vectorOf(builder: Builder, offsets: readonly number[]): number {
  builder.startVector(4, offsets.length, 4);
  for (const offset of offsets.toReversed()) {
    builder.addOffset(offset);
  }
  return builder.endVector();
}

/** Structs of two int64 each. */
function pairs(builder: Builder, values: readonly (readonly [number, number])[]): number {
  builder.startVector(16, values.length, 8);
  for (const [one, other] of values.toReversed()) {
    builder.writeInt64(BigInt(other));
    builder.writeInt64(BigInt(one));
  }
  return builder.endVector();
}

/** Adds a field. `column`: the output column that it belongs to. */
function field(builder: Builder, name: string, { type, column }: { type: ColumnType; column: string }): number {
  const children = childrenOf(type).map((child) => field(builder, child.name, { type: child.type, column }));
  const childrenAt = vectorOf(builder, children);
  const nameAt = builder.createString(name);
  const typed = tableOf(type, column);
  const table = putType(builder, typed);
  const metadata = type === "uuid" ? extension(builder, "arrow.uuid") : 0;
  builder.startObject(7);
  builder.addFieldOffset(0, nameAt, 0);
  builder.addFieldInt8(1, 1, 0); // nullable
  builder.addFieldInt8(2, typed.number, 0);
  builder.addFieldOffset(3, table, 0);
  builder.addFieldOffset(5, childrenAt, 0);
  builder.addFieldOffset(6, metadata, 0);
  return builder.endObject();
}

function childrenOf(type: ColumnType): readonly ArrowColumn[] {
  if (typeof type === "string" || type.kind === "decimal") {
    return [];
  }
  return type.kind === "list" ? [{ name: "item", type: type.element }] : type.fields;
}

function extension(builder: Builder, name: string): number {
  const pair = [
    ["ARROW:extension:name", name],
    ["ARROW:extension:metadata", ""],
  ].map(([key = "", value = ""]) => {
    const [keyAt, valueAt] = [builder.createString(key), builder.createString(value)];
    builder.startObject(2);
    builder.addFieldOffset(0, keyAt, 0);
    builder.addFieldOffset(1, valueAt, 0);
    return builder.endObject();
  });
  return vectorOf(builder, pair);
}

/** A field of a type's table, in the order of the fields; `otherwise`: what its absence means. */
type Slot =
  | { readonly kind: "byte" | "short" | "int"; readonly value: number; readonly otherwise: number }
  | { readonly kind: "text"; readonly value: string };

interface TypeTable {
  /** The type's number in the union of types. */
  readonly number: number;
  readonly slots: readonly Slot[];
}

const of = (number: number, ...slots: readonly Slot[]): TypeTable => ({ number, slots });
const short = (value: number, otherwise = 0): Slot => ({ kind: "short", value, otherwise });
const int = (value: number, otherwise = 0): Slot => ({ kind: "int", value, otherwise });
const integer = (bits: number, signed: 0 | 1): TypeTable =>
  of(2, int(bits), { kind: "byte", value: signed, otherwise: 0 });

const scalars: Readonly<Partial<Record<ScalarType, TypeTable>>> = {
  int8: integer(8, 1),
  int16: integer(16, 1),
  int32: integer(32, 1),
  int64: integer(64, 1),
  uint8: integer(8, 0),
  uint16: integer(16, 0),
  uint32: integer(32, 0),
  uint64: integer(64, 0),
  float32: of(3, short(1)),
  float64: of(3, short(2)),
  binary: of(4),
  utf8: of(5),
  bool: of(6),
  date32: of(8, short(0, 1)),
  "time64[us]": of(9, short(microseconds, 1), int(64, 32)),
  "time64[ns]": of(9, short(nanoseconds, 1), int(64, 32)),
  "timestamp[us]": of(10, short(microseconds)),
  "timestamp[ns]": of(10, short(nanoseconds)),
  "timestamp[us, UTC]": of(10, short(microseconds), { kind: "text", value: "UTC" }),
  uuid: of(15, int(16)),
};

function tableOf(type: ColumnType, column: string): TypeTable {
  const found =
    typeof type === "string"
      ? scalars[type]
      : type.kind === "decimal"
        ? of(7, int(type.precision), int(type.scale))
        : of(type.kind === "list" ? 12 : 13);
  if (found === undefined) {
    const shown = `output column \`${column}\` is ${showType(type)}, which has no place there`;
    throw new JobError("CONTRACT", `writing the schema: ${shown}`, {
      hint: "cast it under input.columns, such as (…)::VARCHAR, or leave it out",
    });
  }
  return found;
}

function putType(builder: Builder, { slots }: TypeTable): number {
  const texts = slots.map((slot) => (slot.kind === "text" ? builder.createString(slot.value) : 0));
  builder.startObject(slots.length);
  for (const [id, slot] of slots.entries()) {
    switch (slot.kind) {
      case "byte":
        builder.addFieldInt8(id, slot.value, slot.otherwise);
        break;
      case "short":
        builder.addFieldInt16(id, slot.value, slot.otherwise);
        break;
      case "int":
        builder.addFieldInt32(id, slot.value, slot.otherwise);
        break;
      case "text":
        builder.addFieldOffset(id, texts[id] ?? 0, 0);
        break;
      default:
        assertNever(slot);
    }
  }
  return builder.endObject();
}
