import { type FileHandle, open } from "node:fs/promises";
import {
  type Cursor,
  readI64,
  readInner,
  readList,
  readStruct,
  readVarint,
  writeInteger,
  writeListHead,
} from "../../base/thrift.js";
import { writeAll } from "../../base/write-all.js";

const magic = Buffer.from("PAR1");
const tailBytes = 8;
const copyBytes = 1024 * 1024;

/**
 * Writes a Parquet file with the row groups of others, in order, and the last one's metadata. All have the same columns
 * and come from the same writer. Pages are copied unchanged; only their offsets are written again.
 * https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
 */
export async function joinPieces(pieces: readonly string[], path: string): Promise<void> {
  await using target = await open(path, "w");
  await writeAll(target, magic, 0);
  let position = magic.length;
  const groups: Uint8Array[] = [];
  let rows = 0;
  let last: Footer | undefined;
  for (const piece of pieces) {
    await using file = await open(piece, "r");
    const { bytes, start } = await readTail(file, piece);
    last = parseFooter(bytes, { shift: position - magic.length, groups: groups.length });
    groups.push(...last.groups);
    rows += last.rows;
    position = await copyRange(file, { start: magic.length, end: start }, { target, position });
  }
  if (last === undefined) {
    throw new RangeError("a part is made of one piece at least");
  }
  const footer = Buffer.concat(withGroups(last, groups, rows));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(footer.length);
  await writeAll(target, Buffer.concat([footer, length, magic]), position);
}

async function readTail(file: FileHandle, path: string): Promise<{ bytes: Buffer; start: number }> {
  const { size } = await file.stat();
  const tail = Buffer.alloc(tailBytes);
  await file.read(tail, 0, tailBytes, size - tailBytes);
  const length = tail.readUInt32LE(0);
  const start = size - tailBytes - length;
  if (!tail.subarray(4).equals(magic) || start < magic.length) {
    throw new Error(`${path} is no Parquet file`);
  }
  const bytes = Buffer.alloc(length);
  await file.read(bytes, 0, length, start);
  return { bytes, start };
}

/** Returns the target's new end. */
async function copyRange(
  source: FileHandle,
  { start, end }: { readonly start: number; readonly end: number },
  { target, position }: { readonly target: FileHandle; readonly position: number },
): Promise<number> {
  const buffer = Buffer.alloc(Math.min(copyBytes, end - start));
  for (let at = start; at < end; ) {
    const { bytesRead } = await source.read(buffer, 0, Math.min(buffer.length, end - at), at);
    if (bytesRead === 0) {
      throw new Error("a piece of a part ends in the middle");
    }
    await writeAll(target, buffer.subarray(0, bytesRead), position + at - start);
    at += bytesRead;
  }
  return position + end - start;
}

interface Range {
  readonly start: number;
  readonly end: number;
}

interface Footer {
  readonly bytes: Uint8Array;
  readonly rows: number;
  readonly rowsAt: Range;
  /** The range of the list of row groups, and the type of its elements. */
  readonly groupsAt: Range & { readonly type: number };
  readonly groups: readonly Uint8Array[];
}

interface Edit extends Range {
  readonly bytes: Uint8Array;
}

/** A struct in the fields of a list of them. */
const structType = 12;
/** Field numbers of FileMetaData. */
const fileFields = { rows: 3, groups: 4 };
/** Field numbers of RowGroup; and those of ColumnChunk and ColumnMetaData that are offsets in the file. */
const groupFields = { columns: 1, place: 5, ordinal: 7 };
const chunkFields = { metadata: 3, places: [2, 4, 6] };
const metadataPlaces = new Set([9, 10, 11, 14]);

/** `shift`: how many bytes later the pages are in the joined file; `groups`: row groups before these. */
function parseFooter(bytes: Uint8Array, { shift, groups: before }: { shift: number; groups: number }): Footer {
  const cursor: Cursor = { bytes, at: 0 };
  const groups: Uint8Array[] = [];
  let rows = 0;
  let rowsAt: Range = { start: 0, end: 0 };
  let groupsAt = { start: 0, end: 0, type: structType };
  readStruct(cursor, (id, type) => {
    const start = cursor.at;
    if (id === fileFields.rows) {
      rows = readI64(cursor, type);
      rowsAt = { start, end: cursor.at };
    } else if (id === fileFields.groups) {
      readList(cursor, type, (inner) => {
        groups.push(readGroup(cursor, inner, { shift, ordinal: before + groups.length }));
      });
      groupsAt = { start, end: cursor.at, type: structType };
    } else {
      return false;
    }
    return true;
  });
  return { bytes, rows, rowsAt, groupsAt, groups };
}

function readGroup(cursor: Cursor, type: number, { shift, ordinal }: { shift: number; ordinal: number }): Uint8Array {
  const start = cursor.at;
  const edits: Edit[] = [];
  const move = (inner: number): true => {
    const at = cursor.at;
    const place = readI64(cursor, inner);
    if (place > 0) {
      edits.push({ start: at, end: cursor.at, bytes: writeInteger(place + shift) }); // 0: not stated
    }
    return true;
  };
  readInner(cursor, type, (id, inner) => {
    if (id === groupFields.columns) {
      readList(cursor, inner, (element) => {
        readInner(cursor, element, (key, value) => {
          if (key === chunkFields.metadata) {
            readInner(cursor, value, (place, number) => metadataPlaces.has(place) && move(number));
            return true;
          }
          return chunkFields.places.includes(key) && move(value);
        });
      });
      return true;
    }
    if (id === groupFields.ordinal) {
      const at = cursor.at;
      readVarint(cursor);
      edits.push({ start: at, end: cursor.at, bytes: writeInteger(ordinal) });
      return true;
    }
    return id === groupFields.place && move(inner);
  });
  return Buffer.concat(edited(cursor.bytes, { start, end: cursor.at }, edits));
}

function withGroups(
  { bytes, rowsAt, groupsAt }: Footer,
  groups: readonly Uint8Array[],
  rows: number,
): readonly Uint8Array[] {
  const list = Buffer.concat([writeListHead(groupsAt.type, groups.length), ...groups]);
  return edited(bytes, { start: 0, end: bytes.length }, [
    { ...rowsAt, bytes: writeInteger(rows) },
    { ...groupsAt, bytes: list },
  ]);
}

function edited(bytes: Uint8Array, { start, end }: Range, edits: readonly Edit[]): Uint8Array[] {
  const parts: Uint8Array[] = [];
  let at = start;
  for (const edit of edits) {
    parts.push(bytes.subarray(at, edit.start), edit.bytes);
    at = edit.end;
  }
  parts.push(bytes.subarray(at, end));
  return parts;
}
