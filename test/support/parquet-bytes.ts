import { varint } from "./parquet-runs.js";

/** Parquet files of one required DOUBLE column `x`, written byte by byte: what they say of themselves may be a lie. */
export interface TinyFile {
  readonly values: readonly number[];
  /** What the footer says of the file, the row group and the column chunk; default: the truth. */
  readonly rows?: number;
  readonly groupRows?: number;
  readonly chunkValues?: number;
  readonly chunkBytes?: number;
  /** What the page's header says; default: the truth. */
  readonly pageValues?: number;
  readonly pageBytes?: number;
  readonly unpackedBytes?: number;
  /** Of the chunk, where it says something else than the page. */
  readonly chunkUnpackedBytes?: number;
  /** Of the schema: 5 is DOUBLE; of the chunk: 0 is no codec. */
  readonly schemaType?: number;
  readonly codec?: number;
  /** Of the column: 0 required, 1 optional, 2 repeated; null: not said. */
  readonly repetition?: number | null;
  readonly crc?: number;
  /** What the chunk says it is called, and in which file it lies; default: `x`, in this one. */
  readonly chunkName?: string;
  readonly chunkFile?: string;
  /** Where the chunk says that its dictionary lies; default: it has none. */
  readonly dictionaryAt?: number;
  readonly columns?: number;
  /** Number of the page's kind; 0 is a data page. */
  readonly pageKind?: number;
  /** Numbers of the values' encoding and of the levels'; default: plain and runs. */
  readonly encoding?: number;
  readonly levelEncoding?: number;
  readonly levelBytes?: { readonly repetition: number; readonly definition: number };
  /** What comes before the values; part of the page. */
  readonly levels?: readonly number[];
  /** What comes behind the values; part of the page. */
  readonly rest?: readonly number[];
  /** The smallest and the largest value, as the column chunk's statistics say; default: it has none. */
  readonly bounds?: readonly [number, number];
  /** Bytes of text in the page's statistics. */
  readonly statisticsBytes?: number;
}

export function tinyParquet(file: TinyFile): Buffer {
  const values = Buffer.from(new Float64Array(file.values).buffer);
  const data = Buffer.concat([Buffer.from(file.levels ?? []), values, Buffer.from(file.rest ?? [])]);
  const count = file.values.length;
  const page = pageHeader(file, { count, bytes: data.length });
  const chunkBytes = page.length + data.length;
  const metadata = struct({
    1: i32(5), // DOUBLE
    2: list(types.i32, [i32(0)]),
    3: list(types.binary, [binary(file.chunkName ?? "x")]),
    4: i32(file.codec ?? 0),
    5: i64(file.chunkValues ?? count),
    6: i64(file.chunkUnpackedBytes ?? file.unpackedBytes ?? chunkBytes),
    7: i64(file.chunkBytes ?? chunkBytes),
    9: i64(4),
    ...(file.dictionaryAt === undefined ? {} : { 11: i64(file.dictionaryAt) }),
    ...(file.bounds === undefined ? {} : { 12: chunkStatistics(file.bounds) }),
  });
  const external = file.chunkFile === undefined ? {} : { 1: binary(file.chunkFile) };
  const group = struct({
    1: list(types.struct, [struct({ ...external, 2: i64(0), 3: metadata })]),
    2: i64(chunkBytes),
    3: i64(file.groupRows ?? count),
  });
  const schema = list(types.struct, [
    struct({ 4: binary("table"), 5: i32(file.columns ?? 1) }),
    struct({
      1: i32(file.schemaType ?? 5),
      ...(file.repetition === null ? {} : { 3: i32(file.repetition ?? 0) }),
      4: binary("x"),
    }),
  ]);
  const footer = struct({ 1: i32(1), 2: schema, 3: i64(file.rows ?? count), 4: list(types.struct, [group]) }).bytes;
  const length = Buffer.alloc(4);
  length.writeUInt32LE(footer.length);
  return Buffer.concat([Buffer.from("PAR1"), page, data, footer, length, Buffer.from("PAR1")]);
}

const double = (value: number): Value => binary(Buffer.from(new Float64Array([value]).buffer));

function chunkStatistics([least, most]: readonly [number, number]): Value {
  return struct({ 3: i64(0), 5: double(most), 6: double(least) });
}

function pageHeader(file: TinyFile, { count, bytes }: { count: number; bytes: number }): Buffer {
  return struct({
    1: i32(file.pageKind ?? (file.levelBytes === undefined ? 0 : 3)),
    2: i32(file.unpackedBytes ?? bytes),
    3: i32(file.pageBytes ?? bytes),
    ...(file.crc === undefined ? {} : { 4: i32(file.crc | 0) }),
    ...dataHeader(file, count),
  }).bytes;
}

function dataHeader(file: TinyFile, count: number): Record<number, Value> {
  const { levelBytes, statisticsBytes, encoding = 0 } = file;
  const values = i32(file.pageValues ?? count);
  if (levelBytes !== undefined) {
    const { repetition, definition } = levelBytes;
    return { 8: struct({ 1: values, 2: i32(0), 3: i32(1), 4: i32(encoding), 5: i32(definition), 6: i32(repetition) }) };
  }
  const statistics = statisticsBytes === undefined ? {} : { 5: struct({ 6: binary("m".repeat(statisticsBytes)) }) };
  return { 5: struct({ 1: values, 2: i32(encoding), 3: i32(file.levelEncoding ?? 3), 4: i32(3), ...statistics }) };
}

/** Of Thrift's compact protocol. */
const types = { i32: 5, i64: 6, binary: 8, list: 9, struct: 12 } as const;

interface Value {
  readonly type: number;
  readonly bytes: Buffer;
}

const zigzag = (value: number): Buffer =>
  Buffer.from(varint(value < 0 ? BigInt(-value) * 2n - 1n : BigInt(value) * 2n));
const i32 = (value: number): Value => ({ type: types.i32, bytes: zigzag(value) });
const i64 = (value: number): Value => ({ type: types.i64, bytes: zigzag(value) });
const binary = (content: string | Buffer): Value => ({
  type: types.binary,
  bytes: Buffer.from([...varint(Buffer.byteLength(content)), ...Buffer.from(content as string)]),
});
const list = (element: number, values: readonly Value[]): Value => ({
  type: types.list,
  bytes: Buffer.concat([Buffer.from([(values.length << 4) | element]), ...values.map(({ bytes }) => bytes)]),
});

function struct(fields: Readonly<Record<number, Value>>): Value {
  let last = 0;
  const parts = Object.entries(fields).map(([id, { type, bytes }]) => {
    const head = Buffer.from([((Number(id) - last) << 4) | type]);
    last = Number(id);
    return Buffer.concat([head, bytes]);
  });
  return { type: types.struct, bytes: Buffer.concat([...parts, Buffer.from([0])]) };
}
