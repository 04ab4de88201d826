import { valuesPerRow, type Projection } from "../binding/contract.js";
import type { ScoredBatch } from "../packing/scored-batch.js";
import type { RecordBatch, RowRange } from "../columnar/types.js";
import type { Decoder } from "../formats/port.js";
import type { SliceReader, Turn } from "./workers/slice-reader.js";
import type { Spans } from "../plan/spans.js";
import { type StageTimer, untimed } from "../report/stage-times.js";
import type { OpenShard, Source } from "../storage/port.js";
import type { SpanRange } from "../plan/worker-shares.js";
import { createEvent } from "../util/condition.js";
import { awaitedLater, ifOpened, settled } from "../util/promises.js";
import { coalesceSlices } from "./coalesce-slices.js";
import { type ReadyWindow, type SliceOfRun, windowsAhead } from "./read-windows.js";

/** Decoded rows of the run. */
export interface DecodedRows {
  /** The run's number of the batch's first row. */
  readonly rowStart: number;
  /** Holds until the next piece is asked for. */
  readonly batch: ScoredBatch;
  /** The shards that one query reads; the batch comes from some of them. */
  readonly shards: readonly OpenShard[];
}

/** Sorts rows, and joins neighbours to ranges. */
export function rangesOfRows(rows: readonly number[]): RowRange[] {
  const ranges: { readonly rowStart: number; rowEnd: number }[] = [];
  for (const row of rows.toSorted((one, other) => one - other)) {
    const last = ranges.at(-1);
    if (last?.rowEnd === row) {
      last.rowEnd += 1;
    } else {
      ranges.push({ rowStart: row, rowEnd: row + 1 });
    }
  }
  return ranges;
}

/** Neighbouring spans of a share that are not committed, as ranges of rows: one query reads each, across span ends. */
export function pendingRanges(
  spans: Spans,
  committed: Pick<ReadonlyMap<number, unknown>, "has">,
  share: SpanRange,
): RowRange[] {
  const ranges: { rowStart: number; rowEnd: number }[] = [];
  for (let index = share.from; index < share.to; index += 1) {
    if (committed.has(index)) {
      continue;
    }
    const { rowStart, rowEnd } = spans.at(index);
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

/** Starts windows before their turn. */
interface Ahead {
  /** Takes the next window; undefined: there is none. */
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
  /** The pieces after the first one. */
  readonly pieces: AsyncGenerator<DecodedRows>;
  /** Settled when the threads that decode know of all its rows, or will not. Never rejects. */
  readonly queued: Promise<unknown>;
  /** Tells the window that nearly all rows before it were read. */
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
  readonly turn: Turn;
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

/** Rows that a batch was made from. */
export function rowsRead({ rowCount, selection }: RecordBatch): number {
  return selection?.readCount ?? rowCount;
}
