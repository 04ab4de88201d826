import { corruptArrow, type ShardBytes } from "../ipc/bytes.js";
import { encodedFields } from "../ipc/batches.js";
import type { Block } from "../ipc/metadata.js";
import { type ByteStream, byteStream, correctWriter, type Held, readMessages } from "./messages.js";
import type { MemoryBudget } from "../../../util/memory-budget.js";
import {
  type ArrowIndex,
  type DictionaryCache,
  type IndexedBatch,
  type IndexedDictionary,
  type MessageWalk,
  type OpenArrow,
  walkMessages,
} from "../ipc/shards.js";
import type { RowStream, ShardFile, StreamedBatch } from "../../port.js";
import { createCondition } from "../../../util/promises.js";

/** A stream of Arrow's that another program writes, each of its record batches a shard that is in memory. */
export interface ArrowPipe extends RowStream {
  /** For the decoder: the head, or a batch that was not released. */
  readonly open: (file: ShardFile) => Promise<OpenArrow>;
}

export interface ArrowPipeOptions {
  /** The stream's name in messages. */
  readonly name: string;
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Bounds the batches that are held, and each message. */
  readonly memory: Pick<MemoryBudget, "bytes" | "openPagesBytes">;
  /** Ends `chunks`, also while they wait. */
  readonly close: () => void;
}

/** Dictionaries and their deltas, as they are in the stream. */
const dictionariesLimit = 2 ** 30;

interface HeldBatch {
  readonly index: ArrowIndex;
  readonly parts: readonly Held<Block>[];
}

export function openArrowPipe({ name, chunks, memory, close }: ArrowPipeOptions): ArrowPipe {
  const stream = byteStream(chunks);
  const walk = walkMessages(name, correctWriter);
  const known: DictionaryCache = new Map();
  const held = new Map<string, HeldBatch>();
  const budget = createByteBudget(memory.openPagesBytes);
  const messages = readMessages(stream, { name, walk, takeRoom: (bytes) => budget.take(bytes), memory });
  const headFile = fileOf(name, "head");
  let head: Promise<ShardFile> | undefined;
  const readHead = async (): Promise<ShardFile> => {
    await messages.next();
    held.set(headFile.path, { index: indexOf(walk, stream, { batches: [], dictionaries: [] }), parts: [] });
    return headFile;
  };
  return {
    head: () => (head ??= readHead()),
    async *batches() {
      await (head ??= readHead());
      const dictionaries = keepDictionaries(name, new Set(walk.end().fields.flatMap(encodedFields).map(idOf)));
      for await (const message of messages) {
        if (message.kind === "dictionary") {
          dictionaries.take(message.held);
        } else if (message.kind === "batch") {
          const { block } = message.held;
          const file = fileOf(name, String(block.number));
          const live = dictionaries.live();
          const batch = { ...block, dictionaries: live.length };
          const blocks = { batches: [batch], dictionaries: live.map((one) => one.block) };
          held.set(file.path, { index: indexOf(walk, stream, blocks), parts: [message.held, ...live] });
          yield streamedBatch(file, batch, () => {
            held.delete(file.path);
            budget.free(block.bodyBytes);
          });
        }
      }
    },
    open: (file) => openHeld(file, { batch: held.get(file.path), known }),
    [Symbol.dispose]() {
      close();
      budget.close();
    },
  };
}

function openHeld(
  file: ShardFile,
  { batch, known }: { batch: HeldBatch | undefined; known: DictionaryCache },
): Promise<OpenArrow> {
  if (batch === undefined) {
    return Promise.reject(new Error(`${file.path} was released`));
  }
  const bytes = heldBytes(file, batch);
  return Promise.resolve({ bytes, index: batch.index, known, [Symbol.asyncDispose]: () => Promise.resolve() });
}

function fileOf(name: string, part: string): ShardFile {
  return { path: `${name}#${part}`, name, remedy: correctWriter };
}

function streamedBatch(file: ShardFile, { rowStart, rows }: IndexedBatch, onRelease: () => void): StreamedBatch {
  let released = false;
  return {
    file,
    rowStart,
    rowEnd: rowStart + rows,
    release() {
      if (!released) {
        released = true;
        onRelease();
      }
    },
  };
}

function idOf({ dictionary }: { readonly dictionary: { readonly id: number } | undefined }): number {
  return dictionary?.id ?? 0;
}

/** Makes the index of a shard that has one batch of the stream, or none. */
function indexOf(
  walk: MessageWalk,
  { at }: ByteStream,
  { batches, dictionaries }: Pick<ArrowIndex, "batches" | "dictionaries">,
): ArrowIndex {
  const { version, rows } = walk;
  return { kind: "stream", version, sizeBytes: at, schema: walk.end(), footerBytes: 0, batches, dictionaries, rows };
}

/** Returns the bytes of a stream as a shard, of which only the messages of one batch exist. */
function heldBytes(file: ShardFile, { index, parts }: HeldBatch): ShardBytes {
  return {
    file,
    sizeBytes: index.sizeBytes,
    read(start, end) {
      for (const { block, metadata, body } of parts) {
        const bodyStart = block.offset + block.metadataBytes;
        if (start >= bodyStart && end <= bodyStart + body.length) {
          return Promise.resolve(body.subarray(start - bodyStart, end - bodyStart));
        }
        if (start >= block.offset && end <= bodyStart) {
          return Promise.resolve(metadata.subarray(start - block.offset, end - block.offset));
        }
      }
      return Promise.reject(new Error(`bytes ${start} to ${end} of ${file.path} are not held`));
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

interface Dictionaries {
  take(held: Held<IndexedDictionary>): void;
  /** Returns the dictionaries in use: of each, the last complete one and its deltas. */
  live(): Held<IndexedDictionary>[];
}

/** Keeps the dictionaries that the schema names, as long as they are not replaced. */
function keepDictionaries(name: string, ids: ReadonlySet<number>): Dictionaries {
  const byId = new Map<number, Held<IndexedDictionary>[]>();
  const live = (): Held<IndexedDictionary>[] => [...byId.values()].flat();
  return {
    live,
    take(held) {
      const { id, isDelta } = held.block;
      if (!ids.has(id)) {
        return;
      }
      byId.set(id, isDelta ? [...(byId.get(id) ?? []), held] : [held]);
      const bytes = live().reduce((sum, { block }) => sum + block.bodyBytes, 0);
      if (bytes > dictionariesLimit) {
        throw corruptArrow(
          name,
          `its dictionaries have ${bytes} bytes, at most ${dictionariesLimit} are kept`,
          correctWriter,
        );
      }
    },
  };
}

/** Bounds how many bytes are held at once. */
interface ByteBudget {
  /** Waits until so many bytes fit into the limit, or none are held. */
  take(bytes: number): Promise<void>;
  free(bytes: number): void;
  /** Ends all waiting. From then on, the budget is not limited. */
  close(): void;
}

function createByteBudget(limit: number): ByteBudget {
  let used = 0;
  let closed = false;
  const changed = createCondition();
  const fits = (bytes: number): boolean => used === 0 || used + bytes <= limit || closed;
  return {
    async take(bytes) {
      while (!fits(bytes)) {
        await changed.wait();
      }
      used += bytes;
    },
    free(bytes) {
      used -= bytes;
      changed.notify();
    },
    close() {
      closed = true;
      changed.notify();
    },
  };
}
