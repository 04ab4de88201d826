import { type ArrowSchema, readSchema } from "./schema.js";
import {
  byteField,
  type FlatTable,
  type FlatVector,
  longAt,
  longField,
  rootTable,
  shortField,
  tableField,
  vectorField,
} from "./flatbuffer.js";

/** Numbers and names are those of Message.fbs and File.fbs: https://arrow.apache.org/docs/format/Columnar.html */
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

/** The oldest version that is read: Arrow 0.8 (2017). */
const oldestVersion = 3;
const newestVersion = 4;

const pairBytes = 16;
const blockBytes = 24;

/** @throws RangeError where it is damaged */
export function readMessage(bytes: Uint8Array): Message {
  const table = rootTable(bytes);
  const header = tableField(table, 2);
  const bodyBytes = longField(table, 3);
  if (bodyBytes < 0) {
    throw new RangeError(`a body of ${bodyBytes} bytes`);
  }
  return { version: checkedVersion(shortField(table, 0)), bodyBytes, header: readHeader(byteField(table, 1), header) };
}

function checkedVersion(version: number): number {
  if (version < oldestVersion || version > newestVersion) {
    throw new RangeError(`metadata version ${version + 1}; 4 and 5 are read`);
  }
  return version;
}

/**
 * Java's writers before Arrow 0.15 left the version out of a footer, which means 1. Each message has its own version.
 */
function footerVersion(version: number): number {
  return checkedVersion(version >= 0 && version < oldestVersion ? oldestVersion : version);
}

function readHeader(kind: number, table: FlatTable | undefined): Message["header"] {
  if (table === undefined) {
    throw new RangeError("a message without a header");
  }
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

function readBatch(table: FlatTable): BatchHeader {
  const empty = { view: table.view, start: 0, length: 0 };
  const rows = longField(table, 0);
  if (rows < 0 || rows > rowsLimit) {
    throw new RangeError(`a batch of ${rows} rows`);
  }
  const compression = tableField(table, 3);
  const codec = compression === undefined ? undefined : byteField(compression, 0);
  if (compression !== undefined && byteField(compression, 1) !== 0) {
    throw new RangeError("a compression other than of buffers");
  }
  const counts = vectorField(table, 4, 8);
  return {
    rows,
    nodes: vectorField(table, 1, pairBytes) ?? empty,
    buffers: vectorField(table, 2, pairBytes) ?? empty,
    compression: codec === undefined ? "none" : codecOf(codec),
    variadicCounts: Array.from({ length: counts?.length ?? 0 }, (_, index) =>
      longAt(table.view, (counts?.start ?? 0) + index * 8),
    ),
  };
}

/** Rows of one batch: offsets and places are 32-bit numbers here. */
const rowsLimit = 2 ** 31 - 1;

function codecOf(codec: number): "lz4" | "zstd" {
  if (codec > 1) {
    throw new RangeError(`a compression of number ${codec}, which does not exist`);
  }
  return codec === 0 ? "lz4" : "zstd";
}

/** Pair `index` of a vector of nodes or buffers. */
export function pairAt({ view, start, length }: FlatVector, index: number): readonly [number, number] {
  if (index >= length) {
    throw new RangeError(`the schema has more columns than a batch of ${length}`);
  }
  const at = start + index * pairBytes;
  return [longAt(view, at), longAt(view, at + 8)];
}

/** @throws RangeError where it is damaged */
export function readFooterTable(bytes: Uint8Array): ArrowFooter {
  const table = rootTable(bytes);
  const schema = tableField(table, 1);
  if (schema === undefined) {
    throw new RangeError("a footer without a schema");
  }
  return {
    version: footerVersion(shortField(table, 0)),
    schema: readSchema(schema),
    dictionaries: readBlocks(table, 2),
    batches: readBlocks(table, 3),
  };
}

function readBlocks(table: FlatTable, id: number): Block[] {
  const vector = vectorField(table, id, blockBytes);
  const blocks: Block[] = [];
  for (let index = 0; index < (vector?.length ?? 0); index += 1) {
    const at = (vector?.start ?? 0) + index * blockBytes;
    const { view } = table;
    blocks.push({
      offset: longAt(view, at),
      metadataBytes: view.getInt32(at + 8, true),
      bodyBytes: longAt(view, at + 16),
    });
  }
  return blocks;
}

/** How a message begins: its length, since Arrow 0.15 after a marker. */
export interface Prefix {
  readonly prefixBytes: 4 | 8;
  /** 0: the end of a stream. */
  readonly length: number;
}

const continuation = 0xffff_ffff;

/** How many of its first bytes say how long a message is. @param bytes 4 */
export function prefixBytes(bytes: Uint8Array): 4 | 8 {
  return new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) === continuation ? 8 : 4;
}

/** @param bytes at least 8, or what is there @throws RangeError */
export function readPrefix(bytes: Uint8Array): Prefix {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const first = view.getUint32(0, true);
  const prefix = first === continuation ? ({ prefixBytes: 8, length: view.getInt32(4, true) } as const) : undefined;
  const found = prefix ?? { prefixBytes: 4, length: first };
  if (found.length < 0) {
    throw new RangeError(`a message of ${found.length} bytes`);
  }
  return found;
}
