import { type FileHandle, open } from "node:fs/promises";
import { errnoOf, JobError, messageOf } from "../errors.js";
import { type Cursor, readBinary, readInner, readInteger, readList, readStruct } from "./thrift.js";

/** What a footer says of where its rows lie; names are those of parquet.thrift where it has one. */
export interface Footer {
  readonly sizeBytes: number;
  readonly rows: number;
  readonly rowGroups: readonly RowGroup[];
  /** Offset of the footer: all pages lie before it. */
  readonly pagesEnd: number;
  /** Whether a part of the file is encrypted, or signed. */
  readonly encrypted: boolean;
}

export interface RowGroup {
  readonly rows: number;
  readonly chunks: readonly ColumnChunk[];
}

export interface ColumnChunk {
  /** Names from the table's column down to the leaf. */
  readonly path: readonly string[];
  /** Of its first page. */
  readonly start: number;
  readonly compressedBytes: number;
  readonly uncompressedBytes: number;
  readonly values: number;
  readonly encrypted: boolean;
}

/** `PAR1`, then pages; at the end the footer, its length and `PAR1`. */
const magicBytes = 4;
const tailBytes = 8;
const leastBytes = magicBytes + tailBytes;
/** What is read at once: most footers fit. */
const guessBytes = 32 * 1024;

/** The shortest header of a data page takes more; its number of values is an i32. */
const leastPageBytes = 8;
const pageValuesLimit = 2 ** 31 - 1;

const rewrite = "write the shard again, or take it out of input.path";

/**
 * Reads a footer and checks what it promises against itself and the file's size: rows, values, places.
 * @throws JobError SHARD_CORRUPT, DISK
 */
export async function readFooter(path: string): Promise<Footer> {
  try {
    await using file = await open(path);
    const { size } = await file.stat();
    const { bytes, pagesEnd } = await readTail(file, size, path);
    const footer = parse(bytes, { path, pagesEnd, sizeBytes: size });
    const fault = faultOf(footer.footer, footer.repeated);
    if (fault !== undefined) {
      throw corrupt(path, fault, `the footer is damaged, or its writer is faulty; ${rewrite}`);
    }
    return { ...footer.footer, rows: rowsIn(footer.footer) };
  } catch (error) {
    if (error instanceof JobError || errnoOf(error) === undefined) {
      throw error;
    }
    throw new JobError("DISK", `reading the footer of ${path}: ${errnoOf(error)}`, { cause: error });
  }
}

/** "row group 3, column `user.age`": as messages name the place of a chunk. */
export function placeOf(group: number, { path }: Pick<ColumnChunk, "path">): string {
  return `row group ${group}, column \`${path.join(".")}\``;
}

function corrupt(path: string, found: string, hint: string, cause?: unknown): JobError {
  return new JobError("SHARD_CORRUPT", `reading the footer of ${path}: ${found}`, { hint, cause });
}

async function readTail(
  file: FileHandle,
  size: number,
  path: string,
): Promise<{ bytes: Uint8Array; pagesEnd: number }> {
  if (size === 0) {
    throw corrupt(path, "the file is empty (0 bytes)", `its writer was stopped, perhaps; ${rewrite}`);
  }
  const tail = await readAt(file, Math.max(0, size - guessBytes), Math.min(size, guessBytes));
  const magic = size < leastBytes ? "" : latin1(tail.subarray(-magicBytes));
  if (magic === "PARE") {
    throw corrupt(path, "it is encrypted", "encrypted files are not supported; write the shard without encryption");
  }
  if (magic !== "PAR1") {
    const head = latin1(await readAt(file, 0, Math.min(size, magicBytes)));
    if (head === "PAR1" || head === "PARE") {
      const hint = `the file was cut off, or is still being written; ${rewrite}`;
      throw corrupt(path, `it begins as Parquet, but its end is missing (${size} bytes)`, hint);
    }
    const shown = JSON.stringify(head);
    throw corrupt(path, `it is not Parquet: it begins with ${shown}, not "PAR1"`, `only Parquet is read; ${rewrite}`);
  }
  const length = new DataView(tail.buffer, tail.byteOffset + tail.length - tailBytes).getUint32(0, true);
  const pagesEnd = size - tailBytes - length;
  if (pagesEnd < magicBytes) {
    const found = `it claims to have a footer of ${length} bytes, in a file of ${size}`;
    throw corrupt(path, found, `the file was damaged, or cut at its beginning; ${rewrite}`);
  }
  const within = tail.length - tailBytes - length;
  const bytes = within >= 0 ? tail.subarray(within, within + length) : await readAt(file, pagesEnd, length);
  return { bytes, pagesEnd };
}

async function readAt(file: FileHandle, position: number, length: number): Promise<Uint8Array> {
  const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(length), 0, length, position);
  return buffer.subarray(0, bytesRead);
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("latin1");
}

interface Parsed {
  readonly footer: Footer;
  /** Of each leaf: whether a row may have several of its values. */
  readonly repeated: readonly boolean[];
}

