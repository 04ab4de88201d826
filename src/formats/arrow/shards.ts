import { closeSync, fstatSync, openSync, promises } from "node:fs";
import { errnoOf, JobError } from "../../base/errors.js";
import type { ShardFile, ByteRange, SliceRequest } from "../format.js";
import { rewriteShard } from "../faults.js";
import { readFully, readLimitBytes } from "../read-fully.js";
import type { Column } from "../../columns/types.js";
import {
  type ArrowFooter,
  type ArrowSchema,
  type Block,
  layoutBatch,
  type Message,
  readArrowFooter,
  readArrowMessage,
  readPrefix,
} from "./metadata.js";

/** A shard's bytes, read where they are asked for. */
export interface ShardBytes extends AsyncDisposable {
  readonly file: ShardFile;
  readonly sizeBytes: number;
  /** Reads bytes [start, end) into `lent` or new memory. Bytes that the file does not have yet are fetched first. */
  read(start: number, end: number, lent?: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>>;
}

/** @throws JobError DISK @public so that tests see it */
export async function openBytes(file: ShardFile): Promise<ShardBytes> {
  const handle = await onDisk(file, () => promises.open(file.path));
  try {
    const { size } = await onDisk(file, () => handle.stat());
    return {
      file,
      sizeBytes: size,
      async read(start, end, lent) {
        const bytes = memoryFor(end - start, lent);
        for (let at = 0; at < bytes.length; ) {
          const length = Math.min(bytes.length - at, readLimitBytes);
          const { bytesRead } = await onDisk(file, () => handle.read(bytes, at, length, start + at));
          if (bytesRead === 0) {
            throw endsEarly(file, start + at, end);
          }
          at += bytesRead;
        }
        return bytes;
      },
      [Symbol.asyncDispose]: () => handle.close(),
    };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** The same, read by the thread that asks: it is in its core's cache then. For threads that have nothing else to do. */
export function openBytesHere(file: ShardFile): Promise<ShardBytes> {
  const descriptor = openSync(file.path, "r");
  let sizeBytes: number;
  try {
    sizeBytes = fstatSync(descriptor).size;
  } catch (error) {
    closeSync(descriptor);
    throw error;
  }
  return Promise.resolve({
    file,
    sizeBytes,
    read(start, end, lent) {
      const bytes = memoryFor(end - start, lent);
      const bytesRead = readFully(descriptor, bytes, start);
      if (bytesRead < bytes.length) {
        throw endsEarly(file, start + bytesRead, end);
      }
      return Promise.resolve(bytes);
    },
    [Symbol.asyncDispose]() {
      closeSync(descriptor);
      return Promise.resolve();
    },
  });
}

/** Returns memory that is not zeroed and not from Node's pool, since typed arrays must be aligned. */
function memoryFor(length: number, lent: Uint8Array<ArrayBuffer> | undefined): Uint8Array<ArrayBuffer> {
  return lent?.subarray(0, length) ?? new Uint8Array(Buffer.allocUnsafeSlow(length).buffer, 0, length);
}

function endsEarly({ path }: ShardFile, start: number, end: number): JobError {
  return corruptArrow(path, `it ends at byte ${start}, where ${end - start} more are due`);
}

async function onDisk<T>({ path }: ShardFile, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === undefined || error instanceof JobError) {
      throw error;
    }
    throw new JobError("DISK", `reading ${path}: ${errno}`, { cause: error });
  }
}

export function corruptArrow(path: string, found: string, hint = rewriteShard, cause?: unknown): JobError {
  return new JobError("SHARD_CORRUPT", `reading ${path}: ${found}`, { hint, cause });
}

/** Turns an error from reading damaged bytes into the error about the damage. Other errors are returned unchanged. */
export function damageOf(error: unknown, path: string, place: string, hint = rewriteShard): unknown {
  return error instanceof RangeError
    ? corruptArrow(path, `${place} is damaged (${error.message})`, hint, error)
    : error;
}

/** Reads a part of a file; the error about its damage names it. */
export async function inPlace<T>(path: string, place: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw damageOf(error, path, place);
  }
}

/** A shard whose messages are known. */
export interface OpenArrow extends AsyncDisposable {
  readonly bytes: ShardBytes;
  readonly index: ArrowIndex;
  /** Where the shard is one of many that share their dictionaries. */
  readonly known?: DictionaryCache | undefined;
}

/** What is known of a shard before its values are read. */
export interface ArrowIndex {
  readonly kind: "file" | "stream";
  /** The version of the metadata, counted from 0: of a stream's schema, or a file's footer. */
  readonly version: number;
  readonly sizeBytes: number;
  readonly schema: ArrowSchema;
  readonly batches: readonly IndexedBatch[];
  readonly dictionaries: readonly IndexedDictionary[];
  readonly rows: number;
  /** The size of the footer; for a stream, that of its messages without their bodies. */
  readonly footerBytes: number;
}

