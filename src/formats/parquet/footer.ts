import {
  type Cursor,
  isNo,
  isStruct,
  isYes,
  readBinary,
  readI32,
  readInner,
  readI64,
  readListed,
  readList,
  readStruct,
} from "../../base/thrift.js";
import { closeSync, fstatSync, open, read } from "node:fs";
import { promisify } from "node:util";
import { JobError, errnoOf, messageOf } from "../../base/errors.js";
import { rewriteShard } from "../faults.js";
import type { ShardFile } from "../format.js";
import type { TableRows } from "../../columns/types.js";
import { type MappedColumns, mapColumns } from "./table-columns.js";

/** The parts of a footer that say where rows are. Names are those of parquet.thrift if it has one. */
export interface Footer extends SchemaLeaves {
  readonly sizeBytes: number;
  readonly rows: number;
  readonly rowGroups: readonly RowGroup[];
  /** Offset of the footer: all pages are before it. */
  readonly pagesEnd: number;
  readonly footerBytes: number;
  /** What the writer says of the file; "" for a long text, such as Arrow's schema. */
  readonly metadata: ReadonlyMap<string, string>;
  /** The program that wrote it; "": it does not say so. */
  readonly createdBy: string;
  /** The version of the format. */
  readonly version: number;
  /** Whether a part of the file is encrypted or signed. */
  readonly encrypted: boolean;
  /** What SQL selects of the file, whose columns are those of a table here; undefined: they are its own. */
  readonly select?: string | undefined;
  /** Columns of the table that cannot be read from the file, and what the file has in their place; undefined: none. */
  readonly unfit?: MappedColumns["unfit"] | undefined;
}

interface RowGroup {
  readonly rows: number;
  readonly chunks: readonly ColumnChunk[];
}

export interface ColumnChunk {
  /** Names from the table's column down to the leaf. */
  readonly path: readonly string[];
  /** The offset of the chunk's first page. */
  readonly start: number;
  readonly compressedBytes: number;
  readonly uncompressedBytes: number;
  readonly values: number;
  /** The size of all texts or bytes, each counted as often as it occurs; undefined: the writer does not record it. */
  readonly unencodedBytes: number | undefined;
  /** The size of a page, uncompressed, where it was looked up; the footer does not say it. */
  readonly pageBytes?: number | undefined;
  /** The NULLs that the chunk's statistics state, where it has some. */
  readonly nulls: number | undefined;
  /** Numbers of the physical type and of the codec, 0 being none. */
  readonly type: number;
  readonly codec: number;
  /** The number of levels that the chunk's histograms count; 0 without histograms. */
  readonly levels: { readonly repetition: number; readonly definition: number };
  readonly encrypted: boolean;
  /** Whether texts of the chunk share a prefix with the text before (DELTA_BYTE_ARRAY). */
  readonly hasPrefixes: boolean;
  /** Whether the footer names an encoding other than those of plain values, of dictionaries, and of levels. */
  readonly hasOtherEncodings: boolean;
  /** Whether DuckDB may read pages from another place: another file, or the stated offset of a dictionary. */
  readonly isElsewhere: boolean;
}

function rowsIn({ rowGroups }: Footer): number {
  return rowGroups.reduce((total, group) => total + group.rows, 0);
}

/** Returns the place of a chunk as messages name it: "row group 3, column `user.age`". */
export function placeOfChunk(group: number, { path }: Pick<ColumnChunk, "path">): string {
  return `row group ${group}, column \`${path.join(".")}\``;
}

/** The rows that a row group has in a range of the shard's rows. */
export interface GroupRows {
  /** The row group's number. */
  readonly group: number;
  /** The row group's first row, as a row of the shard, and how many rows it has. */
  readonly groupStart: number;
  readonly groupRows: number;
  /** Rows of the shard, those of the range that the row group has: [rowStart, rowEnd), at least one. */
  readonly rowStart: number;
  readonly rowEnd: number;
  readonly chunks: readonly ColumnChunk[];
}

