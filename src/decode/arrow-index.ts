import { corruptArrow, damageOf, rewriteArrow, type ShardBytes } from "./arrow-bytes.js";
import { layoutBatch } from "./arrow-layout.js";
import { type Block, type Message, readFooterTable, readMessage, readPrefix } from "./arrow-messages.js";
import type { ArrowSchema } from "./arrow-schema.js";
import type { ByteRange } from "./port.js";

/** What is known of a shard before its values are read. */
export interface ArrowIndex {
  readonly kind: "file" | "stream";
  readonly version: number;
  readonly sizeBytes: number;
  readonly schema: ArrowSchema;
  readonly batches: readonly IndexedBatch[];
  readonly dictionaries: readonly IndexedDictionary[];
  readonly rows: number;
  /** Of a stream: what its messages take without their bodies. */
  readonly footerBytes: number;
}

export interface IndexedBatch extends Block {
  /** Of the shard, its first row. */
  readonly rowStart: number;
  readonly rows: number;
  /** Of the shard's dictionaries, how many come before it: in a file all of them. */
  readonly dictionaries: number;
}

export interface IndexedDictionary extends Block {
  readonly id: number;
  readonly isDelta: boolean;
}

/** What a shard's name, or the spec, says that it is. */
export type Claim = "file" | "stream" | "either";

const magic = "ARROW1";
const tailBytes = 4 + magic.length;
/** What comes before the first message of a file. */
const headBytes = 8;
/** What is read at once of a stream: the metadata of small messages comes with it. */
const stretchBytes = { local: 16 * 1024, remote: 64 * 1024 };
const metadataLimit = 256 * 1024 * 1024;

/** Reads the metadata of all messages; bodies are not read. @throws JobError SHARD_CORRUPT, DISK */
export async function readIndex(bytes: ShardBytes, claim: Claim): Promise<ArrowIndex> {
  const { path } = bytes.file;
  const reader = stretchReader(bytes);
  const head = latin1(await reader.read(0, Math.min(headBytes, bytes.sizeBytes)));
  const kind = head.startsWith(magic) ? "file" : "stream";
  refuseOther(head, { kind, claim, path });
  const index = kind === "file" ? await readFileIndex(bytes, reader) : await readStreamIndex(bytes, reader);
  if (index.schema.bigEndian) {
    throw corruptArrow(path, "its numbers are big-endian, which are not read", "write it on, or for, another machine");
  }
  return index;
}

function refuseOther(head: string, { kind, claim, path }: { kind: string; claim: Claim; path: string }): void {
  if (head === "") {
    throw corruptArrow(path, "the file is empty (0 bytes)", `its writer was stopped, perhaps; ${rewriteArrow}`);
  }
  if (head.startsWith("PAR1")) {
    throw corruptArrow(
      path,
      "it is Parquet, not Arrow",
      "give it a name that ends in .parquet, or take input.format out",
    );
  }
  if (head.startsWith("FEA1")) {
    throw corruptArrow(path, "it is Feather version 1", "write it as Feather version 2, which is an Arrow file");
  }
  if (claim !== "either" && kind !== claim) {
    const found =
      kind === "file"
        ? "its name says that it is an Arrow stream, but it is an Arrow file"
        : `its name says that it is an Arrow file, but it begins with ${JSON.stringify(head.slice(0, 4))}, not "${magic}"`;
    throw corruptArrow(path, found, "call files .arrow or .feather and streams .arrows, or set input.format: arrow");
  }
}

