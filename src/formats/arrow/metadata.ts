import { assertNever } from "../../base/errors.js";
import type { ColumnType, SourceColumn } from "../../columns/types.js";

/**
 * What the metadata of Arrow says: messages, schemas, footers, and where a batch has its columns. Numbers and names are
 * those of Message.fbs, Schema.fbs and File.fbs: https://arrow.apache.org/docs/format/Columnar.html
 *
 * Nothing of it is trusted: every offset is checked against the end of the bytes, every vector against the bytes that
 * are left, and every buffer against its body. What is damaged throws a RangeError, as `DataView` does outside of its
 * bytes.
 */
export interface Message {
  readonly version: number;
  readonly bodyBytes: number;
  readonly header:
    | { readonly kind: "schema"; readonly schema: ArrowSchema }
    | { readonly kind: "batch"; readonly batch: BatchHeader }
    | { readonly kind: "dictionary"; readonly id: number; readonly isDelta: boolean; readonly batch: BatchHeader }
    | { readonly kind: "other" };
}

/** The header of a record batch, or of a dictionary, which is a record batch of one column. */
export interface BatchHeader {
  readonly rows: number;
  /** Two numbers each: length and NULLs. */
  readonly nodes: FlatVector;
  /** Two numbers each: offset in the body and length. */
  readonly buffers: FlatVector;
  readonly compression: "none" | "lz4" | "zstd";
  readonly variadicCounts: readonly number[];
}

/** The position of a message. */
export interface Block {
  readonly offset: number;
  /** The size of the message with the length before it and its padding. */
  readonly metadataBytes: number;
  readonly bodyBytes: number;
}

export interface ArrowFooter {
  readonly version: number;
  readonly schema: ArrowSchema;
  readonly dictionaries: readonly Block[];
  readonly batches: readonly Block[];
}

export interface ArrowSchema {
  readonly fields: readonly ArrowField[];
  readonly metadataKeys: readonly string[];
  readonly bigEndian: boolean;
}

/** A field of an Arrow schema: a column, or an element of one. */
export interface ArrowField {
  readonly name: string;
  readonly type: ArrowType;
  readonly children: readonly ArrowField[];
  /** Values are indices of this type into the dictionary of this number. */
  readonly dictionary: { readonly id: number; readonly index: IntType } | undefined;
  /** The name of an extension type. */
  readonly extension: string | undefined;
}

type TimeUnit = "s" | "ms" | "us" | "ns";
type IntType = { readonly kind: "int"; readonly bits: 8 | 16 | 32 | 64; readonly signed: boolean };

export type ArrowType =
  | IntType
  | { readonly kind: "float"; readonly bits: 16 | 32 | 64 }
  | { readonly kind: "decimal"; readonly precision: number; readonly scale: number; readonly bits: 32 | 64 | 128 | 256 }
  | { readonly kind: "date"; readonly unit: "day" | "ms" }
  | { readonly kind: "time"; readonly unit: TimeUnit; readonly bits: 32 | 64 }
  | { readonly kind: "timestamp"; readonly unit: TimeUnit; readonly zone: string | undefined }
  | { readonly kind: "duration"; readonly unit: TimeUnit }
  | { readonly kind: "interval"; readonly unit: string }
  | { readonly kind: "bytes"; readonly text: boolean; readonly large: boolean }
  | { readonly kind: "view"; readonly text: boolean }
  | { readonly kind: "fixedBytes"; readonly width: number }
  | { readonly kind: "list"; readonly large: boolean }
  | { readonly kind: "listView"; readonly large: boolean }
  | { readonly kind: "fixedList"; readonly width: number }
  | { readonly kind: "union"; readonly dense: boolean }
  | { readonly kind: "null" | "bool" | "struct" | "map" | "runs" };

/** How many of its first bytes say how long a message is: 8 since Arrow 0.15, with a marker. @param bytes 4 or more */
export function prefixLength(bytes: Uint8Array): 4 | 8 {
  return viewOf(bytes).getUint32(0, true) === 0xffff_ffff ? 8 : 4;
}