/** The row groups that have rows of a range, in order. */
export function* groupsBetween(
  { rowGroups }: Pick<Footer, "rowGroups">,
  range: { readonly rowStart: number; readonly rowEnd: number },
): Generator<GroupRows> {
  let groupStart = 0;
  for (const [group, { rows: groupRows, chunks }] of rowGroups.entries()) {
    const rowStart = Math.max(groupStart, range.rowStart);
    const rowEnd = Math.min(groupStart + groupRows, range.rowEnd);
    if (rowStart < rowEnd) {
      yield { group, groupStart, groupRows, rowStart, rowEnd, chunks };
    }
    groupStart += groupRows;
  }
}

/** A column of values in a footer's schema. */
export interface Leaf {
  /** Number of the table's column that it is, or is a part of. */
  readonly column: number;
  /** The id that the writer gave this column; undefined: none. */
  readonly fieldId: number | undefined;
  /** The id that the writer gave the leaf itself, which is that of the column where that has no fields; undefined: none. */
  readonly leafId: number | undefined;
  /** Names from the table's column down to the leaf. */
  readonly path: readonly string[];
  /** Number of the physical type. */
  readonly type: number;
  /** The highest repetition and definition level: above it, lists, and what may be NULL. */
  readonly repetition: number;
  readonly definition: number;
  /** The leaf's logical type: "" for none, "other" for types that are not distinguished here. */
  readonly annotation: string;
  /** Set if values are nanoseconds in UTC, which DuckDB cuts to microseconds: the byte of the footer that says "in UTC". */
  readonly utcNanosAt: number | undefined;
  /** Set if the leaf is the element of a column of lists in the standard form, which has three levels. */
  readonly list: ListLevels | undefined;
}

/**
 * What may be NULL in a column of lists: `<optional | required> group (LIST) { repeated group { <optional | required>
 * element } }`. https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#lists
 */
export interface ListLevels {
  readonly isOptional: boolean;
  readonly isElementOptional: boolean;
}

export interface SchemaElement {
  readonly name: string;
  readonly children: number;
  /** undefined: it is a group. */
  readonly type: number | undefined;
  /** 0 required, 1 optional, 2 repeated. */
  readonly repetition: number;
  readonly fieldId: number | undefined;
  readonly annotation: string;
  readonly utcNanosAt: number | undefined;
}

interface SchemaLeaves {
  /** In the order of each row group's chunks. */
  readonly leaves: readonly Leaf[];
  /** A column, or a field of one, with the name of another one beside it, ignoring case. */
  readonly double: string | undefined;
}

const convertedTypes = new Map([
  [0, "text"],
  [3, "list"],
  [6, "date"],
  [9, "timestamp millis"],
  [10, "timestamp micros"],
  [11, "uint8"],
  [12, "uint16"],
  [13, "uint32"],
  [14, "uint64"],
  [15, "int8"],
  [16, "int16"],
  [17, "int32"],
  [18, "int64"],
]);
/** Types by number of the logical type. An integer's width is in the converted type, too. */
const logicalTypes = new Map([
  [1, "text"],
  [3, "list"],
  [6, "date"],
  [10, "integer"],
  [11, "null"],
]);
const timestamp = 8;
const timeUnits = ["", "millis", "micros", "nanos"];

/** The number of `REPEATED` in parquet.thrift. */
const repeated = 2;

