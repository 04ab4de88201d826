import { longestText, createColumnBuilder, nullColumn, rowCountOf } from "../../columns/columns.js";
import type { Piece, Column, ColumnType } from "../../columns/types.js";
import type { MemoryBudget } from "../../base/memory-budget.js";
import { awaitedLater, settled } from "../../base/promises.js";
import { tooLarge } from "../faults.js";
import { type Lend, openBody, type BatchReader, readArrowColumn, requiredType } from "./columns.js";
import {
  corruptArrow,
  inPlace,
  type ShardBytes,
  type ArrowIndex,
  type DictionaryCache,
  type IndexedBatch,
  type IndexedDictionary,
} from "./shards.js";
import {
  type ArrowField,
  type ArrowNode,
  type BatchHeader,
  type BufferPlace,
  buffersOf,
  layoutBatch,
  readArrowMessage,
  showField,
  type Block,
} from "./metadata.js";
import type { ByteRange, SliceWindow } from "../format.js";

interface PiecesRequest {
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Columns of the file, by name; the type is that of a column that has NULLs only. */
  readonly columns: ReadonlyMap<string, ColumnType | undefined>;
  /** The dictionaries that were read for earlier rows. */
  readonly known?: DictionaryCache | undefined;
  /** Default: no limits. */
  readonly limits?: BatchLimits | undefined;
  /** Memory for values, each until the next piece is asked for; undefined: they are in memory of their own. */
  readonly lend?: Lend | undefined;
}

/** Bounds what is held of a record batch. Plain JSON. */
export interface BatchLimits {
  /** The memory budget, for messages. */
  readonly bytes: number;
  /** Bytes that must be held as a whole: compressed buffers, unpacked, and views. */
  readonly wholeBytes: number;
  /** Bytes of the rows that are read at once. */
  readonly pieceBytes: number;
}

/** Returns the limits of each of so many readers. */
export function batchLimits({ bytes, openPagesBytes, pieceBytes }: MemoryBudget, readers = 1): BatchLimits {
  return { bytes, wholeBytes: Math.floor(openPagesBytes / readers), pieceBytes: Math.floor(pieceBytes / readers) };
}

const unlimited: BatchLimits = {
  bytes: Number.POSITIVE_INFINITY,
  wholeBytes: Number.POSITIVE_INFINITY,
  pieceBytes: Number.POSITIVE_INFINITY,
};

interface ReadSizes {
  /** Columns of a record batch that together take at most this are read as a whole. */
  readonly held: number;
  /** The size of the pieces in which the columns of a larger record batch are read. */
  readonly piece: number;
  /** The least size of such a piece for each of its columns. */
  readonly column: number;
}

const ownSizes: ReadSizes = { held: 16 * 1024 * 1024, piece: 8 * 1024 * 1024, column: 0 };
/**
 * A piece has the rows of several batches of the model, because each piece has a fixed cost. A read below 64 KiB costs
 * more than its bytes.
 */
const lentSizes: ReadSizes = { held: 512 * 1024, piece: 4 * 1024 * 1024, column: 64 * 1024 };
const pieceRows = 1024;

/** The rows of a slice, in order; one piece is read ahead. @throws JobError SHARD_CORRUPT */
export async function* readPieces(bytes: ShardBytes, index: ArrowIndex, request: PiecesRequest): AsyncGenerator<Piece> {
  const pieces = cutPieces(bytes, index, request);
  let next = pieces.next();
  try {
    for (;;) {
      const piece = await next;
      if (piece.done === true) {
        return;
      }
      next = awaitedLater(pieces.next());
      yield piece.value;
    }
  } finally {
    await settled(next);
    await pieces.return(undefined);
  }
}

/** The rows of a slice, in order, each piece when it is asked for. @throws JobError SHARD_CORRUPT */
export async function* cutPieces(
  bytes: ShardBytes,
  index: ArrowIndex,
  { rowStart, rowEnd, columns, known = new Map(), limits = unlimited, lend }: PiecesRequest,
): AsyncGenerator<Piece> {
  for (const batch of batchesBetween(index, { rowStart, rowEnd })) {
    const from = Math.max(rowStart, batch.rowStart) - batch.rowStart;
    const to = Math.min(rowEnd, batch.rowStart + batch.rows) - batch.rowStart;
    const place = `record batch ${batch.number}`;
    const opened = await inPlace(bytes.file.path, place, () =>
      openBatch({ bytes, index, known, limits, lend }, batch, columns),
    );
    for (let start = from; start < to; start += opened.stepRows) {
      const end = Math.min(to, start + opened.stepRows);
      const values = await inPlace(bytes.file.path, place, () => opened.rows(start, end));
      yield { rowStart: batch.rowStart + start, rowEnd: batch.rowStart + end, columns: values };
    }
  }
}

