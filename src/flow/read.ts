import { type Projection, valuesPerRow } from "../models/binding/contract.js";
import type { ReadBatch } from "./pack/packer.js";
import { rowsRead } from "./pack/select-rows.js";
import type { RowRange } from "../columns/types.js";
import type { ByteRange, Decoder, SliceRequest, SliceWindow } from "../formats/format.js";
import type { SliceReader, ReadTurn } from "./workers/slice-reader.js";
import type { SpanRange, Spans } from "../run/plan/spans.js";
import { type StageTimer, untimed } from "../report/stage-times.js";
import type { OpenShard, Source } from "../sources/source.js";
import { awaitedLater, createCondition, createEvent, ifOpened, settled } from "../base/promises.js";
import type { Slice } from "../run/plan/plan.js";

/*
 * Rows on their way: a range of rows of the run is cut into slices of shards; slices that are read together are a window; a
 * format cuts a slice into units, which threads read one at a time and give as pieces (of columns); pieces are packed into
 * batches for the model. Rows that are committed together are a span, whose file is a part; one that is too large for memory
 * is written piece by piece.
 */

/** Decoded rows of the run. */
export interface DecodedRows {
  /** The run's number of the batch's first row. */
  readonly rowStart: number;
  /** Holds until the next piece is asked for. */
  readonly batch: ReadBatch;
  /** The shards that one query reads; the batch comes from some of them. */
  readonly shards: readonly OpenShard[];
}

/** Sorts rows, and joins neighbours to ranges. */
export function rangesOfRows(rows: readonly number[]): RowRange[] {
  return joined(rows.toSorted((left, right) => left - right).map((row) => ({ rowStart: row, rowEnd: row + 1 })));
}

/** Neighbouring spans of a share that are not committed, as ranges of rows: one query reads each, across span ends. */
export function pendingRanges(
  spans: Spans,
  committed: Pick<ReadonlyMap<number, unknown>, "has">,
  { from, to }: SpanRange,
): RowRange[] {
  function* pending(): Generator<RowRange> {
    for (let index = from; index < to; index += 1) {
      if (!committed.has(index)) {
        yield spans.at(index);
      }
    }
  }
  return joined(pending());
}

function joined(sorted: Iterable<RowRange>): RowRange[] {
  const ranges: { readonly rowStart: number; rowEnd: number }[] = [];
  for (const { rowStart, rowEnd } of sorted) {
    const last = ranges.at(-1);
    if (last?.rowEnd === rowStart) {
      last.rowEnd = rowEnd;
    } else {
      ranges.push({ rowStart, rowEnd });
    }
  }
  return ranges;
}

export interface ReadRangesOptions {
  readonly source: Source;
  readonly decoder: Decoder;
  readonly spans: Spans;
  readonly projection: Projection;
  /** Whether all shards have the same columns, of the same types. */
  readonly uniform: boolean;
  readonly reader: Pick<SliceReader, "read">;
  /** Windows that are begun before their turn: as many as there are workers that score, so that each has something to do. */
  readonly windowsAhead: number;
  /** Measures how long the stages `read` and `decode` keep the caller waiting. */
  readonly stages?: StageTimer;
}

/**
 * Yields the rows of `ranges`, in order. While one window is read, the bytes of the next ones are fetched, and workers may
 * decode them: as many windows as there are threads that score, so that each has work.
 */