/** How a message begins. `length` 0: the end of a stream. @param bytes at least 8, or what is there */
export function readPrefix(bytes: Uint8Array): { prefixBytes: 4 | 8; length: number } {
  const prefixBytes = prefixLength(bytes);
  const length = prefixBytes === 8 ? viewOf(bytes).getInt32(4, true) : viewOf(bytes).getUint32(0, true);
  if (length < 0) {
    throw new RangeError(`a message of ${length} bytes`);
  }
  return { prefixBytes, length };
}

/** @param bytes of a message, with its prefix, without its body */
export function readArrowMessage(bytes: Uint8Array): Message {
  const { prefixBytes, length } = readPrefix(bytes);
  const table = rootTable(bytes.subarray(prefixBytes, prefixBytes + length));
  const header = tableField(table, 2);
  const bodyBytes = longField(table, 3);
  if (bodyBytes < 0) {
    throw new RangeError(`a body of ${bodyBytes} bytes`);
  }
  if (header === undefined) {
    throw new RangeError("a message without a header");
  }
  return { version: checkedVersion(shortField(table, 0)), bodyBytes, header: readHeader(byteField(table, 1), header) };
}

/** From Arrow 0.8 (2017) on. */
function checkedVersion(version: number): number {
  if (version < 3 || version > 4) {
    throw new RangeError(`metadata version ${version + 1}; 4 and 5 are read`);
  }
  return version;
}

function readHeader(kind: number, table: FlatTable): Message["header"] {
  switch (kind) {
    case 1:
      return { kind: "schema", schema: readSchema(table) };
    case 2: {
      const data = tableField(table, 1);
      if (data === undefined) {
        throw new RangeError("a dictionary without values");
      }
      const isDelta = byteField(table, 2) !== 0;
      return { kind: "dictionary", id: longField(table, 0), isDelta, batch: readBatch(data) };
    }
    case 3:
      return { kind: "batch", batch: readBatch(table) };
    default:
      return { kind: "other" };
  }
}

/** Rows of one batch: offsets and places are 32-bit numbers here. */
const rowsLimit = 2 ** 31 - 1;

function readBatch(table: FlatTable): BatchHeader {
  const rows = longField(table, 0);
  if (rows < 0 || rows > rowsLimit) {
    throw new RangeError(`a batch of ${rows} rows`);
  }
  const compression = tableField(table, 3);
  const codec = compression === undefined ? 0 : byteField(compression, 0);
  if (compression !== undefined && byteField(compression, 1) !== 0) {
    throw new RangeError("a compression other than of buffers");
  }
  if (codec > 1) {
    throw new RangeError(`a compression of number ${codec}, which does not exist`);
  }
  const counts = vectorField(table, 4, 8);
  return {
    rows,
    nodes: vectorField(table, 1, pairBytes),
    buffers: vectorField(table, 2, pairBytes),
    compression: compression === undefined ? "none" : codec === 0 ? "lz4" : "zstd",
    variadicCounts: Array.from({ length: counts.length }, (_, index) => longAt(table.view, counts.start + index * 8)),
  };
}

const blockBytes = 24;

export function readArrowFooter(bytes: Uint8Array): ArrowFooter {
  const table = rootTable(bytes);
  const schema = tableField(table, 1);
  if (schema === undefined) {
    throw new RangeError("a footer without a schema");
  }
  // Java's writers before Arrow 0.15 left the version out, which means 1. Each message has its own version.
  const version = shortField(table, 0);
  return {
    version: version >= 0 && version < 3 ? 3 : checkedVersion(version),
    schema: readSchema(schema),
    dictionaries: readBlocks(table, 2),
    batches: readBlocks(table, 3),
  };
}

function readBlocks(table: FlatTable, id: number): Block[] {
  const { view, start, length } = vectorField(table, id, blockBytes);
  return Array.from({ length }, (_, index) => {
    const at = start + index * blockBytes;
    return {
      offset: longAt(view, at),
      metadataBytes: view.getInt32(at + 8, true),
      bodyBytes: longAt(view, at + 16),
    };
  });
}

/** Fields of a schema, with those inside others: tables may be shared, so bytes alone do not bound them. */
const fieldsLimit = 100_000;
const depthLimit = 64;

