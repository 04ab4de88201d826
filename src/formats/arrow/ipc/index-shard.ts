import type { Claim } from "../../by-format.js";
import { inBatch } from "./body.js";
import { corruptArrow, damageOf, type MessageReader, refuseBigEndian, type ShardBytes } from "./bytes.js";
import { rewriteShard } from "../../error-hints.js";
import { type Block, type Message, readFooterTable, readMessage, readPrefix } from "./messages.js";
import { type ArrowIndex, type IndexedBatch, type IndexedDictionary, numberMessages } from "./numbering.js";
import { readStreamIndex } from "./stream.js";

const magic = "ARROW1";
const tailBytes = 4 + magic.length;
/** What comes before the first message of a file. */
const headBytes = 8;
/** What is read at once of a stream: the metadata of small messages comes with it. */
const stretchBytes = { local: 16 * 1024, remote: 64 * 1024 };

/** Reads the metadata of all messages; bodies are not read. @throws JobError SHARD_CORRUPT, DISK */
export async function readIndex(bytes: ShardBytes, claim: Claim): Promise<ArrowIndex> {
  const { path } = bytes.file;
  const reader = stretchReader(bytes);
  const head = latin1(await reader.read(0, Math.min(headBytes, bytes.sizeBytes)));
  const kind = head.startsWith(magic) ? "file" : "stream";
  refuseOther(head, { kind, claim, path });
  const index = kind === "file" ? await readFileIndex(bytes, reader) : await readStreamIndex(bytes, reader);
  refuseBigEndian(path, index.schema.bigEndian);
  return index;
}

function refuseOther(head: string, { kind, claim, path }: { kind: string; claim: Claim; path: string }): void {
  if (head === "") {
    throw corruptArrow(path, "the file is empty (0 bytes)", `its writer was stopped, perhaps; ${rewriteShard}`);
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

async function readFileIndex(bytes: ShardBytes, reader: MessageReader): Promise<ArrowIndex> {
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
  try {
    const footer = readFooterTable(await reader.read(bodyEnd, tailStart));
    const blocks = [...footer.dictionaries, ...footer.batches];
    refuseFaultyBlocks(blocks, bodyEnd);
    await reader.fetch(blocks.map(({ offset, metadataBytes }) => ({ start: offset, end: offset + metadataBytes })));
    const { schema, version } = footer;
    const numbering = numberMessages(schema);
    const dictionaries: IndexedDictionary[] = [];
    for (const block of footer.dictionaries) {
      dictionaries.push(numbering.dictionary(block, await messageOf(reader, block)));
    }
    const batches: IndexedBatch[] = [];
    for (const [number, block] of footer.batches.entries()) {
      const read = async (): Promise<IndexedBatch> => numbering.batch(block, await messageOf(reader, block));
      batches.push(await inBatch(file.path, `record batch ${number}`, read));
    }
    return { kind: "file", version, sizeBytes, footerBytes, schema, batches, dictionaries, rows: numbering.rows };
  } catch (error) {
    throw damageOf(error, file.path, "the footer, or a message that it names,");
  }
}

/** Blocks may not share bytes: so the size of a file bounds what all of its blocks hold. */
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

async function messageOf(reader: MessageReader, { offset, metadataBytes, bodyBytes }: Block): Promise<Message> {
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

/** Reads somewhat more than is asked for, for what comes after it. Where a file has not all, it is fetched first. */
function stretchReader(bytes: ShardBytes): MessageReader {
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