export async function* readRanges(tools: ReadRangesOptions, ranges: readonly RowRange[]): AsyncGenerator<DecodedRows> {
  const nearRows = Math.ceil(nearValues / valuesPerRow(tools.projection));
  const coalesced = { uniform: tools.uniform, shards: tools.source.readAhead.coalescedFiles, rows: nearRows };
  const windows = windowsAhead(tools, coalesceSlices(slicesOf(tools, ranges), coalesced));
  const { stages = untimed } = tools;
  const rows = ranges.reduce((sum, { rowStart, rowEnd }) => sum + rowEnd - rowStart, 0);
  const ahead = openAhead(tools, windows, rows);
  let sinceMs = stages.nowMs();
  let current = await ahead.take();
  try {
    while (current !== undefined) {
      const { first, pieces, rowEnd, there } = current;
      current.isNear();
      await there;
      sinceMs = stages.took("read", sinceMs);
      ahead.fill();
      let result = await first;
      stages.took("decode", sinceMs);
      while (result.done !== true) {
        const { rowStart, batch } = result.value;
        if (rowEnd - (rowStart + rowsRead(batch)) <= nearRows) {
          ahead.isNear();
        }
        yield result.value;
        sinceMs = stages.nowMs();
        result = await pieces.next();
        stages.took("decode", sinceMs);
      }
      current = undefined;
      sinceMs = stages.nowMs();
      current = await ahead.take();
    }
  } finally {
    await current?.close();
    await ahead.close();
  }
}

interface Ahead {
  take(): Promise<OpenWindow | undefined>;
  /** Begins as many as there are threads that score. */
  fill(): void;
  /** Tells the next window that nearly all rows before it were read. */
  isNear(): void;
  close(): Promise<void>;
}

/** @param rows of all windows */
function openAhead(tools: ReadRangesOptions, windows: AsyncGenerator<ReadyWindow>, rows: number): Ahead {
  let rowsLeft = rows;
  const upcoming: Promise<OpenWindow | undefined>[] = [];
  let isClosed = false;
  let queued: Promise<unknown> = Promise.resolve();
  const open = async (): Promise<OpenWindow | undefined> => {
    const window = await windows.next();
    if (window.done === true) {
      return undefined;
    }
    if (isClosed) {
      await window.value.done();
      return undefined;
    }
    const { rowStart, rowEnd } = window.value;
    const opened = startWindow(tools, window.value, { before: queued, rowsLeft });
    rowsLeft -= rowEnd - rowStart;
    ({ queued } = opened);
    return opened;
  };
  return {
    take: () => upcoming.shift() ?? open(),
    fill() {
      while (upcoming.length < tools.windowsAhead) {
        upcoming.push(awaitedLater(open()));
      }
    },
    isNear() {
      void ifOpened(upcoming[0]).then((window) => window?.isNear());
    },
    async close() {
      isClosed = true;
      const closing = upcoming.map(async (next) => await (await ifOpened(next))?.close());
      await Promise.all(closing);
      await windows.return(undefined);
    },
  };
}

/**
 * Values that are left of a window when the next one is near: by then DuckDB has read the whole window, and no longer
 * holds a row group of it, which is 100 MB with 200 columns; and there is work until the next one comes.
 */
const nearValues = 2 ** 21;

function* slicesOf({ spans }: ReadRangesOptions, ranges: readonly RowRange[]): Generator<SliceOfRun> {
  for (const range of ranges) {
    let rowStart = range.rowStart;
    for (const slice of spans.slices(range)) {
      yield { slice, rowStart };
      rowStart += slice.rowEnd - slice.rowStart;
    }
  }
}

interface OpenWindow {
  /** The run's number of the row after its last. */
  readonly rowEnd: number;
  readonly there: Promise<void>;
  /** The first piece, whose decoding has begun. */
  readonly first: Promise<IteratorResult<DecodedRows>>;
  readonly pieces: AsyncGenerator<DecodedRows>;
  /** Settled when the threads that decode know of all its rows, or will not. Never rejects. */
  readonly queued: Promise<unknown>;
  isNear(): void;
  close(): Promise<void>;
}

interface Place {
  /** `queued` of the window before. */
  readonly before: Promise<unknown>;
  /** Rows of the run that are left, from the window's first row on. */
  readonly rowsLeft: number;
}