function readSchema(table: FlatTable): ArrowSchema {
  let left = fieldsLimit;
  const readField = (field: FlatTable, depth: number): ArrowField => {
    left -= 1;
    if (left < 0 || depth > depthLimit) {
      throw new RangeError(`a schema of more than ${fieldsLimit} fields, or ${depthLimit} levels`);
    }
    const encoding = tableField(field, 4);
    const pairs = Array.from(tablesField(field, 6), (pair) => [textField(pair, 0), textField(pair, 1)] as const);
    return {
      name: textField(field, 0) ?? "",
      type: readType(byteField(field, 2), tableField(field, 3)),
      children: Array.from(tablesField(field, 5), (child) => readField(child, depth + 1)),
      dictionary: encoding && { id: longField(encoding, 0), index: readInt(tableField(encoding, 1)) },
      extension: pairs.find(([key]) => key === "ARROW:extension:name")?.[1],
    };
  };
  return {
    bigEndian: shortField(table, 0) !== 0,
    fields: Array.from(tablesField(table, 1), (field) => readField(field, 0)),
    metadataKeys: Array.from(tablesField(table, 2), (pair) => textField(pair, 0) ?? ""),
  };
}

/** Without a table: of the indices of a dictionary that says nothing of them. */
function readInt(table: FlatTable | undefined): IntType {
  return table === undefined
    ? { kind: "int", bits: 32, signed: true }
    : { kind: "int", bits: oneOf(intField(table, 0), [8, 16, 32, 64]), signed: byteField(table, 1) !== 0 };
}

const units = ["s", "ms", "us", "ns"] as const;

/** Types without parameters: their number is enough. */
const simpleTypes: Readonly<Record<number, ArrowType>> = {
  1: { kind: "null" },
  4: { kind: "bytes", text: false, large: false },
  5: { kind: "bytes", text: true, large: false },
  6: { kind: "bool" },
  12: { kind: "list", large: false },
  13: { kind: "struct" },
  17: { kind: "map" },
  19: { kind: "bytes", text: false, large: true },
  20: { kind: "bytes", text: true, large: true },
  21: { kind: "list", large: true },
  22: { kind: "runs" },
  23: { kind: "view", text: false },
  24: { kind: "view", text: true },
  25: { kind: "listView", large: false },
  26: { kind: "listView", large: true },
};

function readType(number: number, table: FlatTable | undefined): ArrowType {
  if (table === undefined) {
    throw new RangeError("a field has no type");
  }
  switch (number) {
    case 2:
      return readInt(table);
    case 3:
      return { kind: "float", bits: pick(shortField(table, 0), [16, 32, 64]) };
    case 7: {
      const bits = oneOf(intField(table, 2, 128), [32, 64, 128, 256]);
      return { kind: "decimal", precision: intField(table, 0), scale: intField(table, 1), bits };
    }
    case 8:
      return { kind: "date", unit: pick(shortField(table, 0, 1), ["day", "ms"]) };
    case 9: {
      const unit = pick(shortField(table, 0, 1), units);
      return { kind: "time", unit, bits: oneOf(intField(table, 1, 32), [32, 64]) };
    }
    case 10:
      return { kind: "timestamp", unit: pick(shortField(table, 0), units), zone: textField(table, 1) };
    case 11:
      return { kind: "interval", unit: pick(shortField(table, 0), ["year_month", "day_time", "month_day_nano"]) };
    case 14:
      return { kind: "union", dense: shortField(table, 0) === 1 };
    case 15:
    case 16: {
      const width = intField(table, 0);
      if (width < 0) {
        throw new RangeError(`values of ${width} elements`);
      }
      return { kind: number === 15 ? "fixedBytes" : "fixedList", width };
    }
    case 18:
      return { kind: "duration", unit: pick(shortField(table, 0, 1), units) };
    default: {
      const type = simpleTypes[number];
      if (type === undefined) {
        throw new RangeError(`a type of number ${number}, which does not exist`);
      }
      return type;
    }
  }
}

function pick<T>(index: number, values: readonly T[]): T {
  const value = values[index];
  if (value === undefined) {
    throw new RangeError(`${index} where one of ${values.join(", ")} is due`);
  }
  return value;
}