/** @public so that tests see it */
export function readElement(cursor: Cursor, type: number, isRoot: boolean): SchemaElement {
  let children = 0;
  let physical: number | undefined;
  let repetition = -1;
  let name = "";
  let fieldId: number | undefined;
  let converted: string | undefined;
  let logical: LogicalType | undefined;
  readInner(cursor, type, (id, inner) => {
    if (id === 1) {
      physical = readI32(cursor, inner);
    } else if (id === 3) {
      repetition = readI32(cursor, inner);
    } else if (id === 4) {
      name = readText(cursor, inner);
    } else if (id === 5) {
      children = readI32(cursor, inner);
    } else if (id === 6) {
      converted = convertedTypes.get(readI32(cursor, inner)) ?? "other";
    } else if (id === 9) {
      fieldId = readI32(cursor, inner);
    } else if (id === 10) {
      logical = readLogical(cursor, inner);
    } else {
      return false;
    }
    return true;
  });
  // DuckDB takes a missing repetition for `required`, and would then read levels as values.
  if (!isRoot && (repetition < 0 || repetition > 2)) {
    throw new Error("a column is neither required nor optional nor repeated");
  }
  const annotation = annotationOf(converted, logical?.name);
  return { name, children, type: physical, repetition, fieldId, annotation, utcNanosAt: logical?.utcNanosAt };
}

function annotationOf(converted: string | undefined, logical: string | undefined): string {
  if (logical === undefined) {
    return converted ?? "";
  }
  if (logical === "integer") {
    return converted?.includes("int") === true ? converted : "other";
  }
  if (logical === "list") {
    return converted === "list" ? "list" : "other"; // DuckDB asks for the converted type only
  }
  return converted === undefined || logical.startsWith(converted) ? logical : "other";
}

interface LogicalType {
  readonly name: string;
  readonly utcNanosAt: number | undefined;
}

/** A union: one field, which is a struct; "other" for what is none. */
function readLogical(cursor: Cursor, type: number): LogicalType {
  let logical: LogicalType | undefined;
  readInner(cursor, type, (id, inner) => {
    const isTimestamp = id === timestamp && isStruct(inner);
    const found = isTimestamp
      ? readTimestamp(cursor, inner)
      : { name: (isStruct(inner) ? logicalTypes.get(id) : undefined) ?? "other", utcNanosAt: undefined };
    logical = logical === undefined ? found : { ...found, name: "other" };
    return isTimestamp;
  });
  return logical ?? { name: "other", utcNanosAt: undefined };
}

function readTimestamp(cursor: Cursor, type: number): LogicalType {
  let isUtc: boolean | undefined;
  let flagAt = 0;
  const units: (string | undefined)[] = [];
  readInner(cursor, type, (id, inner) => {
    if (id === 2) {
      readInner(cursor, inner, (unit, kind) => {
        units.push(isStruct(kind) ? timeUnits[unit] : undefined);
        return false;
      });
      return true;
    }
    if (id === 1 && (isYes(inner) || isNo(inner))) {
      isUtc = isYes(inner);
      // The value is in the field's first byte, which the number of the field may follow.
      flagAt = cursor.bytes[cursor.at - 1] === (0x10 | inner) ? cursor.at - 1 : cursor.at - 2;
    }
    return false;
  });
  const [unit] = units.length === 1 ? units : [];
  const name = unit === undefined || isUtc === undefined ? "other" : `timestamp ${unit}${isUtc ? " UTC" : ""}`;
  return { name, utcNanosAt: isUtc === true && units.includes("nanos") ? flagAt : undefined };
}

interface OpenGroup {
  readonly element: SchemaElement;
  /** How many children are left. */
  left: number;
  readonly path: readonly string[];
  readonly repetition: number;
  readonly definition: number;
  /** The names of the children that were read, in lower case. */
  readonly names: Set<string>;
}

/** The list that `leaf` is the element of, within `groups`; undefined: it is of none, or of a list in another form. */
function listOf([outer, inner, ...others]: readonly OpenGroup[], leaf: SchemaElement): ListLevels | undefined {
  const isList =
    outer?.element.annotation === "list" &&
    outer.element.repetition !== repeated &&
    outer.element.children === 1 &&
    inner?.element.annotation === "" &&
    inner.element.repetition === repeated &&
    inner.element.children === 1 &&
    leaf.repetition !== repeated &&
    others.length === 0;
  return isList ? { isOptional: outer.element.repetition === 1, isElementOptional: leaf.repetition === 1 } : undefined;
}