function startWindow(tools: ReadRangesOptions, window: ReadyWindow, { before, rowsLeft }: Place): OpenWindow {
  const [near, unwanted, ended] = [createEvent(), createEvent(), createEvent()];
  const dropped = unwanted.happened.then(() => {
    throw new Error("the window is no longer needed");
  });
  const whileWanted = <T>(promise: Promise<T>): Promise<T> => awaitedLater(Promise.race([promise, dropped]));
  const turn = { queued: whileWanted(before), near: whileWanted(near.happened) };
  const pieces = readWindow(tools, window, { there: whileWanted(window.there), turn, rowsLeft, ended: ended.set });
  const first = awaitedLater(pieces.next());
  return {
    rowEnd: window.rowEnd,
    there: window.there,
    first,
    pieces,
    // Of several slices, each is begun after the one before it was read.
    queued: window.requests.length === 1 ? settled(first) : ended.happened,
    isNear: near.set,
    async close() {
      unwanted.set();
      await settled(first);
      await pieces.return(undefined);
    },
  };
}

interface WindowPlace extends Pick<Place, "rowsLeft"> {
  readonly there: Promise<void>;
  readonly turn: ReadTurn;
  readonly ended: () => void;
}

async function* readWindow(
  { reader }: ReadRangesOptions,
  window: ReadyWindow,
  { there, turn, rowsLeft, ended }: WindowPlace,
): AsyncGenerator<DecodedRows> {
  try {
    let { rowStart } = window;
    const { shards } = window;
    await there;
    for await (const batch of reader.read(window.requests, rowsLeft, turn)) {
      yield { rowStart, batch, shards };
      rowStart += rowsRead(batch);
    }
    if (rowStart !== window.rowEnd) {
      throw new Error(`${window.rowEnd - rowStart} rows before row ${window.rowEnd} of the run did not come`);
    }
    await checkAll(shards);
  } finally {
    ended();
    await window.done();
  }
}

/** What was read must be what was pinned. @throws JobError INPUT_CHANGED */
export async function checkAll(shards: readonly OpenShard[]): Promise<void> {
  await Promise.all(shards.map((shard) => shard.check()));
}

/** A slice, and the run's number of its first row. */
export interface SliceOfRun {
  readonly slice: Slice;
  readonly rowStart: number;
}

/** Rows of the run that one query reads: of one shard, or of several small ones. */
export interface ReadyWindow extends RowRange {
  readonly requests: readonly SliceRequest[];
  readonly shards: readonly OpenShard[];
  /** Resolves when the bytes are fetched; rejects when they cannot be. */
  readonly there: Promise<void>;
  /** Closes the files and frees their space. */
  done(): Promise<void>;
}

interface WindowOptions {
  readonly source: Source;
  readonly decoder: Decoder;
  readonly projection: Projection;
}

/**
 * The windows of some groups of slices, in order. Those that come next are opened, and their bytes fetched, while others
 * are read: as far ahead as the source says. On a disk a group is one window.
 */
