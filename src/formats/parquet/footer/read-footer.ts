import { promises } from "node:fs";
import { errnoOf, JobError, messageOf } from "../../../util/errors.js";
import { leavesOf, readElement, type SchemaElement, withoutMeaning } from "./leaves.js";
import { faultOf } from "./faults.js";
import { type ColumnChunk, type Footer, type RowGroup, rowsIn } from "./footer.js";
import { corruptFooter, readTail } from "./tail.js";
import { rewriteShard } from "../../error-hints.js";
import type { ShardFile } from "../../port.js";
import {
  type Cursor,
  readBinary,
  readI32,
  readI64,
  readInner,
  readList,
  readListed,
  readStruct,
} from "../../../util/thrift.js";

/**
 * Reads a footer, and checks that its counts and offsets agree with each other and with the file's size.
 * @throws JobError SHARD_CORRUPT, DISK
 */
export async function readFooter(shard: Pick<ShardFile, "path" | "remote">): Promise<Footer> {
  const { path } = shard;
  try {
    await using file = await promises.open(path);
    const { size: sizeBytes } = await file.stat();
    const { bytes, pagesEnd } = await readTail(file, sizeBytes, shard);
    const footer = parse(bytes, { path, pagesEnd, sizeBytes });
    const fault = faultOf(footer);
    if (fault !== undefined) {
      throw corruptFooter(path, fault, `the footer is damaged, or its writer is faulty; ${rewriteShard}`);
    }
    return { ...footer, rows: rowsIn(footer) };
  } catch (error) {
    if (error instanceof JobError || errnoOf(error) === undefined) {
      throw error;
    }
    throw new JobError("DISK", `reading the footer of ${path}: ${errnoOf(error)}`, { cause: error });
  }
}

function parse(
  bytes: Uint8Array,
  { path, sizeBytes, pagesEnd }: { path: string; sizeBytes: number; pagesEnd: number },
): Footer {
  const cursor: Cursor = { bytes, at: 0 };
  const elements: SchemaElement[] = [];
  const rowGroups: RowGroup[] = [];
  let rows = -1;
  let encrypted = false;
  const metadata = new Map<string, string>();
  try {
    readStruct(cursor, (id, type) => {
      if (id === 2) {
        readList(cursor, type, (inner, index) => elements.push(readElement(cursor, inner, index === 0)));
      } else if (id === 3) {
        rows = readI64(cursor, type);
      } else if (id === 4) {
        readList(cursor, type, (inner) => rowGroups.push(readRowGroup(cursor, inner)));
      } else if (id === 5) {
        readList(cursor, type, (inner) => {
          readEntry(cursor, inner, metadata);
        });
      } else {
        encrypted ||= id === 8; // encryption_algorithm
        return false;
      }
      return true;
    });
  } catch (error) {
    const found = `it is damaged (byte ${cursor.at} of ${bytes.length}: ${messageOf(error)})`;
    throw corruptFooter(path, found, rewriteShard, error);
  }
  const { leaves, doubles } = leavesOf(elements);
  // No spread of rest properties: V8 would give each such object a hidden class of its own, and never free it.
  return {
    sizeBytes,
    pagesEnd,
    rows,
    rowGroups,
    leaves: metadata.has(geoKey) ? withoutMeaning(leaves) : leaves,
    doubles,
    metadata,
    encrypted,
  };
}

/** The key of GeoParquet's metadata, which declares columns of bytes to be geometries. */
const geoKey = "geo";

/** Keys by which Spark says that it wrote dates and timestamps, or INT96, in the calendar of Spark 2, and the zone. */
export const sparkKeys = {
  dateTime: "org.apache.spark.legacyDateTime",
  int96: "org.apache.spark.legacyINT96",
  timeZone: "org.apache.spark.timeZone",
} as const;

/** What is kept of an entry of the file's metadata: Arrow's schema there may be long. */
const keptKeys = new Set([geoKey, ...Object.values(sparkKeys)]);

function readEntry(cursor: Cursor, type: number, metadata: Map<string, string>): void {
  let [key, value] = ["", ""];
  readInner(cursor, type, (id, inner) => {
    if (id === 1) {
      key = Buffer.from(readBinary(cursor, inner)).toString();
    } else if (id === 2 && keptKeys.has(key)) {
      value = Buffer.from(readBinary(cursor, inner)).toString();
    } else {
      return false;
    }
    return true;
  });
  if (keptKeys.has(key)) {
    metadata.set(key, key === geoKey ? "" : value);
  }
}