/**
 * The schema is a tree, written parents first; its first element is the table. Where their numbers of children do not
 * make one, readers take it for different ones: no leaf's meaning is known then.
 * @public so that tests see it
 */
export function leavesOf(elements: readonly SchemaElement[]): SchemaLeaves {
  const leaves: Leaf[] = [];
  let double: string | undefined;
  const topNames = new Set<string>();
  const groups: OpenGroup[] = [];
  const isDone = (group: OpenGroup | undefined): boolean => group?.left === 0;
  let isTree = true;
  let columns = 0;
  for (const element of elements.slice(1)) {
    while (isDone(groups.at(-1))) {
      groups.pop();
    }
    isTree &&= element.type === undefined ? element.children > 0 : element.children === 0;
    columns += groups.length === 0 ? 1 : 0;
    const parent = groups.at(-1);
    const path = [...(parent?.path ?? []), element.name];
    const repetition = (parent?.repetition ?? 0) + (element.repetition === repeated ? 1 : 0);
    const definition = (parent?.definition ?? 0) + (element.repetition === 0 ? 0 : 1);
    if (parent !== undefined) {
      parent.left -= 1;
    }
    const names = parent?.names ?? topNames;
    double ??= names.has(element.name.toLowerCase()) ? path.join(".") : undefined;
    names.add(element.name.toLowerCase());
    if (element.type === undefined) {
      groups.push({ element, left: element.children, path, repetition, definition, names: new Set() });
    } else {
      const { type, annotation, utcNanosAt, fieldId: leafId } = element;
      const list = listOf(groups, element);
      const { fieldId } = groups[0]?.element ?? element;
      const ids = { column: columns - 1, fieldId, leafId };
      leaves.push({ ...ids, path, type, repetition, definition, annotation, utcNanosAt, list });
    }
  }
  isTree &&= groups.every(isDone) && elements[0]?.type === undefined && elements[0]?.children === columns;
  return { leaves: isTree ? leaves : withoutMeaning(leaves), double };
}

/** Returns leaves without their logical types, which only DuckDB can interpret. */
function withoutMeaning(leaves: readonly Leaf[]): Leaf[] {
  return leaves.map((leaf) => ({
    ...leaf,
    annotation: leaf.annotation === "null" ? leaf.annotation : "other",
    list: undefined,
  }));
}

/** `PAR1`, then pages; at the end the footer, its length and `PAR1`. */
const magicBytes = 4;
const tailBytes = 8;
const leastBytes = magicBytes + tailBytes;
/** Bytes of the first read: most footers fit. A second request costs more than some more bytes. */
const guessBytes = { local: 32 * 1024, remote: 64 * 1024 };

function corruptFooter(path: string, found: string, hint: string, cause?: unknown): JobError {
  return new JobError("SHARD_CORRUPT", `reading the footer of ${path}: ${found}`, { hint, cause });
}

/** Without objects for files, which take twice as long where there are many small ones. */
const [openFile, readFile] = [promisify(open), promisify(read)];

