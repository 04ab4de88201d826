import { errnoOf, JobError } from "../../../util/errors.js";
import { corruptArrow, damageOf } from "../ipc/bytes.js";
import { type Block, type Message, prefixLength, readMessage, readPrefix } from "../ipc/metadata.js";
import {
  cutOff,
  type IndexedBatch,
  type IndexedDictionary,
  type MessageWalk,
  metadataLimit,
  placeOf,
} from "../ipc/shards.js";
import type { MemoryBudget } from "../../../util/memory-budget.js";
import { tooLarge } from "../../too-large.js";

/** A message with its bytes. */
export interface Held<B extends Block> {
  readonly block: B;
  readonly metadata: Uint8Array<ArrayBuffer>;
  readonly body: Uint8Array<ArrayBuffer>;
}

export type HeldMessage =
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
export async function* readMessages(
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
      refuseLarge(`reading ${name}: ${placeOf(walk, at)}`, message, memory);
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
      throw whatFailed(error, name, placeOf(walk, at));
    }
  }
}

/** A message without its body, with what comes before it. */
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
  return { bytes, message: readMessage(bytes) };
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

export const correctWriter = "correct the program that writes the stream";
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
export interface ByteStream {
  /** Bytes that were read. */
  readonly at: number;
  /** The next `length` bytes, in a buffer of their own; undefined when fewer are left. */
  read(length: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** Whether no byte is left; waits until that is known. */
  ends(): Promise<boolean>;
}

export function byteStream(chunks: AsyncIterable<Uint8Array>): ByteStream {
  const iterator = chunks[Symbol.asyncIterator]();
  let rest: Uint8Array = new Uint8Array(0);
  let at = 0;
  /** Whether there is more. */
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
