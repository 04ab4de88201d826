/** A store of objects, behind a few verbs. Each is retried after a transient error, and is safe to retry. */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createReadStream, writeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { BrokenTransfer } from "../net/http.js";
import { JobError, messageOf } from "../util/errors.js";
import { sha256Of } from "../util/sha256.js";
import {
  ChangedBody,
  type ListedObject,
  type Metadata,
  type ObjectCall,
  type ObjectName,
  type ObjectProtocol,
  type ObjectRange,
  type ObjectVersion,
  type PutOptions,
  type ReadRequest,
  type SentBody,
  type StoredObject,
  type StoredText,
} from "./protocol.js";
import { createSendRequest, orUndefined, readResuming, type RequestOptions, type StoreTools } from "./requests.js";

/** Which objects a listing yields. */
export interface ListOptions {
  /** Lists keys with a slash after the prefix by their common prefix only, once each, as objects without ETag and bytes. */
  readonly folder?: boolean;
  /** Lists only the store's first page. */
  readonly firstPage?: boolean;
}

/** An object's bytes: text, or a file. */
export type ObjectBody = string | FileBody;

/** A file to be sent; `sha256` is hex. */
export interface FileBody {
  readonly path: string;
  readonly sizeBytes: number;
  readonly sha256: string;
}

/** An object to be created. */
export interface CreateRequest {
  readonly body: ObjectBody;
  readonly metadata?: Metadata;
  /** Whether the store honours the condition that nothing has the key. Otherwise only one process may write to it. */
  readonly conditional: boolean;
}

/** @throws JobError PERMISSION, OBJECT_STORE; FILE_MISSING for a bucket that is not there */
export interface ObjectCalls {
  /** Lists the objects of a bucket whose keys start with `prefix`, in the order of the keys. */
  list(bucket: string, prefix: string, options?: ListOptions): AsyncIterable<ListedObject>;
  /** Resolves to undefined when the object does not exist. */
  head(object: ObjectVersion): Promise<StoredObject | undefined>;
  /**
   * Reads a range of an object, and passes it on in order.
   * @param act begins messages, such as "reading s3://bucket/key"
   * @param onBytes receives bytes, which are overwritten after it returns, and their offset in the object
   * @throws JobError INPUT_CHANGED when the object's ETag is another one
   */
  read(act: string, request: ReadRequest, onBytes: (bytes: Uint8Array, offset: number) => void): Promise<void>;
  /** Reads a small UTF-8 object; undefined when it does not exist. */
  readText(object: ObjectName): Promise<StoredText | undefined>;
  /**
   * Creates an object unless its key exists. Resolves to `creationIdOf` the object that this call created, also after a
   * lost response; undefined: the key exists.
   */
  create(object: ObjectName, request: CreateRequest): Promise<string | undefined>;
  /** Overwrites an object. With `etag` only that version, where the store supports that. */
  put(object: ObjectName, text: string, etag?: string): Promise<"written" | "changed">;
  /** Copies an object within the store, with its metadata. Resolves to whether `from` exists. */
  copy(from: ObjectName, to: ObjectName): Promise<boolean>;
  /** Deletes an object that may be gone already. With `etag` only that version, where the store supports that. */
  remove(object: ObjectName, etag?: string): Promise<"removed" | "changed">;
  /** Whether the store honours the condition that nothing has a key. Writes to `probe`, an unused key, and deletes it again. */
  honoursConditions(probe: ObjectName): Promise<boolean>;
}

export interface ObjectStore extends ObjectCalls, Disposable {
  /** The same store; calls on it end when `stop` is aborted. */
  until(stop: AbortSignal): ObjectCalls;
}

/** Makes a store of a technology. Disposing closes that, too. */
export function openObjectStore(protocol: ObjectProtocol, options: RequestOptions): ObjectStore {
  const send = createSendRequest(protocol, options);
  const { silenceMs } = options.timeouts;
  return {
    ...callsWith({ protocol, send, silenceMs }),
    until: (stop) => callsWith({ protocol, send: (call, work) => send(call, work, stop), silenceMs }),
    [Symbol.dispose]: () => protocol[Symbol.dispose](),
  };
}

