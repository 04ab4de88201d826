import type { MemoryBudget } from "../../../util/memory-budget.js";
import type { Piece } from "../../../columnar/piece.js";
import type { Column, ColumnType } from "../../../columnar/types.js";
import { buffersOf, type HeldRanges, holdColumns, inBatch, type Lend, lendFor, openBody } from "../ipc/body.js";
import { corruptArrow, type ShardBytes } from "../ipc/bytes.js";
import { readArrowColumn } from "./columns.js";
import { longestText } from "../../../columnar/column-bytes.js";
import { nullColumn } from "../../../columnar/column-rows.js";
import { type Dictionaries, type DictionaryCache, encodedFields, openDictionaries } from "./dictionaries.js";
import type { ArrowIndex, IndexedBatch } from "../ipc/numbering.js";
import { type ArrowNode, type BufferPlace, layoutBatch } from "../ipc/layout.js";
import { type BatchHeader, readMessage, readPrefix } from "../ipc/messages.js";
import { tooLarge } from "../../too-large.js";
import { awaitedLater, settled } from "../../../util/promises.js";

export interface PiecesRequest {
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

/** How many bytes one read covers. */
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
  { rowStart, rowEnd, columns, known, limits = unlimited, lend }: PiecesRequest,
): AsyncGenerator<Piece> {
  const dictionaries = openDictionaries(bytes, index, known);
  for (const batch of batchesBetween(index, { rowStart, rowEnd })) {
    const from = Math.max(rowStart, batch.rowStart) - batch.rowStart;
    const to = Math.min(rowEnd, batch.rowStart + batch.rows) - batch.rowStart;
    const read = await inBatch(bytes.file.path, `record batch ${batch.number}`, () =>
      openBatch({ bytes, index, dictionaries, limits, lend }, batch, columns),
    );
    for (let start = from; start < to; start += read.stepRows) {
      const end = Math.min(to, start + read.stepRows);
      const values = await inBatch(bytes.file.path, `record batch ${batch.number}`, () => read.rows(start, end));
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
  readonly dictionaries: Dictionaries;
  readonly limits: BatchLimits;
  readonly lend: Lend | undefined;
}

async function openBatch(
  { bytes, index, dictionaries, limits, lend }: Shard,
  batch: IndexedBatch,
  columns: PiecesRequest["columns"],
): Promise<BatchRows> {
  const { header, nodes } = await readBatchLayout(bytes, index, batch);
  const wanted = nodes.filter(({ field }) => columns.has(field.name));
  const stored = wanted.filter(({ field }) => field.type.kind !== "null");
  const dictionary = await dictionaries.of(
    batch,
    stored.map(({ field }) => field),
  );
  const size = buffersOf(stored).reduce((sum, buffer) => sum + buffer.bytes, 0);
  const isViewed = stored.some(hasViews);
  const onWhole = createSizeCheck(`reading ${bytes.file.path}: record batch ${batch.number}`, stored, limits);
  if (isViewed) {
    buffersOf(stored).forEach((buffer) => onWhole(buffer, buffer.bytes));
  }
  // The values of views may be anywhere in the batch: each piece would read all of them again.
  const sizes = lend === undefined || isViewed ? ownSizes : lentSizes;
  const held: HeldRanges | undefined =
    size <= sizes.held ? await holdColumns(bytes, batch, { nodes: stored, lend: lendFor(header, lend) }) : undefined;
  const body = openBody(bytes, batch, { header, held, lend, onWhole });
  const coalescedBytes = Math.max(sizes.piece, sizes.column * stored.length);
  const perPiece = Math.floor((batch.rows * coalescedBytes) / Math.max(1, size));
  const least = isViewed ? pieceRows : Math.min(pieceRows, (limits.pieceBytes * batch.rows) / Math.max(1, size));
  const stepRows = held !== undefined && body.isDivisible ? batch.rows : Math.max(Math.floor(least), perPiece);
  const longest = longestEntry(stored, dictionary);
  return {
    stepRows: Math.max(1, Math.min(stepRows, Math.floor(limits.pieceBytes / longest))),
    async rows(from, to) {
      const values = new Map<string, Column>();
      for (const node of wanted) {
        const { name, type } = node.field;
        const planned = columns.get(name);
        const isNull = type.kind === "null" && planned !== undefined;
        values.set(
          name,
          isNull ? nullColumn(planned, to - from) : await readArrowColumn({ body, dictionary }, node, { from, to }),
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

/** Returns the bytes of the longest text in the dictionaries of columns; 1 without one. */
function longestEntry(nodes: readonly ArrowNode[], dictionary: (id: number) => Column): number {
  const columns = nodes
    .flatMap((node) => encodedFields(node.field))
    .map(({ dictionary: one }) => dictionary(one?.id ?? 0));
  return columns.reduce((most, column) => Math.max(most, knownLongest(column)), 1);
}

/** Batches share their dictionaries. */
const longestOf = new WeakMap<Column, number>();

function knownLongest(column: Column): number {
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
  const metadata = await bytes.read(offset, offset + metadataBytes);
  const { header, version } = readMessage(metadata.subarray(readPrefix(metadata).prefixBytes));
  if (header.kind !== "batch" || header.batch.rows !== rows) {
    throw corruptArrow(bytes.file.path, `the batch at byte ${offset} has not the ${rows} rows that it had`);
  }
  return { header: header.batch, nodes: layoutBatch(schema, header.batch, { bodyBytes, version }) };
}
