import { writeFile } from "node:fs/promises";
import * as arrow from "apache-arrow";
import type { ColumnType } from "#src/columns/types.js";
import type { ArrowKind } from "../support/arrow.js";
import type { Dice } from "./dice.js";
import type { TableColumn, Value } from "./values.js";

export interface ArrowOptions {
  readonly kind: ArrowKind;
  readonly batchRows: number;
  /** Whether texts are written by dictionaries. */
  readonly dictionaries: boolean;
}

export function arrowOptions(kind: ArrowKind, dice: Dice): ArrowOptions {
  return { kind, batchRows: dice.pick([1, 37, 500, 8192]), dictionaries: dice.chance(0.3) };
}

/** Writes rows through apache-arrow; the value under a NULL is a number that no code may read. */
export async function writeByArrow(
  path: string,
  columns: readonly TableColumn[],
  values: readonly (readonly Value[])[],
  { kind, batchRows, dictionaries }: ArrowOptions,
): Promise<void> {
  const rows = values[0]?.length ?? 0;
  const dictionaryOf = new Map(
    columns.flatMap(({ type }, index) =>
      dictionaries && type === "utf8" ? [[index, dictionary(values[index] ?? [], index)] as const] : [],
    ),
  );
  const fields = columns.map(({ name, type, nullable }, index) =>
    arrow.Field.new({ name, type: dictionaryOf.get(index)?.type ?? arrowType(type), nullable }),
  );
  const schema = new arrow.Schema(fields);
  const writer = kind === "file" ? new arrow.RecordBatchFileWriter() : new arrow.RecordBatchStreamWriter();
  writer.reset(undefined, schema);
  // One row a batch is for small shards: a batch of a large one takes as long as its rows.
  const size = Math.max(batchRows, Math.ceil(rows / 64));
  for (let from = 0; from < rows; from += size) {
    const children = columns.map(({ type }, index) => {
      const piece = values[index]?.slice(from, from + size) ?? [];
      return dictionaryOf.get(index)?.data(piece) ?? arrowData(piece, type);
    });
    const length = Math.min(size, rows - from);
    const data = arrow.makeData({ type: new arrow.Struct(fields), length, nullCount: 0, children });
    writer.write(new arrow.RecordBatch(schema, data));
  }
  writer.finish();
  await writeFile(path, await writer.toUint8Array());
}

interface Dictionary {
  readonly type: arrow.Dictionary;
  readonly data: (piece: readonly Value[]) => arrow.Data;
}

/** One dictionary for all batches of a file. */
function dictionary(values: readonly Value[], id: number): Dictionary {
  const texts = [...new Set(values.filter((value) => value !== null))];
  const places = new Map(texts.map((text, place) => [text, place]));
  const type = new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32(), id);
  const vector = new arrow.Vector([arrowData(texts, "utf8")]);
  return {
    type,
    data: (piece) =>
      arrow.makeData({
        type,
        length: piece.length,
        ...nullsOf(piece),
        data: Int32Array.from(piece, (value) => places.get(value ?? "") ?? 0),
        dictionary: vector,
      } as never),
  };
}

const arrays = {
  int8: [Int8Array, () => new arrow.Int8()],
  int16: [Int16Array, () => new arrow.Int16()],
  int32: [Int32Array, () => new arrow.Int32()],
  int64: [BigInt64Array, () => new arrow.Int64()],
  uint8: [Uint8Array, () => new arrow.Uint8()],
  uint16: [Uint16Array, () => new arrow.Uint16()],
  uint32: [Uint32Array, () => new arrow.Uint32()],
  uint64: [BigUint64Array, () => new arrow.Uint64()],
  float32: [Float32Array, () => new arrow.Float32()],
  float64: [Float64Array, () => new arrow.Float64()],
  date32: [Int32Array, () => new arrow.DateDay()],
  "timestamp[us]": [BigInt64Array, () => new arrow.TimestampMicrosecond()],
  "timestamp[ns]": [BigInt64Array, () => new arrow.TimestampNanosecond()],
  "timestamp[us, UTC]": [BigInt64Array, () => new arrow.TimestampMicrosecond("UTC")],
} as const;