export interface IndexedBatch extends Block {
  /** The batch's number in the shard, from 0. */
  readonly number: number;
  /** The row of the shard that the batch begins with. */
  readonly rowStart: number;
  readonly rows: number;
  /** Whether its buffers are compressed, each as a whole. */
  readonly isCompressed: boolean;
  /** How many of the shard's dictionaries come before the batch: in a file all of them. */
  readonly dictionaries: number;
}

export interface IndexedDictionary extends Block {
  readonly id: number;
  readonly isDelta: boolean;
}

/** Dictionaries that were read before, by number and type of their values, and what they were read from. */
export type DictionaryCache = Map<string, { readonly blocks: readonly IndexedDictionary[]; readonly column: Column }>;

/** Shards whose index is kept: those that are read now, and next. */
const indexesKept = 32;

/**
 * Opens shards; the index of one that was opened before is not read again. Bodies are not read. What opens one throws
 * JobError SHARD_CORRUPT, DISK.
 */
export function openShards(
  open: (file: ShardFile) => Promise<ShardBytes> = openBytes,
): (file: ShardFile) => Promise<OpenArrow> {
  const known = new Map<string, Promise<ArrowIndex>>();
  return async (file) => {
    const bytes = await open(file);
    const key = `${bytes.sizeBytes} ${file.name}`;
    const index = known.get(key) ?? readIndex(bytes);
    known.delete(key);
    known.set(key, index); // the last one that was used comes last
    for (const oldest of known.keys()) {
      if (known.size <= indexesKept) {
        break;
      }
      known.delete(oldest);
    }
    try {
      return { bytes, index: await index, [Symbol.asyncDispose]: () => bytes[Symbol.asyncDispose]() };
    } catch (error) {
      known.delete(key);
      await bytes[Symbol.asyncDispose]();
      throw error;
    }
  };
}

export function checkEnd({ file, rowEnd }: SliceRequest, reached: number): void {
  if (reached !== rowEnd) {
    throw corruptArrow(file.path, `its rows end with row ${reached}, ${rowEnd} were planned`);
  }
}

const magic = "ARROW1";
const tailBytes = 4 + magic.length;
/** What comes before the first message of a file. */
const headBytes = 8;

async function readIndex(bytes: ShardBytes): Promise<ArrowIndex> {
  const reader = stretchReader(bytes);
  const head = latin1(await reader.read(0, Math.min(headBytes, bytes.sizeBytes)));
  refuseOther(head, bytes.file);
  return head.startsWith(magic) ? await readFileIndex(bytes, reader) : await readStreamIndex(bytes, reader);
}

function refuseOther(head: string, { path }: ShardFile): void {
  if (head === "") {
    throw corruptArrow(path, "the file is empty (0 bytes)", `its writer was stopped, perhaps; ${rewriteShard}`);
  }
  if (head.startsWith("PAR1")) {
    const hint = "give it a name that ends in .parquet, or take input.format out";
    throw corruptArrow(path, "it is Parquet, not Arrow", hint);
  }
  if (head.startsWith("FEA1")) {
    throw corruptArrow(path, "it is Feather version 1", "write it as Feather version 2, which is an Arrow file");
  }
}

async function readFileIndex(bytes: ShardBytes, reader: StretchReader): Promise<ArrowIndex> {
  const { sizeBytes, file } = bytes;
  const tailStart = sizeBytes - tailBytes;
  const tail = tailStart < headBytes ? undefined : await reader.read(tailStart, sizeBytes);
  if (tail === undefined || latin1(tail.subarray(4)) !== magic) {
    const found = `it begins as an Arrow file, but its end is missing (${sizeBytes} bytes)`;
    throw corruptArrow(file.path, found, `the file was cut off, or is still being written; ${rewriteShard}`);
  }
  const footerBytes = new DataView(tail.buffer, tail.byteOffset).getInt32(0, true);
  const bodyEnd = tailStart - footerBytes;
  if (footerBytes <= 0 || bodyEnd < headBytes) {
    throw corruptArrow(file.path, `it claims to have a footer of ${footerBytes} bytes, in a file of ${sizeBytes}`);
  }
  return await inPlace(file.path, "the footer, or a message that it names,", async () => {
    const footer = readArrowFooter(await reader.read(bodyEnd, tailStart));
    const { version, schema } = footer;
    refuseBigEndian(file.path, schema);
    refuseFaultyBlocks(footer, footerBytes, bodyEnd);
    const blocks = [...footer.dictionaries, ...footer.batches];
    await reader.fetch(blocks.map(({ offset, metadataBytes }) => ({ start: offset, end: offset + metadataBytes })));

    const walk = walkMessages(file.path, rewriteShard, footer);
    const dictionaries: IndexedDictionary[] = [];
    for (const block of footer.dictionaries) {
      const taken = walk.take(block, await messageOf(reader, block));
      if (taken.kind !== "dictionary") {
        throw new RangeError(`a ${taken.kind} message where a dictionary is due`);
      }
      dictionaries.push(taken.dictionary);
    }
    const batches: IndexedBatch[] = [];
    for (const [number, block] of footer.batches.entries()) {
      const read = async (): Promise<IndexedBatch> => {
        const taken = walk.take(block, await messageOf(reader, block));
        if (taken.kind !== "batch") {
          throw new RangeError(`a ${taken.kind} message where a batch is due`);
        }
        return taken.batch;
      };
      batches.push(await inPlace(file.path, `record batch ${number}`, read));
    }
    return { kind: "file", version, sizeBytes, footerBytes, schema, batches, dictionaries, rows: walk.rows };
  });
}