/** Batches with rows of [rowStart, rowEnd). */
export function* batchesBetween(
  { batches }: Pick<ArrowIndex, "batches">,
  { rowStart, rowEnd }: { rowStart: number; rowEnd: number },
): Generator<IndexedBatch> {
  for (const batch of batches) {
    if (batch.rows > 0 && batch.rowStart < rowEnd && batch.rowStart + batch.rows > rowStart) {
      yield batch;
    }
  }
}

interface BatchRows {
  /** Rows that are read at once, at most. */
  readonly stepRows: number;
  rows(from: number, to: number): Promise<ReadonlyMap<string, Column>>;
}

interface Shard {
  readonly bytes: ShardBytes;
  readonly index: ArrowIndex;
  readonly known: DictionaryCache;
  readonly limits: BatchLimits;
  readonly lend: Lend | undefined;
}

async function openBatch(
  { bytes, index, known, limits, lend }: Shard,
  batch: IndexedBatch,
  columns: PiecesRequest["columns"],
): Promise<BatchRows> {
  const { header, nodes } = await readBatchLayout(bytes, index, batch);
  const { compression } = header;
  const wanted = nodes.filter(({ field }) => columns.has(field.name));
  const stored = wanted.filter(({ field }) => field.type.kind !== "null");
  const encoded = stored.flatMap(({ field }) => encodedFields(field));
  const dictionary = await readDictionaries({ bytes, index, known }, batch, encoded);
  const size = buffersOf(stored).reduce((sum, buffer) => sum + buffer.bytes, 0);
  const isViewed = stored.some(hasViews);
  const onWhole = createSizeCheck(`reading ${bytes.file.path}: record batch ${batch.number}`, stored, limits);
  if (isViewed) {
    buffersOf(stored).forEach((buffer) => onWhole(buffer, buffer.bytes));
  }

  // The values of views may be anywhere in the batch: each piece would read all of them again.
  const sizes = lend === undefined || isViewed ? ownSizes : lentSizes;
  const isHeld = size <= sizes.held;
  const coalescedBytes = Math.max(sizes.piece, sizes.column * stored.length);
  const perPiece = Math.floor((batch.rows * coalescedBytes) / Math.max(1, size));
  const least = isViewed ? pieceRows : Math.min(pieceRows, (limits.pieceBytes * batch.rows) / Math.max(1, size));
  const wantedRows = isHeld && compression === "none" ? batch.rows : Math.max(Math.floor(least), perPiece);
  const longest = encoded.reduce((most, field) => Math.max(most, longestEntry(dictionary(field.dictionary.id))), 1);
  const stepRows = Math.max(1, Math.min(wantedRows, Math.floor(limits.pieceBytes / longest)));
  const body = await openBody(bytes, batch, {
    compression,
    hold: isHeld ? stored : [],
    // What is lent is gone when the next piece is read, and all pieces need what is held.
    lend: isHeld && stepRows < batch.rows ? undefined : lend,
    onWhole,
  });
  return {
    stepRows,
    async rows(from, to) {
      const values = new Map<string, Column>();
      for (const node of wanted) {
        const { name, type } = node.field;
        const planned = columns.get(name);
        const isNull = type.kind === "null" && planned !== undefined;
        values.set(
          name,
          isNull ? nullColumn(planned, to - from) : await readArrowColumn({ body, dictionary }, node, from, to),
        );
      }
      return values;
    },
  };
}

/** Returns a check of the bytes that columns hold as a whole, all together. The check throws JobError TOO_LARGE. */
function createSizeCheck(
  place: string,
  nodes: readonly ArrowNode[],
  limits: BatchLimits,
): (buffer: BufferPlace, bytes: number) => void {
  const sizes = new Map<BufferPlace, number>();
  let total = 0;
  return (buffer, bytes) => {
    const before = sizes.get(buffer) ?? 0;
    const now = Math.max(before, bytes);
    sizes.set(buffer, now);
    total += now - before;
    if (total > limits.wholeBytes) {
      const column = nodes.find((node) => buffersOf([node]).includes(buffer))?.field.name ?? "";
      throw tooLarge(place, limits, {
        sizeBytes: total,
        limitBytes: limits.wholeBytes,
        what: `the data up to column \`${column}\``,
        remedy: "write smaller record batches",
      });
    }
  };
}

