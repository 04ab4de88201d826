import type { ByteRange, Decoder, SliceRequest, SliceWindow } from "../formats/port.js";
import type { Projection } from "../binding/contract.js";
import { partitionsOf } from "../plan/partitions.js";
import type { Slice } from "../plan/plan.js";
import type { RowRange } from "../columnar/types.js";
import type { OpenShard, Source } from "../storage/port.js";
import { type Condition, createCondition } from "../util/condition.js";
import { awaitedLater, settled } from "../util/promises.js";

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

export interface WindowOptions {
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
  const change = createCondition();
  const queue: Queue = { ready: [], heldBytes: 0, closed: false, ended: false, change };
  const filling = awaitedLater(
    fill(tools, groups, queue).finally(() => {
      queue.ended = true;
      change.notify();
    }),
  );
  try {
    for (;;) {
      const next = queue.ready.shift();
      if (next !== undefined) {
        change.notify();
        yield await next;
      } else if (queue.ended) {
        await filling;
        return;
      } else {
        await change.wait();
      }
    }
  } finally {
    queue.closed = true;
    change.notify();
    await settled(filling);
    for (const window of await Promise.allSettled(queue.ready)) {
      await (window.status === "fulfilled" ? window.value.done() : undefined);
    }
  }
}

interface Queue {
  /** Windows that are opened and not asked for yet. */
  readonly ready: Promise<ReadyWindow>[];
  /** Bytes of windows that are opened and not done. */
  heldBytes: number;
  closed: boolean;
  ended: boolean;
  readonly change: Condition;
}

/** Opens window after window, within the limits of the source. */
async function fill(tools: WindowOptions, groups: Iterable<readonly SliceOfRun[]>, queue: Queue): Promise<void> {
  const { files, bytes: limitBytes } = tools.source.readAhead;
  await using cut = cutAhead(tools, groups, files);
  for (let window = await cut.next(); window !== undefined; window = await cut.next()) {
    const { bytes } = window;
    while (
      !queue.closed &&
      (queue.ready.length >= files || (queue.heldBytes > 0 && queue.heldBytes + bytes > limitBytes))
    ) {
      await queue.change.wait();
    }
    if (queue.closed) {
      await closeAll(window.opened);
      return;
    }
    queue.heldBytes += bytes;
    const opened = openWindow(tools, window, () => {
      queue.heldBytes -= bytes;
      queue.change.notify();
    });
    queue.ready.push(awaitedLater(opened));
    queue.change.notify();
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

/** Cuts groups into windows, in order; at most `limit` groups are cut at once. */
function cutAhead(
  tools: WindowOptions,
  groups: Iterable<readonly SliceOfRun[]>,
  limit: number,
): AsyncDisposable & { next(): Promise<CutWindow | undefined> } {
  const iterator = groups[Symbol.iterator]();
  const cutting: Promise<CutWindow[]>[] = [];
  const windows: CutWindow[] = [];
  const start = (): void => {
    while (cutting.length < limit) {
      const group = iterator.next();
      if (group.done === true) {
        return;
      }
      cutting.push(awaitedLater(cutGroup(tools, group.value)));
    }
  };
  return {
    async next() {
      for (let window = windows.shift(); ; window = windows.shift()) {
        if (window !== undefined) {
          return window;
        }
        start();
        const first = cutting.shift();
        if (first === undefined) {
          return undefined;
        }
        windows.push(...(await first));
      }
    },
    async [Symbol.asyncDispose]() {
      for (const cut of await Promise.allSettled(cutting)) {
        windows.push(...(cut.status === "fulfilled" ? cut.value : []));
      }
      for (const { opened } of windows) {
        await closeAll(opened);
      }
    },
  };
}

/** The row after a slice that begins at `row`: rows of a window are numbered on from its first. */
function rowAfter(row: number, { slice, rowStart }: SliceOfRun): number {
  if (rowStart !== row) {
    throw new Error(`a window at row ${row} of the run continues with row ${rowStart}`);
  }
  return row + slice.rowEnd - slice.rowStart;
}

/** Cuts a group. Where one of its shards cannot be opened, each is a window of its own, so that the shards before it are read. */
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

/** Rows [rowStart, rowEnd) of a slice's shard. */
function partOf({ slice, rowStart: ofRun }: SliceOfRun, { rowStart, rowEnd }: SliceWindow): SliceOfRun {
  return { slice: { shard: slice.shard, rowStart, rowEnd }, rowStart: ofRun + rowStart - slice.rowStart };
}

function requestOf(
  { projection }: WindowOptions,
  { slice, rowStart: ofRun }: SliceOfRun,
  file: OpenShard,
): SliceRequest {
  const { rowStart, rowEnd, shard } = slice;
  return { file, rowStart, rowEnd, projection, partitions: partitionsOf(shard.uri), firstRow: ofRun - rowStart };
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
