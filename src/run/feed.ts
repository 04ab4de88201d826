import type { RecordBatch } from "../batch/types.js";
import type { Decoder, Projection } from "../decode/port.js";
import type { Spans } from "../plan/spans.js";
import type { OpenShard, Source } from "../source/port.js";
import type { SpanRange } from "./share.js";
import { type ReadyWindow, type SliceOfRun, windowsAhead } from "./windows.js";

/** Rows of the run as they are decoded. */
export interface FeedPiece {
  /** The run's number of the batch's first row. */
  readonly rowStart: number;
  /** Holds until the next piece is asked for. */
  readonly batch: RecordBatch;
  readonly shard: OpenShard;
}

/** Neighbouring spans of a share that are not committed, as ranges of rows: each is read in one go, across span ends. */
export function pendingRanges(
  spans: Spans,
  committed: Uint8Array,
  share: SpanRange,
): { rowStart: number; rowEnd: number }[] {
  const ranges: { rowStart: number; rowEnd: number }[] = [];
  for (let index = share.from; index < share.to; index += 1) {
    if (committed[index] === 1) {
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

export interface FeedTools {
  readonly source: Source;
  readonly decoder: Decoder;
  readonly spans: Spans;
  readonly projection: Projection;
}

/** The rows of `ranges`, in order; the next window is read while the current one is. */
export async function* feedRows(
  tools: FeedTools,
  ranges: readonly { rowStart: number; rowEnd: number }[],
): AsyncGenerator<FeedPiece> {
  yield* readAhead(windowsAhead(tools, slicesOf(tools, ranges)), (window) => readWindow(tools, window));
}

function* slicesOf(
  { spans }: FeedTools,
  ranges: readonly { rowStart: number; rowEnd: number }[],
): Generator<SliceOfRun> {
  for (const range of ranges) {
    let rowStart = range.rowStart;
    for (const slice of spans.slices(range)) {
      yield { slice, rowStart };
      rowStart += slice.rowEnd - slice.rowStart;
    }
  }
}

async function* readWindow({ decoder }: FeedTools, window: ReadyWindow): AsyncGenerator<FeedPiece> {
  try {
    let { rowStart } = window;
    const { shard } = window;
    await window.there;
    for await (const batch of decoder.read(window.request)) {
      yield { rowStart, batch, shard };
      rowStart += rowsRead(batch);
    }
    await shard.check();
  } finally {
    await window.done();
  }
}

/** Rows that a batch was made from. */
export function rowsRead({ rowCount, selection }: RecordBatch): number {
  return selection?.readCount ?? rowCount;
}

interface Started<T> {
  readonly generator: AsyncGenerator<T>;
  readonly first: Promise<IteratorResult<T>>;
}

/** Generators one after the other, the next one started when the current one has begun to yield. */
async function* readAhead<I, T>(items: AsyncGenerator<I>, open: (item: I) => AsyncGenerator<T>): AsyncGenerator<T> {
  const start = async (): Promise<Started<T> | undefined> => {
    const item = await items.next();
    if (item.done === true) {
      return undefined;
    }
    const generator = open(item.value);
    const first = generator.next();
    first.catch(() => undefined); // awaited later; until then it must not count as unhandled
    return { generator, first };
  };
  let current = await start();
  let next: Promise<Started<T> | undefined> | undefined;
  try {
    while (current !== undefined) {
      const { generator, first } = current;
      let result = await first;
      next = start();
      next.catch(() => undefined);
      while (result.done !== true) {
        yield result.value;
        result = await generator.next();
      }
      current = undefined;
      current = await next;
      next = undefined;
    }
  } finally {
    await current?.generator.return(undefined);
    const begun = await next?.catch(() => undefined);
    await begun?.first.catch(() => undefined);
    await begun?.generator.return(undefined);
    await items.return(undefined);
  }
}