/** Batches share their dictionaries. */
const longestOf = new WeakMap<Column, number>();

function longestEntry(column: Column): number {
  const longest = longestOf.get(column) ?? (column.kind === "bytes" ? longestText(column.offsets) : 0);
  longestOf.set(column, longest);
  return longest;
}

function hasViews({ field, children }: ArrowNode): boolean {
  return field.type.kind === "view" || field.type.kind === "listView" || children.some(hasViews);
}

/** Reads what a batch says of itself once more. @throws RangeError, JobError when it is not what was indexed */
export async function readBatchLayout(
  bytes: ShardBytes,
  { schema }: ArrowIndex,
  { offset, metadataBytes, bodyBytes, rows }: IndexedBatch,
): Promise<{ header: BatchHeader; nodes: ArrowNode[] }> {
  const { header, version } = readArrowMessage(await bytes.read(offset, offset + metadataBytes));
  if (header.kind !== "batch" || header.batch.rows !== rows) {
    throw corruptArrow(bytes.file.path, `the batch at byte ${offset} has not the ${rows} rows that it had`);
  }
  return { header: header.batch, nodes: layoutBatch(schema.fields, header.batch, { bodyBytes, version }) };
}

type EncodedField = ArrowField & { readonly dictionary: NonNullable<ArrowField["dictionary"]> };

/** Fields with dictionaries, those inside others first. */
export function encodedFields(field: ArrowField): EncodedField[] {
  return [
    ...field.children.flatMap(encodedFields),
    ...(field.dictionary === undefined ? [] : [{ ...field, dictionary: field.dictionary }]),
  ];
}

/** In a stream the last whole one before it and its deltas, in a file the only whole one and its deltas, anywhere. */
function dictionaryBlocks(
  { dictionaries, kind }: ArrowIndex,
  batch: IndexedBatch,
  id: number,
): readonly IndexedDictionary[] {
  const all = dictionaries.slice(0, batch.dictionaries).filter((block) => block.id === id);
  return kind === "file"
    ? all.toSorted((one, other) => Number(one.isDelta) - Number(other.isDelta))
    : all.slice(
        Math.max(
          0,
          all.findLastIndex(({ isDelta }) => !isDelta),
        ),
      );
}

async function readDictionaries(
  { bytes, index, known }: Pick<Shard, "bytes" | "index" | "known">,
  batch: IndexedBatch,
  fields: readonly EncodedField[],
): Promise<BatchReader["dictionary"]> {
  const { path } = bytes.file;
  const columns = new Map<number, Column>();
  const dictionary = (id: number): Column => {
    const column = columns.get(id);
    if (column === undefined) {
      throw new RangeError(`there is no dictionary ${id}`);
    }
    return column;
  };
  for (const field of fields) {
    const { id } = field.dictionary;
    const blocks = dictionaryBlocks(index, batch, id);
    if (blocks.length === 0) {
      throw corruptArrow(path, `column ${field.name} has no dictionary: none of number ${id} comes before its rows`);
    }
    const values = { ...field, dictionary: undefined };
    const key = `${id} ${showField(values)}`;
    const before = known.get(key);
    const isContinued = before?.blocks.every((block, place) => block === blocks[place]) === true;
    const parts = isContinued ? [before.column] : [];
    for (const block of blocks.slice(isContinued ? before.blocks.length : 0)) {
      const read = (): Promise<Column> => readDictionary(bytes, block, values, dictionary);
      parts.push(await inPlace(path, `dictionary ${id}`, read));
    }
    const column = joined(values, parts);
    known.set(key, { blocks, column });
    columns.set(id, column);
  }
  return dictionary;
}

