import { errnoOf, JobError } from "../../base/errors.js";
import {
  corruptArrow,
  damageOf,
  cutOff,
  type IndexedBatch,
  type IndexedDictionary,
  type MessageWalk,
  metadataLimit,
  placeOfMessage,
  type ShardBytes,
  type ArrowIndex,
  type DictionaryCache,
  type OpenArrow,
  walkMessages,
} from "./shards.js";
import { type Block, type Message, prefixLength, readArrowMessage, readPrefix } from "./metadata.js";
import type { MemoryBudget } from "../../base/memory-budget.js";
import { tooLarge } from "../faults.js";
import { encodedFields } from "./batches.js";
import type { RowStream, ShardFile } from "../format.js";
import { createCondition } from "../../base/promises.js";

interface Held<B extends Block> {
  readonly block: B;
  readonly metadata: Uint8Array<ArrayBuffer>;
  readonly body: Uint8Array<ArrayBuffer>;
}

type HeldMessage =
  | { readonly kind: "schema" }
  | { readonly kind: "dictionary"; readonly held: Held<IndexedDictionary> }
  | { readonly kind: "batch"; readonly held: Held<IndexedBatch> };

interface MessageOptions {
  readonly name: string;
  readonly walk: MessageWalk;
  /** Waits until there is room for the body of a batch. */
  readonly takeRoom: (bytes: number) => Promise<void>;
  readonly memory: MessageMemory;
}

/** The memory budget, of which a message that is held as a whole may take a part. */
type MessageMemory = Pick<MemoryBudget, "bytes" | "openPagesBytes">;

/** The messages of a stream, to its end-of-stream marker, which nothing may follow. @throws JobError SHARD_CORRUPT, DISK */
async function* readMessages(
  stream: ByteStream,
  { name, walk, takeRoom, memory }: MessageOptions,
): AsyncGenerator<HeldMessage> {
  for (;;) {
    const { at } = stream;
    try {
      const metadata = await readMetadata(stream, name);
      if (metadata === "end") {
        walk.end();
        if (!(await stream.ends())) {
          const found = `bytes follow its end-of-stream marker, which is at byte ${at}`;
          throw corruptArrow(name, found, "write one stream, with all record batches, and close it");
        }
        return;
      }
      const { bytes, message } = metadata;
      const { bodyBytes } = message;
      const block = { offset: at, metadataBytes: bytes.length, bodyBytes };
      refuseLarge(`reading ${name}: ${placeOfMessage(walk, at)}`, message, memory);
      const taken = walk.take(block, message);
      if (taken.kind === "batch") {
        await takeRoom(bodyBytes);
      }
      const body = await stream.read(bodyBytes);
      if (body === undefined) {
        throw cutOffAt(name, stream);
      }
      if (taken.kind === "schema") {
        yield taken;
      } else if (taken.kind === "batch") {
        yield { kind: "batch", held: { block: taken.batch, metadata: bytes, body } };
      } else {
        yield { kind: "dictionary", held: { block: taken.dictionary, metadata: bytes, body } };
      }
    } catch (error) {
      throw whatFailed(error, name, placeOfMessage(walk, at));
    }
  }
}

async function readMetadata(
  stream: ByteStream,
  name: string,
): Promise<{ bytes: Uint8Array<ArrayBuffer>; message: Message } | "end"> {
  const { at } = stream;
  const first = await stream.read(4);
  if (first === undefined) {
    throw cutOffAt(name, stream);
  }
  if (at === 0) {
    refuseOther(name, first);
  }
  const more = await stream.read(prefixLength(first) - 4);
  if (more === undefined) {
    throw cutOffAt(name, stream);
  }
  const { length } = readPrefix(joined(first, more));
  if (length === 0) {
    return "end";
  }
  if (length > metadataLimit) {
    throw new RangeError(at === 0 ? "it is no Arrow stream" : `a message of ${length} bytes without its body`);
  }
  const rest = await stream.read(length);
  if (rest === undefined) {
    throw cutOffAt(name, stream);
  }
  const bytes = joined(first, more, rest);
  return { bytes, message: readArrowMessage(bytes) };
}