async function readTail(
  file: number,
  size: number,
  { path, remote }: Pick<ShardFile, "path" | "remote">,
): Promise<{ bytes: Uint8Array; pagesEnd: number }> {
  const readAt = async (start: number, length: number): Promise<Uint8Array> => {
    await remote?.fetch([{ start, end: start + length }], { keep: true });
    const { buffer, bytesRead } = await readFile(file, Buffer.allocUnsafe(length), 0, length, start);
    return buffer.subarray(0, bytesRead);
  };
  if (size === 0) {
    throw corruptFooter(path, "the file is empty (0 bytes)", `its writer was stopped, perhaps; ${rewriteShard}`);
  }
  const guess = Math.min(size, remote === undefined ? guessBytes.local : guessBytes.remote);
  const tail = await readAt(size - guess, guess);
  const magic = size < leastBytes ? "" : latin1(tail.subarray(-magicBytes));
  if (magic === "PARE") {
    throw corruptFooter(
      path,
      "it is encrypted",
      "encrypted files are not supported; write the shard without encryption",
    );
  }
  if (magic !== "PAR1") {
    const head = latin1(await readAt(0, Math.min(size, magicBytes)));
    if (head === "PAR1" || head === "PARE") {
      const hint = `the file was cut off, or is still being written; ${rewriteShard}`;
      throw corruptFooter(path, `it begins as Parquet, but its end is missing (${size} bytes)`, hint);
    }
    const shown = JSON.stringify(head);
    throw corruptFooter(
      path,
      `it is not Parquet: it begins with ${shown}, not "PAR1"`,
      /^(ARRO|\xff{4})$/.test(head)
        ? "Arrow files end in .arrow, streams in .arrows; under another name they need input.format: arrow"
        : `shards are Parquet, or Arrow under names that end in .arrow; ${rewriteShard}`,
    );
  }
  const length = new DataView(tail.buffer, tail.byteOffset + tail.length - tailBytes).getUint32(0, true);
  const pagesEnd = size - tailBytes - length;
  if (pagesEnd < magicBytes) {
    const found = `it claims to have a footer of ${length} bytes, in a file of ${size}`;
    throw corruptFooter(path, found, `the file was damaged, or cut at its beginning; ${rewriteShard}`);
  }
  const within = tail.length - tailBytes - length;
  const bytes = within >= 0 ? tail.subarray(within, within + length) : await readAt(pagesEnd, length);
  return { bytes, pagesEnd };
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("latin1");
}

/** A lower bound of a data page's header. The number of values of a page is an i32. */
const leastPageBytes = 8;
const pageValuesLimit = 2 ** 31 - 1;
/** Tolerance for sizes: some writers count page headers, others do not. */
const sizesMayDiffer = 1.25;

function faultOf(footer: Footer): string | undefined {
  const { rows, rowGroups, leaves, pagesEnd } = footer;
  const sum = rowsIn(footer);
  // parquet-rs 0.3.0 left the file's own count at 0.
  if (rows !== sum && rows !== 0) {
    return `it states ${rows} rows, but its row groups state ${sum}`;
  }
  for (const [group, { rows: groupRows, chunks }] of rowGroups.entries()) {
    if (groupRows < 0 || chunks.length !== leaves.length) {
      return `row group ${group} has ${groupRows} rows of ${chunks.length} columns, the schema ${leaves.length}`;
    }
    for (const [index, leaf] of leaves.entries()) {
      const chunk = chunks[index];
      // The sizes of an encrypted column are encrypted, too. A row group without rows may leave them out.
      if (chunk === undefined || chunk.encrypted || groupRows === 0) {
        continue;
      }
      const fault = faultOfPlace(chunk, { groupRows, pagesEnd, leaf }) ?? faultOfKind(chunk, leaf);
      if (fault !== undefined) {
        return `${placeOfChunk(group, chunk)} ${fault}`;
      }
    }
  }
  return undefined;
}

function faultOfPlace(
  { values, start, compressedBytes }: ColumnChunk,
  { groupRows, pagesEnd, leaf }: { groupRows: number; pagesEnd: number; leaf: Leaf },
): string | undefined {
  if (values < groupRows || (values > groupRows && leaf.repetition === 0)) {
    return `has ${values} values, the row group ${groupRows} rows`;
  }
  const end = start + compressedBytes;
  if (start < magicBytes || compressedBytes < 0 || end > pagesEnd) {
    return `would be bytes ${start} to ${end}, but pages end at byte ${pagesEnd}`;
  }
  return values > (compressedBytes / leastPageBytes) * pageValuesLimit
    ? `cannot hold ${values} values in ${compressedBytes} bytes`
    : undefined;
}