async function readFileIndex(bytes: ShardBytes, reader: Reader): Promise<ArrowIndex> {
  const { sizeBytes, file } = bytes;
  const tailStart = sizeBytes - tailBytes;
  const tail = tailStart < headBytes ? undefined : await reader.read(tailStart, sizeBytes);
  if (tail === undefined || latin1(tail.subarray(4)) !== magic) {
    const found = `it begins as an Arrow file, but its end is missing (${sizeBytes} bytes)`;
    throw corruptArrow(file.path, found, `the file was cut off, or is still being written; ${rewriteArrow}`);
  }
  const footerBytes = new DataView(tail.buffer, tail.byteOffset).getInt32(0, true);
  const bodyEnd = tailStart - footerBytes;
  if (footerBytes <= 0 || bodyEnd < headBytes) {
    throw corruptArrow(file.path, `it claims to have a footer of ${footerBytes} bytes, in a file of ${sizeBytes}`);
  }
  try {
    const footer = readFooterTable(await reader.read(bodyEnd, tailStart));
    const blocks = [...footer.dictionaries, ...footer.batches];
    refuseFaultyBlocks(blocks, bodyEnd);
    await reader.fetch(blocks.map(({ offset, metadataBytes }) => ({ start: offset, end: offset + metadataBytes })));
    const index = createIndex({ schema: footer.schema, version: footer.version });
    for (const block of footer.dictionaries) {
      index.dictionary(block, await messageOf(reader, block));
    }
    for (const [place, block] of footer.batches.entries()) {
      await index.batch(block, () => messageOf(reader, block), { path: file.path, place });
    }
    return { kind: "file", version: footer.version, sizeBytes, footerBytes, schema: footer.schema, ...index.finish() };
  } catch (error) {
    throw damageOf(error, file.path, "the footer, or a message that it names,");
  }
}

/** Blocks may not share bytes: what they make of a small file together is bounded by it. */
function refuseFaultyBlocks(blocks: readonly Block[], bodyEnd: number): void {
  let used = 0;
  for (const { offset, metadataBytes, bodyBytes } of blocks) {
    const end = offset + metadataBytes + bodyBytes;
    used += metadataBytes + bodyBytes;
    if (offset < headBytes || metadataBytes < headBytes || bodyBytes < 0 || end > bodyEnd || used > bodyEnd) {
      throw new RangeError(`a block would be bytes ${offset} to ${end}, but blocks end at byte ${bodyEnd}`);
    }
  }
}

async function messageOf(reader: Reader, { offset, metadataBytes, bodyBytes }: Block): Promise<Message> {
  const bytes = await reader.read(offset, offset + metadataBytes);
  const { prefixBytes, length } = readPrefix(bytes);
  if (length === 0 || prefixBytes + length > metadataBytes) {
    throw new RangeError(`a message of ${length} bytes where the footer says ${metadataBytes}`);
  }
  const message = readMessage(bytes.subarray(prefixBytes, prefixBytes + length));
  if (message.bodyBytes !== bodyBytes) {
    throw new RangeError(`a body of ${message.bodyBytes} bytes where the footer says ${bodyBytes}`);
  }
  return message;
}

async function readStreamIndex(bytes: ShardBytes, reader: Reader): Promise<ArrowIndex> {
  const { sizeBytes, file } = bytes;
  const found: StreamFacts = { at: 0, version: 0, footerBytes: 0, batches: 0, schema: undefined, index: undefined };
  for (;;) {
    let block: Block | "end" | undefined;
    try {
      block = await readNext(reader, found, bytes);
    } catch (error) {
      const place = found.schema === undefined ? "the schema" : `the message at byte ${found.at}`;
      throw damageOf(error, file.path, place);
    }
    const { schema, index, version, footerBytes } = found;
    if (block === "end" && schema !== undefined && index !== undefined) {
      return { kind: "stream", version, sizeBytes, schema, footerBytes, ...index.finish() };
    }
    if (block === undefined || block === "end") {
      const shown = `the stream has no end: it stops at byte ${found.at} of ${sizeBytes}, without an end-of-stream marker`;
      throw corruptArrow(file.path, shown, `its writer was stopped, or the file was cut off; ${rewriteArrow}`);
    }
    found.at += block.metadataBytes + block.bodyBytes;
  }
}

/** What the messages of a stream have told so far. */
interface StreamFacts {
  at: number;
  version: number;
  footerBytes: number;
  batches: number;
  schema: ArrowSchema | undefined;
  index: IndexBuilder | undefined;
}