function joined(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

const correctWriter = "correct the program that writes the stream";
const streamHint = "write an Arrow IPC stream, such as pyarrow.ipc.new_stream writes";

function refuseOther(name: string, first: Uint8Array): void {
  const head = String.fromCodePoint(...first);
  const others: Readonly<Record<string, string>> = {
    PAR1: "Parquet",
    ARRO: "an Arrow file",
    FEA1: "Feather version 1",
  };
  const found = others[head];
  if (found !== undefined) {
    throw corruptArrow(name, `it is ${found}, not an Arrow stream`, streamHint);
  }
}

function refuseLarge(place: string, { bodyBytes, header }: Message, memory: MessageMemory): void {
  const limitBytes = memory.openPagesBytes;
  if (bodyBytes > limitBytes) {
    const what = `its ${header.kind} message`;
    throw tooLarge(place, memory, { sizeBytes: bodyBytes, limitBytes, what, remedy: "write smaller record batches" });
  }
}

function cutOffAt(name: string, { at }: ByteStream): Error {
  return at === 0
    ? corruptArrow(name, "nothing came, not even a schema", streamHint)
    : cutOff(name, `it stops at byte ${at}`, "the program that writes it was stopped, or did not close its writer");
}

function whatFailed(error: unknown, name: string, place: string): unknown {
  const errno = error instanceof JobError ? undefined : errnoOf(error);
  return errno === undefined
    ? damageOf(error, name, place, correctWriter)
    : new JobError("DISK", `reading ${name}: ${errno}`, { cause: error });
}

/** Bytes that come once, read in pieces of any length. */
interface ByteStream {
  /** Bytes that were read. */
  readonly at: number;
  /** The next `length` bytes, in a buffer of their own; undefined when fewer are left. */
  read(length: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** Whether no byte is left; waits until that is known. */
  ends(): Promise<boolean>;
}

function byteStream(chunks: AsyncIterable<Uint8Array>): ByteStream {
  const iterator = chunks[Symbol.asyncIterator]();
  let rest: Uint8Array = new Uint8Array(0);
  let at = 0;
  const more = async (): Promise<boolean> => {
    while (rest.length === 0) {
      const next = await iterator.next();
      if (next.done === true) {
        return false;
      }
      rest = next.value;
    }
    return true;
  };
  return {
    get at() {
      return at;
    },
    async read(length) {
      // The length comes from the stream and may be wrong. Memory that is not zeroed is only used as bytes arrive.
      const bytes = new Uint8Array(Buffer.allocUnsafeSlow(length).buffer);
      for (let filled = 0; filled < length; ) {
        if (!(await more())) {
          return undefined;
        }
        const taken = rest.subarray(0, length - filled);
        bytes.set(taken, filled);
        rest = rest.subarray(taken.length);
        filled += taken.length;
        at += taken.length;
      }
      return bytes;
    },
    ends: async () => !(await more()),
  };
}

/** A stream of Arrow's that another program writes, each of its record batches a shard that is in memory. */
interface ArrowPipe extends RowStream {
  /** For the decoder: the head, or a batch that was not released. */
  readonly open: (file: ShardFile) => Promise<OpenArrow>;
}

interface ArrowPipeOptions {
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
  readonly parts: readonly Held<IndexedBatch | IndexedDictionary>[];
}

export function openArrowPipe({ name, chunks, memory, close }: ArrowPipeOptions): ArrowPipe {
  const stream = byteStream(chunks);
  const walk = walkMessages(name, correctWriter);
  const known: DictionaryCache = new Map();
  const held = new Map<string, HeldBatch>();
  const budget = createByteBudget(memory.openPagesBytes);
  const messages = readMessages(stream, { name, walk, takeRoom: (bytes) => budget.take(bytes), memory });
  /** Holds one batch of the stream, or none, as a shard. */
  const hold = (part: string, batches: readonly IndexedBatch[], parts: HeldBatch["parts"]): ShardFile => {
    const file = { path: `${name}#${part}`, name, remedy: correctWriter };
    const { version, rows } = walk;
    const dictionaries = parts.map(({ block }) => block).filter((block) => "isDelta" in block);
    const blocks = { batches, dictionaries, schema: walk.end() };
    held.set(file.path, {
      index: { kind: "stream", version, sizeBytes: stream.at, footerBytes: 0, rows, ...blocks },
      parts,
    });
    return file;
  };
  let head: Promise<ShardFile> | undefined;
  const readHead = async (): Promise<ShardFile> => {
    await messages.next();
    return hold("head", [], []);
  };
  return {
    head: () => (head ??= readHead()),
    async *batches() {
      await (head ??= readHead());
      const ids = walk.end().fields.flatMap((field) => encodedFields(field).map(({ dictionary }) => dictionary.id));
      const dictionaries = keepDictionaries(name, new Set(ids));
      for await (const message of messages) {
        if (message.kind === "dictionary") {
          dictionaries.take(message.held);
        } else if (message.kind === "batch") {
          const { block } = message.held;
          const live = dictionaries.live();
          const batch = { ...block, dictionaries: live.length };
          const file = hold(String(block.number), [batch], [message.held, ...live]);
          const { rowStart, rows } = batch;
          const release = (): void => {
            if (held.delete(file.path)) {
              budget.free(block.bodyBytes);
            }
          };
          yield { file, rowStart, rowEnd: rowStart + rows, release };
        }
      }
    },
    async open(file) {
      const batch = held.get(file.path);
      if (batch === undefined) {
        throw new Error(`${file.path} was released`);
      }
      const bytes = heldBytes(file, batch);
      return await Promise.resolve({
        bytes,
        index: batch.index,
        known,
        [Symbol.asyncDispose]: () => Promise.resolve(),
      });
    },
    [Symbol.dispose]() {
      close();
      budget.close();
    },
  };
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

/** Keeps the dictionaries that the schema names, as long as they are not replaced. */
function keepDictionaries(
  name: string,
  ids: ReadonlySet<number>,
): { take(held: Held<IndexedDictionary>): void; live(): Held<IndexedDictionary>[] } {
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