function readRowGroup(cursor: Cursor, type: number): RowGroup {
  const chunks: ColumnChunk[] = [];
  let rows = -1;
  readInner(cursor, type, (id, inner) => {
    if (id === 1) {
      readList(cursor, inner, (element) => chunks.push(readChunk(cursor, element)));
    } else if (id === 3) {
      rows = readI64(cursor, inner);
    } else {
      return false;
    }
    return true;
  });
  return { rows, chunks };
}

const chunkFields = {
  i32: { 1: "type", 4: "codec" } as Readonly<Record<number, "type" | "codec">>,
  i64: { 5: "values", 6: "uncompressed", 7: "compressed", 9: "data", 11: "dictionary" } as Readonly<
    Record<number, "values" | "uncompressed" | "compressed" | "data" | "dictionary">
  >,
};

function readEncodings(cursor: Cursor, type: number): Pick<ColumnChunk, "hasPrefixes" | "hasOtherEncodings"> {
  const encodings: number[] = [];
  readList(cursor, type, (element) => encodings.push(readListed(cursor, element)));
  return {
    hasPrefixes: encodings.includes(deltaByteArray),
    hasOtherEncodings: !encodings.every((encoding) => commonEncodings.has(encoding)),
  };
}

/** Encodings, by the numbers of parquet.thrift. */
const deltaByteArray = 7;
/** Plain values, two ways to number the entries of a dictionary, and two to store levels. */
const commonEncodings = new Set([0, 2, 8, 3, 4]);

function readChunk(cursor: Cursor, type: number): ColumnChunk {
  const path: string[] = [];
  const numbers = { type: -1, codec: -1, values: -1, uncompressed: -1, compressed: -1, data: -1, dictionary: 0 };
  let sizes: ReturnType<typeof readSizes> = { repetition: 0, definition: 0, unencoded: undefined };
  let nulls: number | undefined;
  const flags = { encrypted: false, isElsewhere: false, hasPrefixes: false, hasOtherEncodings: false };
  readInner(cursor, type, (id, inner) => {
    flags.encrypted ||= id === 8; // crypto_metadata
    flags.isElsewhere ||= id === 1; // file_path
    if (id !== 3) {
      return false;
    }
    readInner(cursor, inner, (key, value) => {
      const [small, large] = [chunkFields.i32[key], chunkFields.i64[key]];
      if (small !== undefined) {
        numbers[small] = readI32(cursor, value);
      } else if (large !== undefined) {
        numbers[large] = readI64(cursor, value);
      } else if (key === 2) {
        Object.assign(flags, readEncodings(cursor, value));
      } else if (key === 3) {
        readList(cursor, value, (element) => path.push(Buffer.from(readBinary(cursor, element)).toString()));
      } else if (key === 12) {
        nulls = readNullCount(cursor, value);
      } else if (key === 16) {
        sizes = readSizes(cursor, value);
      } else {
        return false;
      }
      return true;
    });
    return true;
  });
  const { values, uncompressed, compressed, data, dictionary } = numbers;
  // Some writers say 0 where there is no dictionary.
  const start = dictionary > 0 && dictionary < data ? dictionary : data;
  return {
    path,
    type: numbers.type,
    codec: numbers.codec,
    start,
    compressedBytes: compressed,
    uncompressedBytes: uncompressed,
    values,
    unencodedBytes: sizes.unencoded,
    nulls,
    levels: { repetition: sizes.repetition, definition: sizes.definition },
    ...flags,
    isElsewhere: flags.isElsewhere || dictionary > data,
  };
}

/** The `null_count` of a chunk's `Statistics`. */
function readNullCount(cursor: Cursor, type: number): number | undefined {
  let nulls: number | undefined;
  readInner(cursor, type, (id, inner) => {
    nulls = id === 3 ? readI64(cursor, inner) : nulls;
    return id === 3;
  });
  return nulls;
}

/** SizeStatistics: how many levels its histograms count, 0 where they are not there, and the bytes of all texts. */
function readSizes(cursor: Cursor, type: number): ColumnChunk["levels"] & { unencoded: number | undefined } {
  const levels = { repetition: 0, definition: 0 };
  let unencoded: number | undefined;
  readInner(cursor, type, (id, inner) => {
    if (id === 1) {
      unencoded = readI64(cursor, inner);
      return true;
    }
    const name = id === 2 ? "repetition" : id === 3 ? "definition" : undefined;
    if (name !== undefined) {
      readList(cursor, inner, (element, index) => {
        readI64(cursor, element);
        levels[name] = index + 1;
      });
    }
    return name !== undefined;
  });
  return { ...levels, unencoded };
}