/** Takes in the next message; undefined where the stream is cut off. @throws RangeError */
async function readNext(
  reader: Reader,
  found: StreamFacts,
  { sizeBytes, file }: ShardBytes,
): Promise<Block | "end" | undefined> {
  const { at } = found;
  if (sizeBytes - at < 4) {
    return undefined;
  }
  const { prefixBytes, length } = readPrefix(await reader.read(at, Math.min(at + 8, sizeBytes)));
  if (length === 0) {
    if (found.schema === undefined) {
      throw new RangeError("an end without a schema");
    }
    if (at + prefixBytes !== sizeBytes) {
      throw new RangeError(`an end of the stream with ${sizeBytes - at - prefixBytes} bytes after it`);
    }
    return "end";
  }
  const metadataBytes = prefixBytes + length;
  if (found.schema === undefined && length > sizeBytes) {
    throw new RangeError("it is neither an Arrow file nor a stream");
  }
  if (at + metadataBytes > sizeBytes) {
    return undefined;
  }
  if (length > metadataLimit) {
    throw new RangeError(`a message of ${length} bytes without its body`);
  }
  const message = readMessage((await reader.read(at, at + metadataBytes)).subarray(prefixBytes));
  const block = { offset: at, metadataBytes, bodyBytes: message.bodyBytes };
  if (at + metadataBytes + message.bodyBytes > sizeBytes) {
    return undefined;
  }
  found.footerBytes += metadataBytes;
  await takeMessage(found, message, { block, path: file.path });
  return block;
}

async function takeMessage(
  found: StreamFacts,
  message: Message,
  { block, path }: { block: Block; path: string },
): Promise<void> {
  const { header, version } = message;
  if (header.kind === "schema") {
    if (found.schema !== undefined) {
      throw new RangeError("a second schema");
    }
    found.version = version;
    found.schema = header.schema;
    found.index = createIndex({ schema: header.schema, version });
  } else if (found.index === undefined) {
    throw new RangeError("a message before the schema");
  } else if (header.kind === "dictionary") {
    found.index.dictionary(block, message);
  } else {
    await found.index.batch(block, () => Promise.resolve(message), { path, place: found.batches });
    found.batches += 1;
  }
}

interface IndexBuilder {
  dictionary(block: Block, message: Message): void;
  batch(block: Block, read: () => Promise<Message>, where: { path: string; place: number }): Promise<void>;
  finish(): Pick<ArrowIndex, "batches" | "dictionaries" | "rows">;
}

function createIndex({ schema, version }: Pick<ArrowIndex, "schema" | "version">): IndexBuilder {
  const dictionaries: IndexedDictionary[] = [];
  const batches: IndexedBatch[] = [];
  let rows = 0;
  return {
    dictionary(block, { header }) {
      if (header.kind !== "dictionary") {
        throw new RangeError(`a ${header.kind} message where a dictionary is due`);
      }
      dictionaries.push({ ...block, id: header.id, isDelta: header.isDelta });
    },
    async batch(block, read, { path, place }) {
      try {
        const { header } = await read();
        if (header.kind !== "batch") {
          throw new RangeError(`a ${header.kind} message where a batch is due`);
        }
        layoutBatch(schema, header.batch, { bodyBytes: block.bodyBytes, version });
        batches.push({ ...block, rowStart: rows, rows: header.batch.rows, dictionaries: dictionaries.length });
        rows += header.batch.rows;
      } catch (error) {
        throw damageOf(error, path, `record batch ${place}`);
      }
    },
    finish: () => ({ batches, dictionaries, rows }),
  };
}

interface Reader {
  read(start: number, end: number): Promise<Uint8Array>;
  fetch(ranges: readonly ByteRange[]): Promise<void>;
}

/** Reads somewhat more than is asked for, for what comes after it. Where a file has not all, it is fetched first. */
function stretchReader(bytes: ShardBytes): Reader {
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