/** Contradictions to the schema or the codec, which would make a reader return wrong values. */
function faultOfKind(
  { type, codec, levels, compressedBytes, uncompressedBytes }: ColumnChunk,
  leaf: Leaf,
): string | undefined {
  if (type !== leaf.type) {
    return `has physical type ${type}, the schema ${leaf.type}`;
  }
  if (codec === 0 && uncompressedBytes > compressedBytes * sizesMayDiffer) {
    return `is not compressed, but has ${compressedBytes} bytes, ${uncompressedBytes} when unpacked`;
  }
  for (const kind of ["repetition", "definition"] as const) {
    if (levels[kind] !== 0 && levels[kind] !== leaf[kind] + 1) {
      return `counts ${levels[kind]} ${kind} levels, the schema ${leaf[kind] + 1}`;
    }
  }
  return undefined;
}

async function readTailOf(
  shard: Pick<ShardFile, "path" | "remote">,
): Promise<{ readonly bytes: Uint8Array; readonly pagesEnd: number; readonly sizeBytes: number }> {
  const file = await openFile(shard.path, "r");
  try {
    const { size: sizeBytes } = fstatSync(file); // known since it was opened
    return { ...(await readTail(file, sizeBytes, shard)), sizeBytes };
  } finally {
    closeSync(file);
  }
}

/**
 * Reads a footer, and checks that its counts and offsets agree with each other and with the file's size.
 * @throws JobError SHARD_CORRUPT, DISK
 */
export async function readParquetFooter(shard: Pick<ShardFile, "path" | "remote" | "table">): Promise<Footer> {
  const { path } = shard;
  try {
    const { bytes, ...sizes } = await readTailOf(shard);
    const footer = parse(bytes, { path, ...sizes });
    const fault = faultOf(footer);
    if (fault !== undefined) {
      throw corruptFooter(path, fault, `the footer is damaged, or its writer is faulty; ${rewriteShard}`);
    }
    const whole = { ...footer, rows: rowsIn(footer) };
    return shard.table === undefined ? whole : asTable(whole, shard.table, path);
  } catch (error) {
    if (error instanceof JobError || errnoOf(error) === undefined) {
      throw error;
    }
    throw new JobError("DISK", `reading the footer of ${path}: ${errnoOf(error)}`, { cause: error });
  }
}

/** Begins the names of columns that a table does not have: nobody asks for them. */
const notInTable = "\0";

/** Whether a leaf is of a column that the table of the file does not have. */
export function isNotInTable({ path: [name = ""] }: Leaf): boolean {
  return name.startsWith(notInTable);
}

interface LeavesInTable extends Pick<MappedColumns, "select" | "unfit"> {
  readonly columns: TableRows["columns"];
  readonly stored: readonly Leaf[];
  /** With the names that they have in the table. */
  readonly leaves: readonly Leaf[];
}

/** Of the file before, whose schema most files of a table have. */
let lastInTable: LeavesInTable | undefined;

function leavesInTable(stored: readonly Leaf[], table: TableRows, path: string): LeavesInTable {
  const { columns } = table;
  if (lastInTable?.stored === stored && lastInTable.columns === columns) {
    return lastInTable;
  }
  const { names, select, unfit } = mapColumns(stored, table, path);
  const isSame = stored.every((leaf) => names.get(leaf.column) === leaf.path[0]);
  const renamed = (leaf: Leaf): Leaf => {
    const [name = "", ...fields] = leaf.path;
    return { ...leaf, path: [names.get(leaf.column) ?? `${notInTable}${name}`, ...fields] };
  };
  lastInTable = { columns, stored, leaves: isSame ? stored : stored.map(renamed), select, unfit };
  return lastInTable;
}

