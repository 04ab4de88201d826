import { corruptArrow, damageOf, type MessageReader, type ShardBytes } from "./bytes.js";
import { rewriteShard } from "../../error-hints.js";
import { type Block, type Message, readMessage, readPrefix } from "./messages.js";
import {
  type ArrowIndex,
  type IndexedBatch,
  type IndexedDictionary,
  type Numbering,
  numberMessages,
} from "./numbering.js";
import type { ArrowSchema } from "./schema.js";

/** The size limit of one message, without its body. */
export const metadataLimit = 256 * 1024 * 1024;

/** What a message of a stream is. */
export type StreamMessage =
  | { readonly kind: "schema" }
  | { readonly kind: "dictionary"; readonly dictionary: IndexedDictionary }
  | { readonly kind: "batch"; readonly batch: IndexedBatch };

/** Checks the order of a stream's messages, and collects their facts. */
export interface StreamWalk {
  readonly version: number;
  readonly schema: ArrowSchema | undefined;
  readonly rows: number;
  /** @throws RangeError, JobError SHARD_CORRUPT */
  take(block: Block, message: Message): StreamMessage;
  /** The stream's end has come. @throws RangeError when it has no schema yet */
  end(): ArrowSchema;
}

export function walkStream(path: string, hint = rewriteShard): StreamWalk {
  let schema: ArrowSchema | undefined;
  let version = 0;
  let numbering: Numbering | undefined;
  let batches = 0;
  return {
    get version() {
      return version;
    },
    get schema() {
      return schema;
    },
    get rows() {
      return numbering?.rows ?? 0;
    },
    take(block, message) {
      const { header } = message;
      if (header.kind === "schema") {
        if (schema !== undefined) {
          throw new RangeError("a second schema");
        }
        ({ version } = message);
        ({ schema } = header);
        numbering = numberMessages(schema);
        return { kind: "schema" };
      }
      if (numbering === undefined) {
        throw new RangeError("a message before the schema");
      }
      if (header.kind === "dictionary") {
        return { kind: "dictionary", dictionary: numbering.dictionary(block, message) };
      }
      try {
        const batch = numbering.batch(block, message);
        batches += 1;
        return { kind: "batch", batch };
      } catch (error) {
        throw damageOf(error, path, `record batch ${batches}`, hint);
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

/** @throws JobError SHARD_CORRUPT */
export async function readStreamIndex(bytes: ShardBytes, reader: MessageReader): Promise<ArrowIndex> {
  const { sizeBytes, file } = bytes;
  const walk = walkStream(file.path);
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
      const { block, message } = next;
      const taken = walk.take(block, message);
      if (taken.kind === "batch") {
        batches.push(taken.batch);
      } else if (taken.kind === "dictionary") {
        dictionaries.push(taken.dictionary);
      }
      footerBytes += block.metadataBytes;
      at += block.metadataBytes + block.bodyBytes;
    } catch (error) {
      throw damageOf(error, file.path, placeOf(walk, at));
    }
  }
}

export function placeOf({ schema }: StreamWalk, at: number): string {
  return schema === undefined ? "the schema" : `the message at byte ${at}`;
}

export function cutOff(path: string, where: string, hint: string): Error {
  return corruptArrow(path, `the stream has no end: ${where}, without an end-of-stream marker`, hint);
}

/** The next message; undefined where the stream is cut off. @throws RangeError */
async function readNext(
  reader: MessageReader,
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
  const message = readMessage((await reader.read(at, at + metadataBytes)).subarray(prefixBytes));
  const block = { offset: at, metadataBytes, bodyBytes: message.bodyBytes };
  return at + metadataBytes + message.bodyBytes > sizeBytes ? undefined : { block, message };
}