function parse(bytes: Uint8Array, { path, ...file }: { path: string; sizeBytes: number; pagesEnd: number }): Parsed {
  const cursor: Cursor = { bytes, at: 0 };
  const elements: SchemaElement[] = [];
  const rowGroups: RowGroup[] = [];
  let rows = -1;
  let encrypted = false;
  try {
    readStruct(cursor, (id, type) => {
      if (id === 2) {
        readList(cursor, type, (inner) => elements.push(readElement(cursor, inner)));
      } else if (id === 3) {
        rows = readInteger(cursor, type);
      } else if (id === 4) {
        readList(cursor, type, (inner) => rowGroups.push(readRowGroup(cursor, inner)));
      } else {
        encrypted ||= id === 8; // encryption_algorithm
        return false;
      }
      return true;
    });
  } catch (error) {
    const found = `it is damaged (byte ${cursor.at} of ${bytes.length}: ${messageOf(error)})`;
    throw corrupt(path, found, rewrite, error);
  }
  return { footer: { ...file, rows, rowGroups, encrypted }, repeated: repeatedLeaves(elements) };
}

interface SchemaElement {
  readonly children: number;
  readonly isLeaf: boolean;
  readonly repeated: boolean;
}

function readElement(cursor: Cursor, type: number): SchemaElement {
  let children = 0;
  let isLeaf = false;
  let repetition = 0;
  readInner(cursor, type, (id, inner) => {
    if (id === 3) {
      repetition = readInteger(cursor, inner);
    } else if (id === 5) {
      children = readInteger(cursor, inner);
    } else {
      isLeaf ||= id === 1;
      return false;
    }
    return true;
  });
  return { children, isLeaf, repeated: repetition === 2 };
}

/** The schema is a tree, written parents first; its first element is the table. */
function repeatedLeaves(elements: readonly SchemaElement[]): boolean[] {
  const leaves: boolean[] = [];
  /** Of the groups that are open: children to come, and whether they are repeated. */
  const groups: { left: number; repeated: boolean }[] = [];
  for (const { children, isLeaf, repeated } of elements.slice(1)) {
    while (groups.at(-1)?.left === 0) {
      groups.pop();
    }
    const parent = groups.at(-1);
    const all = repeated || parent?.repeated === true;
    if (parent !== undefined) {
      parent.left -= 1;
    }
    if (isLeaf) {
      leaves.push(all);
    } else {
      groups.push({ left: children, repeated: all });
    }
  }
  return leaves;
}

function readRowGroup(cursor: Cursor, type: number): RowGroup {
  const chunks: ColumnChunk[] = [];
  let rows = -1;
  readInner(cursor, type, (id, inner) => {
    if (id === 1) {
      readList(cursor, inner, (element) => chunks.push(readChunk(cursor, element)));
    } else if (id === 3) {
      rows = readInteger(cursor, inner);
    } else {
      return false;
    }
    return true;
  });
  return { rows, chunks };
}

function readChunk(cursor: Cursor, type: number): ColumnChunk {
  const path: string[] = [];
  const numbers = { values: -1, uncompressed: -1, compressed: -1, data: -1, dictionary: 0 };
  const names: Readonly<Record<number, keyof typeof numbers>> = {
    5: "values",
    6: "uncompressed",
    7: "compressed",
    9: "data",
    11: "dictionary",
  };
  let encrypted = false;
  readInner(cursor, type, (id, inner) => {
    encrypted ||= id === 8; // crypto_metadata
    if (id !== 3) {
      return false;
    }
    readInner(cursor, inner, (key, value) => {
      const name = names[key];
      if (name !== undefined) {
        numbers[name] = readInteger(cursor, value);
      } else if (key === 3) {
        readList(cursor, value, (element) => path.push(Buffer.from(readBinary(cursor, element)).toString()));
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
  return { path, start, compressedBytes: compressed, uncompressedBytes: uncompressed, values, encrypted };
}

function rowsIn({ rowGroups }: Footer): number {
  return rowGroups.reduce((total, group) => total + group.rows, 0);
}

/** What cannot be true of a footer, or undefined. */
function faultOf(footer: Footer, repeated: readonly boolean[]): string | undefined {
  const { rows, rowGroups, pagesEnd } = footer;
  const sum = rowsIn(footer);
  // parquet-rs 0.3.0 left the file's own count at 0.
  if (rows !== sum && rows !== 0) {
    return `it promises ${rows} rows, and its row groups ${sum}`;
  }
  for (const [group, { rows: groupRows, chunks }] of rowGroups.entries()) {
    if (groupRows < 0 || chunks.length !== repeated.length) {
      return `row group ${group} has ${groupRows} rows of ${chunks.length} columns, the schema ${repeated.length}`;
    }
    for (const [leaf, chunk] of chunks.entries()) {
      // The numbers of an encrypted column are where only its key opens them; of no rows nothing need be there.
      const fault =
        chunk.encrypted || groupRows === 0
          ? undefined
          : faultOfChunk(chunk, { groupRows, pagesEnd, repeated: repeated[leaf] === true });
      if (fault !== undefined) {
        return `${placeOf(group, chunk)} ${fault}`;
      }
    }
  }
  return undefined;
}

function faultOfChunk(
  { values, start, compressedBytes }: ColumnChunk,
  { groupRows, pagesEnd, repeated }: { groupRows: number; pagesEnd: number; repeated: boolean },
): string | undefined {
  if (values < groupRows || (values > groupRows && !repeated)) {
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