function asTable(footer: Footer, table: TableRows, path: string): Footer {
  const { leaves, rowGroups } = footer;
  const { leaves: renamed, select, unfit } = leavesInTable(leaves, table, path);
  if (renamed === leaves) {
    return { ...footer, select, unfit };
  }
  // A chunk that states another path than the schema stays as it is: such files are refused, or read by DuckDB.
  const chunksOf = (chunks: readonly ColumnChunk[]): ColumnChunk[] =>
    chunks.map((chunk, index) =>
      chunk.path[0] === leaves[index]?.path[0] ? { ...chunk, path: renamed[index]?.path ?? chunk.path } : chunk,
    );
  return {
    ...footer,
    leaves: renamed,
    rowGroups: rowGroups.map(({ rows, chunks }) => ({ rows, chunks: chunksOf(chunks) })),
    double: undefined,
    select,
    unfit,
  };
}

/** The schema of the file before: others of a table, or of a job that writes them each day, have the same bytes. */
let lastSchema:
  | { readonly at: number; readonly type: number; readonly bytes: Uint8Array; readonly read: SchemaLeaves }
  | undefined;

function readSchema(cursor: Cursor, type: number): SchemaLeaves {
  const { at } = cursor;
  // Where it begins counts, too: leaves name bytes of the footer.
  if (lastSchema?.at === at && lastSchema.type === type) {
    const end = at + lastSchema.bytes.length;
    if (Buffer.compare(cursor.bytes.subarray(at, end), lastSchema.bytes) === 0) {
      cursor.at = end;
      return lastSchema.read;
    }
  }
  const elements: SchemaElement[] = [];
  readList(cursor, type, (inner, index) => elements.push(readElement(cursor, inner, index === 0)));
  lastSchema = { at, type, bytes: cursor.bytes.slice(at, cursor.at), read: leavesOf(elements) };
  return lastSchema.read;
}

function parse(
  bytes: Uint8Array,
  { path, sizeBytes, pagesEnd }: { path: string; sizeBytes: number; pagesEnd: number },
): Footer {
  const cursor: Cursor = { bytes, at: 0 };
  let schema: SchemaLeaves | undefined;
  const rowGroups: RowGroup[] = [];
  let [rows, version, createdBy, encrypted] = [-1, 0, "", false];
  const metadata = new Map<string, string>();
  try {
    readStruct(cursor, (id, type) => {
      if (id === 2) {
        schema = readSchema(cursor, type);
      } else if (id === 3) {
        rows = readI64(cursor, type);
      } else if (id === 4) {
        readList(cursor, type, (inner) => rowGroups.push(readRowGroup(cursor, inner)));
      } else if (id === 5) {
        readList(cursor, type, (inner) => {
          readEntry(cursor, inner, metadata);
        });
      } else if (id === 1) {
        version = readI32(cursor, type);
      } else if (id === 6) {
        createdBy = readText(cursor, type);
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
  const { leaves, double } = schema ?? leavesOf([]);
  // No spread of rest properties: V8 would give each such object a hidden class of its own, and never free it.
  return {
    sizeBytes,
    pagesEnd,
    rows,
    rowGroups,
    leaves: metadata.has(geoKey) ? withoutMeaning(leaves) : leaves,
    double,
    footerBytes: bytes.length,
    metadata,
    createdBy,
    version,
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

/** Longer texts of the metadata are not kept. */
const mostTextBytes = 1024;

function readEntry(cursor: Cursor, type: number, metadata: Map<string, string>): void {
  const entry = { key: "", value: "" };
  readInner(cursor, type, (id, inner) => {
    if (id === 1) {
      entry.key = readText(cursor, inner);
    } else if (id === 2) {
      const bytes = readBinary(cursor, inner);
      entry.value = bytes.length > mostTextBytes ? "" : Buffer.from(bytes).toString();
    }
    return id === 1 || id === 2;
  });
  metadata.set(entry.key, entry.value);
}

function readText(cursor: Cursor, type: number): string {
  return Buffer.from(readBinary(cursor, type)).toString();
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
        readList(cursor, value, (element) => path.push(readText(cursor, element)));
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