export async function* windowsAhead(
  tools: WindowOptions,
  groups: Iterable<readonly SliceOfRun[]>,
): AsyncGenerator<ReadyWindow> {
  const { files, bytes: limitBytes } = tools.source.readAhead;
  const iterator = groups[Symbol.iterator]();
  const change = createCondition();
  const cutting: Promise<CutWindow[]>[] = [];
  const cut: CutWindow[] = [];
  /** Windows that are opened and not asked for yet. */
  const ready: Promise<ReadyWindow>[] = [];
  /** Bytes of windows that are opened and not done. */
  let heldBytes = 0;
  let [isClosed, hasEnded] = [false, false];

  const nextCut = async (): Promise<CutWindow | undefined> => {
    while (cut.length === 0) {
      while (cutting.length < files) {
        const group = iterator.next();
        if (group.done === true) {
          break;
        }
        cutting.push(awaitedLater(cutGroup(tools, group.value)));
      }
      const first = cutting.shift();
      if (first === undefined) {
        return undefined;
      }
      cut.push(...(await first));
    }
    return cut.shift();
  };
  /** Opens window after window, within the limits of the source. */
  const fill = async (): Promise<void> => {
    try {
      for (let window = await nextCut(); window !== undefined; window = await nextCut()) {
        const { bytes, opened } = window;
        const mustWait = (): boolean =>
          !isClosed && (ready.length >= files || (heldBytes > 0 && heldBytes + bytes > limitBytes));
        while (mustWait()) {
          await change.wait();
        }
        if (isClosed) {
          await closeAll(opened);
          return;
        }
        heldBytes += bytes;
        const onDone = (): void => {
          heldBytes -= bytes;
          change.notify();
        };
        ready.push(awaitedLater(openWindow(tools, window, onDone)));
        change.notify();
      }
    } finally {
      for (const windows of await Promise.allSettled(cutting)) {
        cut.push(...(windows.status === "fulfilled" ? windows.value : []));
      }
      for (const { opened } of cut) {
        await closeAll(opened);
      }
      hasEnded = true;
      change.notify();
    }
  };

  const filling = awaitedLater(fill());
  try {
    for (;;) {
      const next = ready.shift();
      if (next !== undefined) {
        change.notify();
        yield await next;
      } else if (hasEnded) {
        await filling;
        return;
      } else {
        await change.wait();
      }
    }
  } finally {
    isClosed = true;
    change.notify();
    await settled(filling);
    for (const window of await Promise.allSettled(ready)) {
      await (window.status === "fulfilled" ? window.value.done() : undefined);
    }
  }
}

/** A window that is not opened yet. The first one of a slice keeps the file that the slice was cut with. */
interface CutWindow {
  /** Several whole slices, or a part of one. */
  readonly slices: readonly SliceOfRun[];
  readonly ranges: readonly ByteRange[];
  readonly bytes: number;
  /** The shards of all slices, where they are open already; else empty. */
  readonly opened: readonly OpenShard[];
}

/** Rows of a window are numbered on from its first. */
function rowAfter(row: number, { slice, rowStart }: SliceOfRun): number {
  if (rowStart !== row) {
    throw new Error(`a window at row ${row} of the run continues with row ${rowStart}`);
  }
  return row + slice.rowEnd - slice.rowStart;
}

/** Where one of its shards cannot be opened, each is a window of its own, so that the shards before it are read. */
async function cutGroup(tools: WindowOptions, slices: readonly SliceOfRun[]): Promise<CutWindow[]> {
  const [only, ...others] = slices;
  if (only !== undefined && others.length === 0) {
    return await cutSlice(tools, only);
  }
  const opening = await Promise.allSettled(slices.map(({ slice }) => tools.source.open(slice.shard)));
  const opened = opening.flatMap((shard) => (shard.status === "fulfilled" ? [shard.value] : []));
  if (opened.length === slices.length) {
    return [{ slices, ranges: [], bytes: 0, opened }];
  }
  await closeAll(opened);
  return slices.map((slice) => ({ slices: [slice], ranges: [], bytes: 0, opened: [] }));
}

async function closeAll(opened: readonly OpenShard[]): Promise<void> {
  for (const shard of opened) {
    await shard[Symbol.asyncDispose]();
  }
}

async function cutSlice(tools: WindowOptions, slice: SliceOfRun): Promise<CutWindow[]> {
  const { source, decoder } = tools;
  const opened = await source.open(slice.slice.shard);
  try {
    if (opened.remote === undefined) {
      return [{ slices: [slice], ranges: [], bytes: 0, opened: [opened] }];
    }
    const windows = await decoder.windows(requestOf(tools, slice, opened), source.readAhead.windowBytes);
    if (windows.length === 0) {
      await opened[Symbol.asyncDispose]();
    }
    return windows.map((window, index) => ({
      slices: [partOf(slice, window)],
      ranges: window.ranges,
      bytes: window.ranges.reduce((sum, { start, end }) => sum + end - start, 0),
      opened: index === 0 ? [opened] : [],
    }));
  } catch (error) {
    await opened[Symbol.asyncDispose]();
    throw error;
  }
}

