import { type Cursor, isNo, readInner, readI32, readStruct } from "../../../base/thrift.js";
import * as zlib from "node:zlib";
import {
  isZstdNative,
  unpackLz4Start,
  unpackSnappy,
  unpackSnappyStart,
  unpackZstd,
  unpackZstdBlocks,
} from "../../codecs.js";
import { messageOf } from "../../../base/errors.js";

/** What precedes a page; names are those of parquet.thrift where it has one. */
export interface PageHeader {
  readonly kind: "data" | "data-v2" | "dictionary" | "other";
  readonly compressedBytes: number;
  readonly uncompressedBytes: number;
  /** The number of values with NULLs; 0 for a dictionary. */
  readonly values: number;
  readonly crc: number | undefined;
  /** The number of the encoding of its values; -1: it has none. */
  readonly encoding: number;
  /** The number of entries of a dictionary. */
  readonly entries: number;
  /** The sizes of the levels of a page of version 2, which are never compressed. */
  readonly levelBytes: { readonly repetition: number; readonly definition: number };
  readonly isCompressed: boolean;
  /** Number of the definition levels' encoding, in version 1. */
  readonly levelEncoding: number;
  /** The same of the repetition levels. */
  readonly repetitionEncoding: number;
}

/** A kind of page, and the number of the field that describes such pages. */
interface Kind {
  readonly kind: PageHeader["kind"];
  readonly headerField: number;
}
const kinds = new Map<number, Kind>([
  [0, { kind: "data", headerField: 5 }],
  [2, { kind: "dictionary", headerField: 7 }],
  [3, { kind: "data-v2", headerField: 8 }],
]);
const otherKind: Kind = { kind: "other", headerField: 0 };

type PageFacts = Partial<
  Record<
    | "values"
    | "encoding"
    | "levelEncoding"
    | "repetitionEncoding"
    | "entries"
    | "definition"
    | "repetition"
    | `unused${number}`,
    number
  >
>;

/** The required numbers of each such field, by field number. */
const factFields: Readonly<Record<number, Readonly<Record<number, keyof PageFacts>>>> = {
  5: { 1: "values", 2: "encoding", 3: "levelEncoding", 4: "repetitionEncoding" },
  7: { 1: "entries", 2: "encoding" },
  8: { 1: "values", 2: "unused2", 3: "unused3", 4: "encoding", 5: "definition", 6: "repetition" },
};

/** @throws RangeError when the bytes end inside it, Error when they are none */
export function parsePageHeader(cursor: Cursor): PageHeader {
  const numbers = { kind: -1, compressed: -1, uncompressed: -1 };
  const factsByField = new Map<number, PageFacts>();
  let crc: number | undefined;
  let isCompressed = true;
  const fields: Readonly<Record<number, keyof typeof numbers>> = { 1: "kind", 2: "uncompressed", 3: "compressed" };
  readStruct(cursor, (id, type) => {
    const [name, inside] = [fields[id], factFields[id]];
    if (name !== undefined) {
      numbers[name] = readI32(cursor, type);
    } else if (id === 4) {
      crc = readI32(cursor, type);
    } else if (inside !== undefined) {
      const found = factsByField.get(id) ?? {};
      factsByField.set(id, found);
      readInner(cursor, type, (key, inner) => {
        const number = inside[key];
        if (number !== undefined) {
          found[number] = readI32(cursor, inner);
        } else if (id === 8 && key === 7) {
          isCompressed = !isNo(inner);
        }
        return number !== undefined;
      });
    } else {
      return false;
    }
    return true;
  });
  const { kind, headerField } = kinds.get(numbers.kind) ?? otherKind;
  // A damaged byte may change a page's kind, or make a field another: then some of its fields are missing.
  const own = factsByField.get(headerField) ?? {};
  const isWhole = Object.values(factFields[headerField] ?? {}).every((name) => own[name] !== undefined);
  const { values = 0, entries = 0, encoding = -1, levelEncoding = -1, repetitionEncoding = -1 } = own;
  const { definition = 0, repetition = 0 } = own;
  return {
    kind: isWhole ? kind : "other",
    compressedBytes: numbers.compressed,
    uncompressedBytes: numbers.uncompressed,
    values,
    crc,
    encoding,
    entries,
    levelBytes: { repetition, definition },
    isCompressed: kind !== "data-v2" || isCompressed,
    levelEncoding,
    repetitionEncoding,
  };
}

/** Codecs by the numbers of parquet.thrift. */
export const codecs = { none: 0, snappy: 1, gzip: 2, brotli: 4, zstd: 6, lz4Raw: 7 };

/**
 * Whether pages of this codec are unpacked here about as fast as DuckDB does it.
 * @param isLong the row group has long values: DuckDB would hold 2,048 of them at once, so that a slower codec is fine
 */