/** The bytes of a schema's message, and of padding, that a footer of the same schema may lack. */
const schemaMargin = 256;

/** Blocks may not share bytes: so the size of a file bounds what all of its blocks hold. */
function refuseFaultyBlocks({ dictionaries, batches }: ArrowFooter, footerBytes: number, bodyEnd: number): void {
  let used = 0;
  for (const { offset, metadataBytes, bodyBytes } of [...dictionaries, ...batches]) {
    const end = offset + metadataBytes + bodyBytes;
    used += metadataBytes + bodyBytes;
    if (offset < headBytes || metadataBytes < headBytes || bodyBytes < 0 || end > bodyEnd || used > bodyEnd) {
      throw new RangeError(`a block would be bytes ${offset} to ${end}, but blocks end at byte ${bodyEnd}`);
    }
  }
  // One wrong bit of a footer hides all batches; the job would score nothing and succeed.
  if (batches.length === 0 && bodyEnd - used > footerBytes + schemaMargin) {
    throw new RangeError(`it names no record batch, and ${bodyEnd - used} bytes before it belong to nothing`);
  }
}

async function messageOf(reader: StretchReader, { offset, metadataBytes, bodyBytes }: Block): Promise<Message> {
  const bytes = await reader.read(offset, offset + metadataBytes);
  const { prefixBytes, length } = readPrefix(bytes);
  if (length === 0 || prefixBytes + length > metadataBytes) {
    throw new RangeError(`a message of ${length} bytes where the footer says ${metadataBytes}`);
  }
  const message = readArrowMessage(bytes);
  if (message.bodyBytes !== bodyBytes) {
    throw new RangeError(`a body of ${message.bodyBytes} bytes where the footer says ${bodyBytes}`);
  }
  return message;
}

async function readStreamIndex(bytes: ShardBytes, reader: StretchReader): Promise<ArrowIndex> {
  const { sizeBytes, file } = bytes;
  const walk = walkMessages(file.path);
  const batches: IndexedBatch[] = [];
  const dictionaries: IndexedDictionary[] = [];
  let footerBytes = 0;
  let at = 0;
  for (;;) {
    try {
      const next = await readNext(reader, { at, sizeBytes, schema: walk.schema });
      if (next === "end") {
        const schema = walk.end();
        const { version, rows } = walk;
        return { kind: "stream", version, sizeBytes, schema, footerBytes, batches, dictionaries, rows };
      }
      if (next === undefined) {
        const hint = `its writer was stopped, or the file was cut off; ${rewriteShard}`;
        throw cutOff(file.path, `it stops at byte ${at} of ${sizeBytes}`, hint);
      }
      const taken = walk.take(next.block, next.message);
      if (taken.kind === "batch") {
        batches.push(taken.batch);
      } else if (taken.kind === "dictionary") {
        dictionaries.push(taken.dictionary);
      }
      footerBytes += next.block.metadataBytes;
      at += next.block.metadataBytes + next.block.bodyBytes;
    } catch (error) {
      throw damageOf(error, file.path, placeOfMessage(walk, at));
    }
  }
}

/** The size limit of one message, without its body. */
export const metadataLimit = 256 * 1024 * 1024;