function oneOf<T extends number>(value: number, values: readonly T[]): T {
  return pick(values.indexOf(value as T), values);
}

/** Where the values of a field are in the body of a batch. */
export interface ArrowNode {
  readonly field: ArrowField;
  readonly length: number;
  readonly nulls: number;
  /** First the validity, where the type has one. */
  readonly buffers: readonly BufferPlace[];
  readonly children: readonly ArrowNode[];
}

export interface BufferPlace {
  readonly offset: number;
  readonly bytes: number;
}

const pairBytes = 16;

/** Buffers of a column of a type, where they are not two. */
const otherBuffers: Partial<Record<ArrowType["kind"], number>> = {
  null: 0,
  runs: 0,
  struct: 1,
  fixedList: 1,
  bytes: 3,
  listView: 3,
};

/**
 * The columns of a batch, top level first; all places are inside the body.
 * @throws RangeError where the batch does not fit the schema, or a buffer is outside its body
 */
export function layoutBatch(
  fields: readonly ArrowField[],
  header: BatchHeader,
  { bodyBytes, version }: Pick<Message, "bodyBytes" | "version">,
): ArrowNode[] {
  let nodesRead = 0;
  let buffersRead = 0;
  let viewsRead = 0;

  const bufferCount = ({ type, dictionary }: ArrowField): number => {
    if (dictionary !== undefined) {
      return 2;
    }
    if (type.kind === "union") {
      return (type.dense ? 2 : 1) + (version < 4 ? 1 : 0); // metadata version 4 has a validity for unions
    }
    const variadic = type.kind === "view" ? (header.variadicCounts[viewsRead++] ?? 0) : 0;
    if (variadic < 0 || variadic > header.buffers.length) {
      throw new RangeError(`${variadic} buffers of one column`);
    }
    return (otherBuffers[type.kind] ?? 2) + variadic;
  };

  const layoutField = (field: ArrowField): ArrowNode => {
    const [length, nulls] = pairAt(header.nodes, nodesRead);
    nodesRead += 1;
    if (length < 0 || nulls > length) {
      throw new RangeError(`column ${field.name} has ${length} values, ${nulls} of them NULL`);
    }
    const buffers = Array.from({ length: bufferCount(field) }, () => {
      const [offset, bytes] = pairAt(header.buffers, buffersRead);
      buffersRead += 1;
      if (offset < 0 || bytes < 0 || offset + bytes > bodyBytes) {
        throw new RangeError(`column ${field.name} would be bytes ${offset} to ${offset + bytes} of ${bodyBytes}`);
      }
      return { offset, bytes };
    });
    const children = field.dictionary === undefined ? field.children.map(layoutField) : [];
    return { field, length, nulls, buffers, children };
  };

  const nodes = fields.map(layoutField);
  if (nodesRead !== header.nodes.length || buffersRead !== header.buffers.length) {
    throw new RangeError(
      `it has ${header.nodes.length} columns in ${header.buffers.length} buffers, the schema ${nodesRead} in ${buffersRead}`,
    );
  }
  for (const { field, length } of nodes) {
    if (length !== header.rows) {
      throw new RangeError(`column ${field.name} has ${length} values, the batch ${header.rows} rows`);
    }
  }
  return nodes;
}

function pairAt({ view, start, length }: FlatVector, index: number): readonly [number, number] {
  if (index >= length) {
    throw new RangeError(`the schema has more columns than a batch of ${length}`);
  }
  const at = start + index * pairBytes;
  return [longAt(view, at), longAt(view, at + 8)];
}

/** All buffers of some columns. */
export function buffersOf(nodes: readonly ArrowNode[]): BufferPlace[] {
  return nodes.flatMap(({ buffers, children }) => [...buffers, ...buffersOf(children)]);
}

/** A table of FlatBuffers: https://flatbuffers.dev/internals/ */
interface FlatTable {
  readonly view: DataView;
  readonly at: number;
  /** The position of the list of its fields' offsets. */
  readonly vtable: number;
  readonly vtableBytes: number;
}