function callsWith(tools: StoreTools): ObjectCalls {
  const { protocol, send } = tools;
  return {
    list: (bucket, prefix, options = {}) => listObjects(tools, { bucket, key: prefix }, options),
    head: (object) => orUndefined(send(callOn(tools, "checking", object), (stop) => protocol.head(object, stop))),
    read: (act, request, onBytes) =>
      readResuming(tools, { act, action: "read", object: request.object }, request, onBytes),
    readText: (object) => orUndefined(send(callOn(tools, "reading", object), (stop) => protocol.getText(object, stop))),
    create: (object, request) => createObject(tools, object, request),
    async put(object, text, etag) {
      const outcome = await ifMatching(tools, callOn(tools, "writing", object), etag, (over, stop) =>
        putBody(tools, object, text, { over: over === undefined ? undefined : { etag: over }, metadata: {} }, stop),
      );
      return outcome === "done" ? "written" : "changed"; // also when the key has no object any more
    },
    async copy(from, to) {
      const copied = send(callOn(tools, "writing", to), async (stop) => {
        await protocol.copy(from, to, stop);
        return true;
      });
      return (await orUndefined(copied)) ?? false;
    },
    async remove(object, etag) {
      const outcome = await ifMatching(tools, callOn(tools, "removing", object), etag, (match, stop) =>
        protocol.remove(object, match, stop),
      );
      return outcome === "changed" ? "changed" : "removed";
    },
    honoursConditions: (probe) => honoursConditions(tools, probe),
  };
}

const actions = { listing: "list", checking: "read", reading: "read", writing: "write", removing: "remove" } as const;

/** Describes a call by the verb that messages write before the object's URI. */
function callOn({ protocol }: StoreTools, verb: keyof typeof actions, object: ObjectName): ObjectCall {
  return { act: `${verb} ${uriOf(protocol, object)}`, action: actions[verb], object };
}

function uriOf({ scheme }: ObjectProtocol, { bucket, key }: ObjectName): string {
  return `${scheme}://${bucket}/${key}`;
}

async function* listObjects(
  tools: StoreTools,
  prefix: ObjectName,
  { folder = false, firstPage = false }: ListOptions,
): AsyncGenerator<ListedObject> {
  for (let after: string | undefined; ; ) {
    const { objects, next } = await tools.send(callOn(tools, "listing", prefix), async (stop) => {
      const page = await tools.protocol.list(prefix, folder, after, stop);
      if (page.next !== undefined && (page.next === "" || page.next === after)) {
        // Such a page is requested again: nothing else would notice the objects that it leaves out.
        throw new BrokenTransfer("the store's listing is truncated, and does not say where it continues");
      }
      return page;
    });
    yield* objects;
    if (next === undefined || firstPage) {
      return;
    }
    after = next;
  }
}

/** Sends a request for a version of an object, if the store implements that. */
async function ifMatching(
  { protocol, send }: StoreTools,
  call: ObjectCall,
  etag: string | undefined,
  request: (etag: string | undefined, stop: AbortSignal) => Promise<unknown>,
): Promise<"done" | "changed" | "missing"> {
  let match = etag;
  return await send(call, async (stop) => {
    try {
      await request(match, stop).catch(async (error: unknown) => {
        if (match === undefined || protocol.classify(error, call).kind !== "unsupported") {
          throw error;
        }
        match = undefined;
        await request(match, stop);
      });
      return "done";
    } catch (error) {
      const { kind } = protocol.classify(error, call);
      if (kind === "missing" && (etag !== undefined || call.action === "remove")) {
        return "missing";
      }
      if (etag !== undefined && (kind === "changed" || kind === "exists")) {
        return "changed";
      }
      throw error;
    }
  });
}

const idKey = "inferbatchid";

/** The id of the call that created an object, unique to that call; undefined for objects that others put there. */
export function creationIdOf({ metadata }: StoredObject): string | undefined {
  return metadata[idKey];
}

async function createObject(
  tools: StoreTools,
  object: ObjectName,
  { body, metadata = {}, conditional }: CreateRequest,
): Promise<string | undefined> {
  const id = randomUUID();
  const options = { metadata: { ...metadata, [idKey]: id }, over: conditional ? ("nothing" as const) : undefined };
  const call = callOn(tools, "writing", object);
  const ownIdOf = (stored: StoredObject): string | undefined => (creationIdOf(stored) === id ? id : undefined);
  return await tools.send(call, async (stop) => {
    // Before each attempt: the response to the last one may be lost; and a body that is not needed is not sent.
    const before = await headOnce(tools, object, stop);
    if (before !== undefined) {
      return ownIdOf(before);
    }
    try {
      await putBody(tools, object, body, options, stop);
      return id;
    } catch (error) {
      if (tools.protocol.classify(error, call).kind !== "exists") {
        throw error;
      }
    }
    const after = await headOnce(tools, object, stop);
    if (after === undefined) {
      throw new BrokenTransfer("the key was in use, and then free again");
    }
    return ownIdOf(after);
  });
}