async function readDictionary(
  bytes: ShardBytes,
  block: IndexedDictionary,
  values: ArrowField,
  dictionary: BatchReader["dictionary"],
): Promise<Column> {
  const { offset, metadataBytes, bodyBytes } = block;
  const { header, version } = readArrowMessage(await bytes.read(offset, offset + metadataBytes));
  if (header.kind !== "dictionary") {
    throw new RangeError("it is no longer a dictionary");
  }
  const [node] = layoutBatch([values], header.batch, { bodyBytes, version });
  if (node === undefined) {
    throw new RangeError("it has no values");
  }
  const body = await openBody(bytes, block, { compression: header.batch.compression });
  return await readArrowColumn({ body, dictionary }, node, 0, node.length);
}

function joined(values: ArrowField, columns: readonly Column[]): Column {
  const [first, ...others] = columns;
  if (first !== undefined && others.length === 0) {
    return first;
  }
  const rowCount = columns.reduce((sum, column) => sum + rowCountOf(column), 0);
  const builder = createColumnBuilder(requiredType(values), rowCount);
  for (const column of columns) {
    builder.append(column, 0, rowCountOf(column));
  }
  return builder.finish();
}

interface Slice {
  readonly rowStart: number;
  readonly rowEnd: number;
  readonly columns: ReadonlySet<string>;
}

/** Record batches are not divided: a window is one of them, or neighbouring ones. */
export async function arrowWindows(
  bytes: ShardBytes,
  index: ArrowIndex,
  { windowBytes, ...slice }: Slice & { readonly windowBytes: number },
): Promise<SliceWindow[]> {
  const windows: { rowStart: number; rowEnd: number; batches: ByteRange[]; dictionaries: Set<Block>; size: number }[] =
    [];
  await bytes.file.remote?.fetch(Array.from(batchesBetween(index, slice), metadataOf), { keep: true });
  for (const batch of batchesBetween(index, slice)) {
    const { ranges, dictionaries } = await rangesOfBatch(bytes, index, batch, slice.columns);
    const size = ranges.reduce((sum, { start, end }) => sum + end - start, 0);
    const rowEnd = Math.min(slice.rowEnd, batch.rowStart + batch.rows);
    const last = windows.at(-1);
    if (last !== undefined && last.size + size <= windowBytes) {
      last.rowEnd = rowEnd;
      last.size += size;
      last.batches.push(...ranges);
      for (const block of dictionaries) {
        last.dictionaries.add(block);
      }
    } else {
      const rowStart = Math.max(slice.rowStart, batch.rowStart);
      windows.push({ rowStart, rowEnd, batches: ranges, dictionaries: new Set(dictionaries), size });
    }
  }
  return windows.map(({ rowStart, rowEnd, batches, dictionaries }) => ({
    rowStart,
    rowEnd,
    ranges: [...Array.from(dictionaries, wholeBlock), ...batches],
  }));
}

async function rangesOfBatch(
  bytes: ShardBytes,
  index: ArrowIndex,
  batch: IndexedBatch,
  columns: ReadonlySet<string>,
): Promise<{ ranges: ByteRange[]; dictionaries: readonly Block[] }> {
  const { nodes } = await readBatchLayout(bytes, index, batch);
  const wanted = nodes.filter(({ field }) => columns.has(field.name));
  const bodyStart = batch.offset + batch.metadataBytes;
  const buffers = buffersOf(wanted).flatMap(({ offset, bytes: length }) =>
    length === 0 ? [] : [{ start: bodyStart + offset, end: bodyStart + offset + length }],
  );
  const ids = new Set(wanted.flatMap(({ field }) => encodedFields(field).map(({ dictionary }) => dictionary.id)));
  return {
    ranges: [metadataOf(batch), ...buffers],
    dictionaries: [...ids].flatMap((id) => dictionaryBlocks(index, batch, id)),
  };
}

/** Fetches what reading these rows takes, where the file has not all. */
export async function fetchArrowRows(bytes: ShardBytes, index: ArrowIndex, slice: Slice): Promise<void> {
  const { remote } = bytes.file;
  if (remote !== undefined) {
    const windows = await arrowWindows(bytes, index, { ...slice, windowBytes: Number.POSITIVE_INFINITY });
    await remote.fetch(windows.flatMap(({ ranges }) => ranges));
  }
}

function metadataOf({ offset, metadataBytes }: Block): ByteRange {
  return { start: offset, end: offset + metadataBytes };
}

function wholeBlock({ offset, metadataBytes, bodyBytes }: Block): ByteRange {
  return { start: offset, end: offset + metadataBytes + bodyBytes };
}