interface FlatVector {
  readonly view: DataView;
  readonly start: number;
  readonly length: number;
}

function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}

function rootTable(bytes: Uint8Array): FlatTable {
  const view = viewOf(bytes);
  return tableAt(view, view.getUint32(0, true));
}

function tableAt(view: DataView, at: number): FlatTable {
  const vtable = at - view.getInt32(at, true);
  const vtableBytes = view.getUint16(vtable, true);
  if (vtable < 0 || vtableBytes < 4 || vtable + vtableBytes > view.byteLength) {
    throw new RangeError(`a table at byte ${at} has its fields outside`);
  }
  return { view, at, vtable, vtableBytes };
}

/** The position of field `id`; 0: it has its default. */
function placeOf({ view, at, vtable, vtableBytes }: FlatTable, id: number): number {
  const slot = 4 + id * 2;
  const offset = slot + 2 > vtableBytes ? 0 : view.getUint16(vtable + slot, true);
  return offset === 0 ? 0 : at + offset;
}

function byteField(table: FlatTable, id: number): number {
  const place = placeOf(table, id);
  return place === 0 ? 0 : table.view.getUint8(place);
}

function shortField(table: FlatTable, id: number, otherwise = 0): number {
  const place = placeOf(table, id);
  return place === 0 ? otherwise : table.view.getInt16(place, true);
}

function intField(table: FlatTable, id: number, otherwise = 0): number {
  const place = placeOf(table, id);
  return place === 0 ? otherwise : table.view.getInt32(place, true);
}

function longField(table: FlatTable, id: number): number {
  const place = placeOf(table, id);
  return place === 0 ? 0 : longAt(table.view, place);
}

function longAt(view: DataView, place: number): number {
  const value = Number(view.getBigInt64(place, true));
  if (!Number.isSafeInteger(value)) {
    throw new RangeError(`${value} at byte ${place} is no size of anything`);
  }
  return value;
}

function tableField(table: FlatTable, id: number): FlatTable | undefined {
  const place = placeOf(table, id);
  return place === 0 ? undefined : tableAt(table.view, place + table.view.getUint32(place, true));
}

const utf8 = new TextDecoder("utf-8", { fatal: false });

function textField(table: FlatTable, id: number): string | undefined {
  const { view, start, length } = vectorField(table, id, 1);
  return start === 0 ? undefined : utf8.decode(new Uint8Array(view.buffer, view.byteOffset + start, length));
}

function vectorField(table: FlatTable, id: number, elementBytes: number): FlatVector {
  const { view } = table;
  const place = placeOf(table, id);
  if (place === 0) {
    return { view, start: 0, length: 0 };
  }
  const at = place + view.getUint32(place, true);
  const length = view.getUint32(at, true);
  const start = at + 4;
  if (start + length * elementBytes > view.byteLength) {
    throw new RangeError(`a vector of ${length} elements at byte ${at} reaches outside`);
  }
  return { view, start, length };
}

function* tablesField(table: FlatTable, id: number): Generator<FlatTable> {
  const { view, start, length } = vectorField(table, id, 4);
  for (let place = start; place < start + length * 4; place += 4) {
    yield tableAt(view, place + view.getUint32(place, true));
  }
}

/** The columns of a shard, with types as docs/types.md has them. */
export function sourceColumns({ fields }: ArrowSchema): SourceColumn[] {
  return fields.map(sourceColumn);
}

function sourceColumn(field: ArrowField): SourceColumn {
  const type = typeOfField(field);
  return {
    name: field.name,
    sourceType: showField(field),
    type,
    ...(field.type.kind === "null" && field.dictionary === undefined ? { onlyNulls: true } : {}),
    ...(type === undefined && field.type.kind === "struct" ? { fields: field.children.map(sourceColumn) } : {}),
  };
}