const isFixed = (type: ColumnType): type is keyof typeof arrays =>
  typeof type === "string" && Object.hasOwn(arrays, type);

function arrowType(type: ColumnType): arrow.DataType {
  if (isFixed(type)) {
    return arrays[type][1]();
  }
  if (typeof type === "object" && type.kind === "list") {
    return new arrow.List(arrow.Field.new({ name: "item", type: arrowType(type.element), nullable: true }));
  }
  if (typeof type === "object" && type.kind === "struct") {
    return new arrow.Struct(
      type.fields.map((field) => arrow.Field.new({ name: field.name, type: arrowType(field.type), nullable: true })),
    );
  }
  if (typeof type === "object" && type.kind === "decimal") {
    return new arrow.Decimal(type.scale, type.precision, 128);
  }
  return type === "bool" ? new arrow.Bool() : new arrow.Utf8();
}

function nullsOf(values: readonly Value[]): { nullCount: number; nullBitmap?: Uint8Array } {
  const nullCount = values.filter((value) => value === null).length;
  return nullCount === 0 ? { nullCount } : { nullCount, nullBitmap: bits(values.map((value) => value !== null)) };
}

function bits(flags: readonly boolean[]): Uint8Array {
  const packed = new Uint8Array(Math.ceil(flags.length / 8));
  flags.forEach((flag, index) => {
    packed[index >> 3] = (packed[index >> 3] ?? 0) | (Number(flag) << (index & 7));
  });
  return packed;
}

function arrowData(values: readonly Value[], type: ColumnType): arrow.Data {
  const common = { type: arrowType(type), length: values.length, ...nullsOf(values) };
  if (isFixed(type)) {
    const [array] = arrays[type];
    const isBig = array === BigInt64Array || array === BigUint64Array;
    const numbers = values.map((value) => (isBig ? (value ?? 77n) : Number(value ?? 77)));
    const data = new array(numbers as never);
    return arrow.makeData({ ...common, data } as never);
  }
  if (typeof type === "object" && type.kind === "list") {
    const lists = values.map((value) => (value ?? []) as readonly Value[]);
    return arrow.makeData({
      ...common,
      valueOffsets: offsetsOf(lists),
      child: arrowData(
        lists.flatMap((list) => list),
        type.element,
      ),
    } as never);
  }
  if (typeof type === "object" && type.kind === "struct") {
    const structs = values.map((value) => (value ?? []) as readonly Value[]);
    const children = type.fields.map((field, place) =>
      arrowData(
        structs.map((fields) => fields[place] ?? null),
        field.type,
      ),
    );
    return arrow.makeData({ ...common, children } as never);
  }
  if (typeof type === "object") {
    const words = values.flatMap((value) => {
      const whole = BigInt.asUintN(128, (value ?? 77n) as bigint);
      return [whole & 0xffff_ffff_ffff_ffffn, whole >> 64n];
    });
    return arrow.makeData({ ...common, data: new Uint32Array(BigUint64Array.from(words).buffer) } as never);
  }
  if (type === "bool") {
    return arrow.makeData({ ...common, data: bits(values.map((value) => value === true)) } as never);
  }
  const texts = values.map((value) => Buffer.from((value ?? "") as string));
  return arrow.makeData({ ...common, valueOffsets: offsetsOf(texts), data: Buffer.concat(texts) } as never);
}

function offsetsOf(values: readonly { readonly length: number }[]): Int32Array {
  const offsets = new Int32Array(values.length + 1);
  values.forEach(({ length }, index) => {
    offsets[index + 1] = (offsets[index] ?? 0) + length;
  });
  return offsets;
}