/** Asks for an object within another call; undefined: there is none. */
async function headOnce(tools: StoreTools, object: ObjectName, stop: AbortSignal): Promise<StoredObject | undefined> {
  try {
    return await tools.protocol.head(object, stop);
  } catch (error) {
    const failure = tools.protocol.classify(error, callOn(tools, "checking", object));
    if (failure.kind === "missing") {
      return undefined;
    }
    throw failure.kind === "permanent" ? failure.error : error;
  }
}

/** A worker that finishes the run may remove the probe at any time, so one success out of so many decides. */
const maxProbes = 3;

async function honoursConditions(tools: StoreTools, probe: ObjectName): Promise<boolean> {
  const call = callOn(tools, "writing", probe);
  const isRefused = async (): Promise<boolean> =>
    await tools.send(call, async (stop) => {
      try {
        await putBody(tools, probe, "", { over: "nothing", metadata: {} }, stop);
        return false;
      } catch (error) {
        const { kind } = tools.protocol.classify(error, call);
        if (kind === "unsupported" || kind === "exists") {
          return kind === "exists";
        }
        throw error;
      }
    });
  try {
    for (let probes = 0; probes < maxProbes; probes += 1) {
      await isRefused();
      if (await isRefused()) {
        return true;
      }
    }
    return false;
  } finally {
    await callsWith(tools).remove(probe);
  }
}

/** The largest file that is sent as a buffer: a protocol may have to send it twice, which a stream cannot be. */
const smallBytes = 4 * 1024 * 1024;
/** The size of one read of a file that is sent as a stream. */
const readBytes = 256 * 1024;

async function putBody(
  { protocol }: StoreTools,
  object: ObjectName,
  body: ObjectBody,
  options: PutOptions,
  stop: AbortSignal,
): Promise<void> {
  const cannotRead = (cause: unknown): never => {
    const message = `writing ${uriOf(protocol, object)}: reading the file to send: ${messageOf(cause)}`;
    const hint = "its disk fails, or something removes temporary files: run the same command again";
    throw new JobError("DISK", message, { hint, cause });
  };
  const sent = typeof body === "string" ? textBody(body) : await fileBody(body).catch(cannotRead);
  const { bytes } = sent;
  const put = async (): Promise<void> => {
    await protocol.put(object, sent, options, stop).catch((error: unknown) => {
      throw error instanceof ChangedBody || (!Buffer.isBuffer(bytes) && bytes.errored === error)
        ? cannotRead(error)
        : error;
    });
  };
  if (Buffer.isBuffer(bytes)) {
    await put();
    return;
  }

  try {
    // The request would wait for the bytes that cannot be read, and the store for those that are not sent.
    const failure = once(bytes, "error").then(([cause]) => cannotRead(cause));
    await Promise.race([put(), failure]);
  } finally {
    bytes.destroy(); // else the file of a failed request stays open
  }
}

function textBody(text: string): SentBody {
  const bytes = Buffer.from(text, "utf8");
  return { bytes, sizeBytes: bytes.length, sha256: sha256Of(bytes) };
}

/** Reads a small file, or opens a stream over a large one. */
async function fileBody({ path, ...facts }: FileBody): Promise<SentBody> {
  if (facts.sizeBytes <= smallBytes) {
    return { ...facts, bytes: await readFile(path) };
  }
  return { ...facts, bytes: createReadStream(path, { highWaterMark: readBytes }) };
}

/** The most bytes that one request asks for: parallel requests fill the network, and a failed one costs little. */
const requestBytes = 8 * 1024 * 1024;

/** Splits [start, end) into equal ranges of at most 8 MiB. */
export function splitRange({ start, end }: ObjectRange): ObjectRange[] {
  const count = Math.ceil((end - start) / requestBytes);
  const size = Math.ceil((end - start) / count);
  return Array.from({ length: count }, (_, index) => ({
    start: start + index * size,
    end: Math.min(start + (index + 1) * size, end),
  }));
}

/**
 * The size of a single write, aligned. For larger writes Linux takes larger pages, which come from memory that was not
 * used lately; for these it has pages that were freed a moment ago.
 */
const writeBytes = 32 * 1024;

/**
 * Makes a function that writes bytes to a file at their offset in the object. It writes synchronously, because the
 * bytes are overwritten after it returns, and blocks its thread during the write.
 */
export function writeAtOffset(fd: number): (bytes: Uint8Array, offset: number) => void {
  return (bytes, offset) => {
    // A single write may write less than it was given.
    for (let written = 0; written < bytes.length; ) {
      const toBoundary = writeBytes - ((offset + written) % writeBytes);
      written += writeSync(fd, bytes, written, Math.min(toBoundary, bytes.length - written), offset + written);
    }
  };
}