/** The type that a field is read as; undefined: it is not. */
export function typeOfField(field: ArrowField): ColumnType | undefined {
  const { type, children, extension } = field;
  switch (type.kind) {
    case "int":
      return `${type.signed ? "int" : "uint"}${type.bits}`;
    case "float":
      return type.bits === 64 ? "float64" : "float32";
    case "decimal":
      return decimalType(type);
    case "date":
      return "date32";
    case "time":
      return type.unit === "ns" ? "time64[ns]" : "time64[us]";
    case "timestamp":
      return type.unit === "ns" ? "timestamp[ns]" : type.zone === undefined ? "timestamp[us]" : "timestamp[us, UTC]";
    case "duration":
      return "int64";
    case "bytes":
    case "view":
      return type.text ? "utf8" : "binary";
    case "fixedBytes":
      return extension === "arrow.uuid" && type.width === 16 ? "uuid" : "binary";
    case "bool":
      return "bool";
    case "list":
    case "listView":
    case "fixedList":
      return listType(children);
    case "struct":
      return structType(children);
    case "null":
    case "interval":
    case "union":
    case "map":
    case "runs":
      return undefined;
    default:
      return assertNever(type);
  }
}

function decimalType({ precision, scale }: ArrowType & { kind: "decimal" }): ColumnType | undefined {
  const fits = precision >= 1 && precision <= 38 && scale >= 0 && scale <= precision;
  return fits ? { kind: "decimal", precision, scale } : undefined;
}

function listType([child, ...others]: readonly ArrowField[]): ColumnType | undefined {
  const element = child === undefined || others.length > 0 ? undefined : typeOfField(child);
  return element === undefined ? undefined : { kind: "list", element };
}

function structType(children: readonly ArrowField[]): ColumnType | undefined {
  const fields = children.flatMap((child) => {
    const type = typeOfField(child);
    return type === undefined ? [] : [{ name: child.name, type }];
  });
  const names = new Set(fields.map(({ name }) => name.toLowerCase()));
  // DuckDB, which carries and writes them, has no struct without fields, and none with two of one name.
  const usable = fields.length > 0 && fields.length === children.length && names.size === fields.length;
  return usable ? { kind: "struct", fields } : undefined;
}

/** A type as pyarrow writes it: "dictionary<int8, string>", "list<float>". */
export function showField(field: ArrowField): string {
  const shown = showArrowType(field);
  return field.dictionary === undefined
    ? shown
    : `dictionary<${shown}, ${showArrowType({ ...bare, type: field.dictionary.index })}>`;
}

const bare = { name: "", children: [], dictionary: undefined, extension: undefined } as const;

function showArrowType({ type, children }: ArrowField): string {
  const inner = children.map((child) => `${child.name}: ${showField(child)}`).join(", ");
  const element = children[0] === undefined ? "" : showField(children[0]);
  switch (type.kind) {
    case "int":
      return `${type.signed ? "int" : "uint"}${type.bits}`;
    case "float":
      return { 16: "halffloat", 32: "float", 64: "double" }[type.bits];
    case "decimal":
      return `decimal${type.bits}(${type.precision}, ${type.scale})`;
    case "date":
      return type.unit === "day" ? "date32" : "date64";
    case "time":
      return `time${type.bits}[${type.unit}]`;
    case "timestamp":
      return `timestamp[${type.unit}${type.zone === undefined ? "" : `, ${type.zone}`}]`;
    case "duration":
      return `duration[${type.unit}]`;
    case "interval":
      return `interval[${type.unit}]`;
    case "bytes":
      return `${type.large ? "large_" : ""}${type.text ? "string" : "binary"}`;
    case "view":
      return type.text ? "string_view" : "binary_view";
    case "fixedBytes":
      return `fixed_size_binary[${type.width}]`;
    case "list":
      return `${type.large ? "large_" : ""}list<${element}>`;
    case "listView":
      return `${type.large ? "large_" : ""}list_view<${element}>`;
    case "fixedList":
      return `fixed_size_list<${element}>[${type.width}]`;
    case "struct":
      return `struct<${inner}>`;
    case "union":
      return `${type.dense ? "dense" : "sparse"}_union<${inner}>`;
    case "map":
      return `map<${children[0]?.children.map(showField).join(", ") ?? ""}>`;
    case "runs":
      return `run_end_encoded<${children.map(showField).join(", ")}>`;
    case "null":
    case "bool":
      return type.kind;
    default:
      return assertNever(type);
  }
}