export function isUnpacked(codec: number, { isLong = false } = {}): boolean {
  return codec === codecs.zstd ? isZstdNative || isLong : [codecs.none, codecs.snappy, codecs.gzip].includes(codec);
}

/** Fills exactly `target`. @throws RangeError where that is not what comes */
export function unpack(codec: number, packed: Uint8Array, target: Uint8Array): void {
  if (codec === codecs.snappy) {
    unpackSnappy(packed, target);
  } else {
    target.set(unpackIntoNew(codec, packed, target.length));
  }
}

/** Unpacks a page of any codec but Snappy into memory of its own. @throws RangeError unless it has `length` bytes */
export function unpackIntoNew(codec: number, packed: Uint8Array, length: number): Uint8Array<ArrayBuffer> {
  return codec === codecs.zstd ? unpackZstd(packed, length) : unpackGzip(packed, length);
}

function unpackGzip(packed: Uint8Array, length: number): Uint8Array<ArrayBuffer> {
  try {
    const found = zlib.gunzipSync(packed, { maxOutputLength: Math.max(1, length) });
    if (found.length !== length) {
      throw new RangeError(`${found.length} bytes, ${length} are due`);
    }
    return found;
  } catch (error) {
    throw new RangeError(`a gzip page is damaged: ${messageOf(error)}`, { cause: error });
  }
}

/** Whether the start of a page of this codec can be unpacked here. */
export function hasReadableStart(codec: number): boolean {
  return Object.values(codecs).includes(codec);
}

/** A page as it is stored, of which only the beginning may be looked at. */
export interface PackedPage {
  /** Its first bytes. @throws RangeError where it has fewer */
  readonly start: (bytes: number) => Uint8Array;
  readonly compressedBytes: number;
  readonly uncompressedBytes: number;
}

/** What is read behind packed bytes: Snappy's literals, of up to 64 KiB, and blocks of zstd are not divided. */
const slackBytes = 72 * 1024;
const zstdSlackBytes = 136 * 1024;

/**
 * The first `length` bytes of a page, or more; what comes after them stays packed, where the codec allows.
 * @throws RangeError where they are not there
 */
export function unpackStart(
  codec: number,
  { start, compressedBytes, uncompressedBytes }: PackedPage,
  length: number,
  target = new Uint8Array(length),
): Uint8Array {
  if (length > uncompressedBytes) {
    throw new RangeError(`the first ${length} bytes of a page of ${uncompressedBytes}`);
  }
  const enough = Math.min(compressedBytes, length + (codec === codecs.zstd ? zstdSlackBytes : slackBytes));
  const unpackStartOf = (packedBytes: number): Uint8Array => {
    switch (codec) {
      case codecs.none:
        return start(length);
      case codecs.snappy:
        unpackSnappyStart(start(packedBytes), target, uncompressedBytes);
        return target;
      case codecs.lz4Raw:
        unpackLz4Start(start(compressedBytes), target);
        return target;
      case codecs.gzip:
        return startOf(zlib.gunzipSync, start(packedBytes), {
          finishFlush: zlib.constants.Z_SYNC_FLUSH,
          maxOutputLength: uncompressedBytes,
        });
      case codecs.brotli:
        return startOf(zlib.brotliDecompressSync, start(packedBytes), {
          finishFlush: zlib.constants.BROTLI_OPERATION_FLUSH,
          maxOutputLength: uncompressedBytes,
        });
      case codecs.zstd:
        return packedBytes < compressedBytes
          ? unpackZstdBlocks(start(packedBytes), uncompressedBytes)
          : unpackZstd(start(compressedBytes), uncompressedBytes);
      default:
        throw new RangeError(`codec ${codec} is not unpacked here`);
    }
  };
  // A literal, or a block, may end behind the first bytes.
  const unpacked = enough < compressedBytes ? settledStart(() => unpackStartOf(enough)) : undefined;
  const bytes = unpacked !== undefined && unpacked.length >= length ? unpacked : unpackStartOf(compressedBytes);
  if (bytes.length < length) {
    throw new RangeError(`it cannot be unpacked: ${bytes.length} bytes, ${length} are due`);
  }
  return bytes;
}

function settledStart(unpackBytes: () => Uint8Array): Uint8Array | undefined {
  try {
    return unpackBytes();
  } catch (error) {
    if (error instanceof RangeError) {
      return undefined;
    }
    throw error;
  }
}

function startOf(
  unpackBytes: (packed: Uint8Array, options: zlib.ZlibOptions & zlib.BrotliOptions) => Uint8Array,
  packed: Uint8Array,
  options: { readonly finishFlush: number; readonly maxOutputLength: number },
): Uint8Array {
  try {
    return unpackBytes(packed, options);
  } catch (error) {
    throw new RangeError(`it cannot be unpacked: ${messageOf(error)}`, { cause: error });
  }
}
