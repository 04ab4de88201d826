import type { RowStream, ShardFile, StreamedBatch } from "../formats/port.js";
import type { PlannedShard, Span } from "../plan/plan.js";
import { awaitedLater } from "../util/promises.js";
import type { ShardFiles } from "./context.js";

/** The batches of a stream: each is a span, and a shard of its own, until it is released. */
export interface StreamedBatches extends ShardFiles {
  /** The number of rows of all batches so far. */
  readonly rows: number;
  /** The span of the last batch. */
  readonly span: Span;
  /** Waits for the first batch. Returns whether there is one. */
  begin(): Promise<boolean>;
  /** Takes the next batch and starts to read the one after it; undefined at the end of the stream. */
  next(): Promise<StreamedBatch | undefined>;
  locate(row: number): { shard: PlannedShard; row: number };
  /** Releases a span's batch. */
  release(index: number): void;
}

interface HeldBatch {
  readonly batch: StreamedBatch;
  readonly span: Span;
  readonly shard: PlannedShard;
}

export function streamedBatches(stream: RowStream): StreamedBatches {
  const source = readingAhead(stream.batches());
  const held = new Map<number, HeldBatch>();
  let last: Span = { index: -1, rowStart: 0, rowEnd: 0 };
  const find = (what: string, isIt: (taken: HeldBatch) => boolean): HeldBatch => {
    const found = [...held.values()].find(isIt);
    if (found === undefined) {
      throw new RangeError(`${what} is of no batch that is held`);
    }
    return found;
  };
  return {
    get rows() {
      return last.rowEnd;
    },
    get span() {
      return last;
    },
    begin: async () => (await source.look()) !== undefined,
    async next() {
      const batch = await source.take();
      if (batch === undefined) {
        return undefined;
      }
      const { file, rowStart, rowEnd } = batch;
      last = { index: last.index + 1, rowStart, rowEnd };
      const shard = { uri: file.name, sizeBytes: 0, fingerprint: "", rows: rowEnd - rowStart };
      held.set(last.index, { batch, span: last, shard });
      return batch;
    },
    locate(row) {
      const { shard } = find(`row ${row}`, ({ span }) => row >= span.rowStart && row < span.rowEnd);
      return { shard, row };
    },
    open(listed) {
      const { batch } = find("a shard", ({ shard }) => shard === listed);
      return Promise.resolve(withoutClosing(batch.file));
    },
    release(index) {
      held.get(index)?.batch.release();
      held.delete(index);
    },
  };
}

interface ReadingAhead<T> {
  /** The next item, which stays the next one. */
  look(): Promise<T | undefined>;
  /** Takes the next item, and starts to make the one after it. */
  take(): Promise<T | undefined>;
}

function readingAhead<T>(iterator: AsyncGenerator<T, void>): ReadingAhead<T> {
  const step = async (): Promise<T | undefined> => {
    const { value } = await iterator.next();
    return value ?? undefined;
  };
  let next: Promise<T | undefined> | undefined;
  const look = (): Promise<T | undefined> => (next ??= awaitedLater(step()));
  return {
    look,
    async take() {
      const taken = await look();
      next = taken === undefined ? next : awaitedLater(step());
      return taken;
    },
  };
}

/** A file that is closed by its owner, not by those who open it. */
export function withoutClosing(file: ShardFile): ShardFile & AsyncDisposable {
  return { ...file, [Symbol.asyncDispose]: () => Promise.resolve() };
}