/** The next message; undefined where the stream is cut off. @throws RangeError */
async function readNext(
  reader: StretchReader,
  { at, sizeBytes, schema }: { at: number; sizeBytes: number; schema: ArrowSchema | undefined },
): Promise<{ block: Block; message: Message } | "end" | undefined> {
  if (sizeBytes - at < 4) {
    return undefined;
  }
  const { prefixBytes, length } = readPrefix(await reader.read(at, Math.min(at + 8, sizeBytes)));
  if (length === 0) {
    if (schema !== undefined && at + prefixBytes !== sizeBytes) {
      throw new RangeError(`an end of the stream with ${sizeBytes - at - prefixBytes} bytes after it`);
    }
    return "end";
  }
  const metadataBytes = prefixBytes + length;
  if (schema === undefined && length > sizeBytes) {
    throw new RangeError("it is neither an Arrow file nor a stream");
  }
  if (at + metadataBytes > sizeBytes) {
    return undefined;
  }
  if (length > metadataLimit) {
    throw new RangeError(`a message of ${length} bytes without its body`);
  }
  const message = readArrowMessage(await reader.read(at, at + metadataBytes));
  const block = { offset: at, metadataBytes, bodyBytes: message.bodyBytes };
  return at + metadataBytes + message.bodyBytes > sizeBytes ? undefined : { block, message };
}

/** What is read at once of a stream: the metadata of small messages comes with it. */
const stretchBytes = { local: 16 * 1024, remote: 64 * 1024 };

type StretchReader = ReturnType<typeof stretchReader>;

/** Reads somewhat more than is asked for, for what comes after it. Where a file has not all, it is fetched first. */
function stretchReader(bytes: ShardBytes): {
  read(start: number, end: number): Promise<Uint8Array>;
  fetch(ranges: readonly ByteRange[]): Promise<void>;
} {
  const { file, sizeBytes } = bytes;
  const stretch = file.remote === undefined ? stretchBytes.local : stretchBytes.remote;
  let start = 0;
  let held = new Uint8Array(0);
  let fetched = false;
  return {
    async read(from, to) {
      if (from < start || to > start + held.length) {
        const end = fetched ? to : Math.min(sizeBytes, Math.max(to, from + stretch));
        await file.remote?.fetch([{ start: from, end }], { keep: true });
        held = await bytes.read(from, end);
        start = from;
      }
      return held.subarray(from - start, to - start);
    },
    async fetch(ranges) {
      fetched = true;
      await file.remote?.fetch(ranges, { keep: true });
    },
  };
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

/** Checks the order of a shard's messages, and numbers them. */
export interface MessageWalk {
  readonly version: number;
  readonly schema: ArrowSchema | undefined;
  /** Rows of the batches so far. */
  readonly rows: number;
  /** @throws RangeError, JobError SHARD_CORRUPT where a message does not fit the schema */
  take(block: Block, message: Message): TakenMessage;
  /** The stream's end has come. @throws RangeError when it has no schema yet */
  end(): ArrowSchema;
}

type TakenMessage =
  | { readonly kind: "schema" }
  | { readonly kind: "dictionary"; readonly dictionary: IndexedDictionary }
  | { readonly kind: "batch"; readonly batch: IndexedBatch };

/** `footer`: of a file, which has no message with the schema. */
export function walkMessages(
  path: string,
  hint = rewriteShard,
  footer?: { readonly version: number; readonly schema: ArrowSchema },
): MessageWalk {
  let { version = 0, schema } = footer ?? {};
  let number = 0;
  let dictionaries = 0;
  let rows = 0;
  return {
    get version() {
      return version;
    },
    get schema() {
      return schema;
    },
    get rows() {
      return rows;
    },
    take(block, message) {
      const { header } = message;
      if (header.kind === "schema") {
        if (schema !== undefined) {
          throw new RangeError("a second schema");
        }
        refuseBigEndian(path, header.schema);
        ({ version } = message);
        ({ schema } = header);
        return { kind: "schema" };
      }
      if (schema === undefined) {
        throw new RangeError("a message before the schema");
      }
      if (header.kind === "dictionary") {
        dictionaries += 1;
        return { kind: "dictionary", dictionary: { ...block, id: header.id, isDelta: header.isDelta } };
      }
      try {
        if (header.kind !== "batch") {
          throw new RangeError(`a ${header.kind} message where a batch is due`);
        }
        layoutBatch(schema.fields, header.batch, message);
        const isCompressed = header.batch.compression !== "none";
        const batch = { ...block, number, rowStart: rows, rows: header.batch.rows, isCompressed, dictionaries };
        number += 1;
        rows += batch.rows;
        return { kind: "batch", batch };
      } catch (error) {
        throw damageOf(error, path, `record batch ${number}`, hint);
      }
    },
    end() {
      if (schema === undefined) {
        throw new RangeError("an end without a schema");
      }
      return schema;
    },
  };
}

function refuseBigEndian(path: string, { bigEndian }: ArrowSchema): void {
  if (bigEndian) {
    throw corruptArrow(path, "its numbers are big-endian, which are not read", "write it on, or for, another machine");
  }
}

export function placeOfMessage({ schema }: MessageWalk, at: number): string {
  return schema === undefined ? "the schema" : `the message at byte ${at}`;
}

export function cutOff(path: string, where: string, hint: string): Error {
  return corruptArrow(path, `the stream has no end: ${where}, without an end-of-stream marker`, hint);
}