function partOf({ slice, rowStart: ofRun }: SliceOfRun, { rowStart, rowEnd }: SliceWindow): SliceOfRun {
  return { slice: { shard: slice.shard, rowStart, rowEnd }, rowStart: ofRun + rowStart - slice.rowStart };
}

function requestOf(
  { projection }: WindowOptions,
  { slice, rowStart: ofRun }: SliceOfRun,
  file: OpenShard,
): SliceRequest {
  const { rowStart, rowEnd } = slice;
  return { file, rowStart, rowEnd, projection, partitions: file.partitions, firstRow: ofRun - rowStart };
}

async function fetchAll(shards: readonly OpenShard[], ranges: readonly ByteRange[]): Promise<void> {
  for (const { remote } of shards) {
    await remote?.fetch(ranges);
  }
}

async function openWindow(tools: WindowOptions, window: CutWindow, onDone: () => void): Promise<ReadyWindow> {
  const { slices, ranges } = window;
  const shards =
    window.opened.length > 0
      ? window.opened
      : await Promise.all(slices.map(({ slice }) => tools.source.open(slice.shard)));
  const there = awaitedLater(fetchAll(shards, ranges));
  const rowStart = slices[0]?.rowStart ?? 0;
  return {
    rowStart,
    rowEnd: slices.reduce(rowAfter, rowStart),
    requests: slices.flatMap((slice, index) => {
      const shard = shards[index];
      return shard === undefined ? [] : [requestOf(tools, slice, shard)];
    }),
    shards,
    there,
    async done() {
      await closeAll(shards);
      onDone();
    },
  };
}

export interface CoalesceLimits {
  /** Whether all shards have the same columns, of the same types. */
  readonly uniform: boolean;
  /** Shards that one query reads. */
  readonly shards: number;
  /** Rows of a group, at most. */
  readonly rows: number;
  /** Bytes of its shards, at most; default: 16 MiB. */
  readonly bytes?: number;
}

/** Bytes of a group, at most: reading a larger one takes longer than starting a query for it. */
const coalescedBytes = 16 * 1024 * 1024;

/**
 * Groups neighbouring slices that one query reads: whole, small shards of one folder. A query costs milliseconds, as
 * many for a hundred rows as for ten thousand. If committed rows are between two slices, a new group begins: the rows
 * of a group are numbered without a gap. @public so that tests call it
 */
export function* coalesceSlices(slices: Iterable<SliceOfRun>, limits: CoalesceLimits): Generator<SliceOfRun[]> {
  const { uniform, bytes: mostBytes = coalescedBytes } = limits;
  let group: SliceOfRun[] = [];
  let [rows, bytes] = [0, 0];
  for (const next of slices) {
    const { shard } = next.slice;
    const last = group.at(-1);
    const fits =
      last !== undefined &&
      uniform &&
      isWhole(last) &&
      isWhole(next) &&
      group.length < limits.shards &&
      rows + shard.rows <= limits.rows &&
      bytes + shard.sizeBytes <= mostBytes &&
      // Folders give columns their values: those of one are the same for all of its shards.
      folderOf(shard.uri) === folderOf(last.slice.shard.uri) &&
      next.rowStart === last.rowStart + last.slice.rowEnd - last.slice.rowStart;
    if (last !== undefined && !fits) {
      yield group;
      group = [];
      [rows, bytes] = [0, 0];
    }
    rows += shard.rows;
    bytes += shard.sizeBytes;
    group.push(next);
  }
  if (group.length > 0) {
    yield group;
  }
}

function isWhole({ slice: { shard, rowStart, rowEnd } }: SliceOfRun): boolean {
  return rowStart === 0 && rowEnd === shard.rows;
}

function folderOf(uri: string): string {
  return uri.slice(0, uri.lastIndexOf("/") + 1);
}
