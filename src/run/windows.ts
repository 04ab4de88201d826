import type { Decoder, Projection, SliceRequest, SliceWindow } from "../decode/port.js";
import { partitionsOf } from "../plan/partitions.js";
import type { Slice } from "../plan/plan.js";
import type { OpenShard, Source } from "../source/port.js";

/** A slice, and the run's number of its first row. */
export interface SliceOfRun {
  readonly slice: Slice;
  readonly rowStart: number;
}

/** Rows that are read together, of a file of their own. */
export interface ReadyWindow {
  /** The run's number of its first row. */
  readonly rowStart: number;
  readonly request: SliceRequest;
  readonly shard: OpenShard;
  /** Settled when its bytes are there, or cannot be had. */
  readonly there: Promise<void>;
  /** Closes the file; its room is free again. */
  done(): Promise<void>;
}

export interface WindowTools {
  readonly source: Source;
  readonly decoder: Decoder;
  readonly projection: Projection;
}

/**
 * The windows of some slices, in order. Those that come next are opened, and their bytes fetched, while others are
 * read: as far ahead as the source says. On a disk a slice is one window.
 */
export async function* windowsAhead(tools: WindowTools, slices: Iterable<SliceOfRun>): AsyncGenerator<ReadyWindow> {
  const change = createChange();
  const queue: Queue = { ready: [], heldBytes: 0, closed: false, ended: false, change };
  const filling = fill(tools, slices, queue).finally(() => {
    queue.ended = true;
    change.tell();
  });
  filling.catch(() => undefined); // awaited below; until then it must not count as unhandled
  try {
    for (;;) {
      const next = queue.ready.shift();
      if (next !== undefined) {
        change.tell();
        yield await next;
      } else if (queue.ended) {
        await filling;
        return;
      } else {
        await change.told();
      }
    }
  } finally {
    queue.closed = true;
    change.tell();
    await filling.catch(() => undefined);
    for (const window of await Promise.allSettled(queue.ready)) {
      await (window.status === "fulfilled" ? window.value.done() : undefined);
    }
  }
}

interface Queue {
  /** Begun, and not asked for yet. */
  readonly ready: Promise<ReadyWindow>[];
  /** Of windows that are begun and not done. */
  heldBytes: number;
  closed: boolean;
  ended: boolean;
  readonly change: Change;
}

/** Begins window after window, when there is room for it. */
async function fill(tools: WindowTools, slices: Iterable<SliceOfRun>, queue: Queue): Promise<void> {
  const { files, bytes: limitBytes } = tools.source.ahead;
  await using cut = cutAhead(tools, slices, files);
  for (let window = await cut.next(); window !== undefined; window = await cut.next()) {
    const { bytes } = window;
    while (
      !queue.closed &&
      (queue.ready.length >= files || (queue.heldBytes > 0 && queue.heldBytes + bytes > limitBytes))
    ) {
      await queue.change.told();
    }
    if (queue.closed) {
      await window.opened?.[Symbol.asyncDispose]();
      return;
    }
    queue.heldBytes += bytes;
    const opened = openWindow(tools, window, () => {
      queue.heldBytes -= bytes;
      queue.change.tell();
    });
    opened.catch(() => undefined); // awaited later, by whoever takes it
    queue.ready.push(opened);
    queue.change.tell();
  }
}

interface Change {
  tell(): void;
  told(): Promise<void>;
}

/** Something has changed: whoever waits looks again. */
function createChange(): Change {
  let waiting: (() => void)[] = [];
  return {
    tell() {
      const all = waiting;
      waiting = [];
      for (const wake of all) {
        wake();
      }
    },
    told: () =>
      new Promise((resolve) => {
        waiting.push(resolve);
      }),
  };
}

/** A window that is not begun. The first one of a slice has the file that the slice was looked at with. */
interface CutWindow extends SliceWindow {
  readonly slice: SliceOfRun;
  readonly bytes: number;
  readonly opened: OpenShard | undefined;
}

/** The windows of some slices, one after the other; `limit` slices are looked at at once. */
function cutAhead(
  tools: WindowTools,
  slices: Iterable<SliceOfRun>,
  limit: number,
): AsyncDisposable & { next(): Promise<CutWindow | undefined> } {
  const iterator = slices[Symbol.iterator]();
  const cutting: Promise<CutWindow[]>[] = [];
  const windows: CutWindow[] = [];
  const start = (): void => {
    while (cutting.length < limit) {
      const slice = iterator.next();
      if (slice.done === true) {
        return;
      }
      const cut = cutSlice(tools, slice.value);
      cut.catch(() => undefined);
      cutting.push(cut);
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
        await opened?.[Symbol.asyncDispose]();
      }
    },
  };
}

async function cutSlice(tools: WindowTools, slice: SliceOfRun): Promise<CutWindow[]> {
  const { source, decoder } = tools;
  const opened = await source.open(slice.slice.shard);
  try {
    if (opened.remote === undefined) {
      const { rowStart, rowEnd } = slice.slice;
      return [{ slice, rowStart, rowEnd, ranges: [], bytes: 0, opened }];
    }
    const windows = await decoder.windows(requestOf(tools, slice, opened), source.ahead.windowBytes);
    return windows.map(({ rowStart, rowEnd, ranges }, index) => {
      const bytes = ranges.reduce((sum, { start, end }) => sum + end - start, 0);
      return { slice, rowStart, rowEnd, ranges, bytes, opened: index === 0 ? opened : undefined };
    });
  } catch (error) {
    await opened[Symbol.asyncDispose]();
    throw error;
  }
}

function requestOf({ projection }: WindowTools, { slice }: SliceOfRun, file: OpenShard): SliceRequest {
  const { rowStart, rowEnd, shard } = slice;
  return { file, rowStart, rowEnd, projection, partitions: partitionsOf(shard.uri) };
}

async function openWindow(tools: WindowTools, window: CutWindow, onDone: () => void): Promise<ReadyWindow> {
  const { slice, rowStart, rowEnd, ranges } = window;
  const shard = window.opened ?? (await tools.source.open(slice.slice.shard));
  const there = shard.remote?.fetch(ranges) ?? Promise.resolve();
  there.catch(() => undefined); // whoever reads the window meets it
  return {
    rowStart: slice.rowStart + rowStart - slice.slice.rowStart,
    request: { ...requestOf(tools, slice, shard), rowStart, rowEnd },
    shard,
    there,
    async done() {
      await shard[Symbol.asyncDispose]();
      onDone();
    },
  };
}
