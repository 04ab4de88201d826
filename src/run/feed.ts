import { valuesPerRow } from "../batch/contract.js";
import type { RecordBatch } from "../batch/types.js";
import type { Decoder, Projection } from "../decode/port.js";
import { partitionsOf } from "../plan/partitions.js";
import type { Slice } from "../plan/plan.js";
import type { Spans } from "../plan/spans.js";
import type { OpenShard, Source } from "../source/port.js";
import type { SpanRange } from "./share.js";

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

/**
 * The rows of `ranges`, in order. While a slice is read the next one's shard is opened, and when the end is near its
 * decoding begins.
 */
export async function* feedRows(
  tools: FeedTools,
  ranges: readonly { rowStart: number; rowEnd: number }[],
): AsyncGenerator<FeedPiece> {
  const slices = slicesOf(tools, ranges);
  const nearRows = Math.ceil(nearValues / valuesPerRow(tools.projection));
  const openNext = (): OpenSlice | undefined => {
    const slice = slices.next();
    return slice.done === true ? undefined : openSlice(tools, slice.value);
  };
  let current = openNext();
  let next: OpenSlice | undefined;
  try {
    while (current !== undefined) {
      const { pieces, rowEnd } = current;
      let result = await current.begin();
      next = openNext();
      while (result.done !== true) {
        const { rowStart, batch } = result.value;
        if (rowEnd - (rowStart + rowsRead(batch)) <= nearRows) {
          void next?.begin();
        }
        yield result.value;
        result = await pieces.next();
      }
      current = next;
      next = undefined;
    }
  } finally {
    await current?.close();
    await next?.close();
  }
}

/**
 * Values that are left of a slice when decoding the next one begins: by then the decoder is through with it, and holds
 * no row group of it any more, which is 100 MB where there are 200 columns; and there is work until the next one comes.
 */
const nearValues = 2 ** 21;

interface RunSlice {
  readonly slice: Slice;
  /** The run's number of its first row. */
  readonly rowStart: number;
}

function* slicesOf({ spans }: FeedTools, ranges: readonly { rowStart: number; rowEnd: number }[]): Generator<RunSlice> {
  for (const range of ranges) {
    let rowStart = range.rowStart;
    for (const slice of spans.slices(range)) {
      yield { slice, rowStart };
      rowStart += slice.rowEnd - slice.rowStart;
    }
  }
}

interface OpenSlice {
  /** The run's number of the row after its last. */
  readonly rowEnd: number;
  readonly pieces: AsyncGenerator<FeedPiece>;
  /** Starts decoding, once; the first piece. What it rejects with counts as handled. */
  begin(): Promise<IteratorResult<FeedPiece>>;
  close(): Promise<void>;
}

/** Opens a slice's shard. */
function openSlice(tools: FeedTools, runSlice: RunSlice): OpenSlice {
  const { slice, rowStart } = runSlice;
  const opened = handled(tools.source.open(slice.shard));
  const pieces = readSlice(tools, runSlice, opened);
  let first: Promise<IteratorResult<FeedPiece>> | undefined;
  return {
    rowEnd: rowStart + (slice.rowEnd - slice.rowStart),
    pieces,
    begin() {
      first ??= handled(pieces.next());
      return first;
    },
    async close() {
      await first?.catch(() => undefined);
      await pieces.return(undefined);
      if (first === undefined) {
        // What was not begun does not close what it was given.
        await (await opened.catch(() => undefined))?.[Symbol.asyncDispose]();
      }
    },
  };
}

/** It is awaited later; until then a rejection must not count as unhandled. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}

async function* readSlice(
  { decoder, projection }: FeedTools,
  { slice, rowStart: firstRow }: RunSlice,
  opened: Promise<OpenShard>,
): AsyncGenerator<FeedPiece> {
  await using shard = await opened;
  let rowStart = firstRow;
  const request = {
    path: shard.path,
    rowStart: slice.rowStart,
    rowEnd: slice.rowEnd,
    projection,
    partitions: partitionsOf(slice.shard.uri),
  };
  for await (const batch of decoder.read(request)) {
    yield { rowStart, batch, shard };
    rowStart += rowsRead(batch);
  }
  await shard.check();
}

/** Rows that a batch was made from. */
export function rowsRead({ rowCount, selection }: RecordBatch): number {
  return selection?.readCount ?? rowCount;
}
