/** A store of objects, behind a few verbs. Each is retried after a transient error, and is safe to retry. */
import { randomUUID } from "node:crypto";
import { once, setMaxListeners } from "node:events";
import { createReadStream, writeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { Exchange, HttpResponse } from "../../base/http/connections.js";
import { BrokenTransfer, startSilenceTimeout } from "../../base/http/http.js";
import { JobError, messageOf } from "../../base/errors.js";
import { createLimit } from "../../base/promises.js";
import { type RetryTools, tryAgain, type RetryVerdict } from "../../base/retry.js";
import { sha256Of } from "../../base/sha256.js";
import {
  ChangedBody,
  type ListedObject,
  type ObjectMetadata,
  type ObjectCall,
  type ObjectFailure,
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

/** Which objects a listing yields. */
export interface ListOptions {
  /** Lists keys with a slash after the prefix by their common prefix only, once each, as objects without ETag and bytes. */
  readonly folder?: boolean;
  readonly firstPage?: boolean;
}

type ObjectBody = string | FileBody;

/** A file to be sent; `sha256` is hex. */
export interface FileBody {
  readonly path: string;
  readonly sizeBytes: number;
  readonly sha256: string;
}

interface CreateRequest {
  readonly body: ObjectBody;
  readonly metadata?: ObjectMetadata;
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
  /**
   * Whether the store honours the conditions that nothing has a key, and that an object is one version. Writes to `probe`,
   * an unused key, and deletes it again.
   */
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
  const isRefused = async (text: string, over: PutOptions["over"]): Promise<boolean> =>
    await tools.send(call, async (stop) => {
      try {
        await putBody(tools, probe, text, { over, metadata: {} }, stop);
        return false;
      } catch (error) {
        const { kind } = tools.protocol.classify(error, call);
        const refusals: readonly string[] = over === "nothing" ? ["exists"] : ["exists", "changed", "missing"];
        if (kind === "unsupported" || refusals.includes(kind)) {
          return kind !== "unsupported";
        }
        throw error;
      }
    });
  try {
    for (let probes = 0; probes < maxProbes; probes += 1) {
      await isRefused("", "nothing");
      if (!(await isRefused("", "nothing"))) {
        continue;
      }
      const first = await callsWith(tools).head(probe);
      if (first !== undefined) {
        await isRefused("second", { etag: first.etag });
        return await isRefused("third", { etag: first.etag });
      }
    }
    return false;
  } finally {
    await callsWith(tools).remove(probe);
  }
}

/** The largest file that is sent as a buffer: a protocol may have to send it twice, which a stream cannot be. */
const smallBytes = 4 * 1024 * 1024;
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

/** Aligned. For larger writes Linux takes larger pages, from memory that was not used lately. */
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

/** How requests to a store of objects are sent: a bounded number at once, again after transient errors, within their time. */

export interface RequestLimits {
  readonly connectMs: number;
  /** The longest pause in which no byte of the response arrives or of the request leaves. */
  readonly silenceMs: number;
  /** The whole request, the response body included. */
  readonly requestMs: number;
}

/** How the requests of one store are sent. */
export interface RequestOptions {
  readonly timeouts: RequestLimits;
  readonly retry: RetryTools;
  /** The job's signal; requests reject with its reason. */
  readonly signal: AbortSignal;
}

/**
 * Sends a request, and again after each transient error until `retry` gives up. The job's signal and `stop` end it.
 * `send` passes its signal on.
 * @throws ObjectMissingError; JobError INPUT_CHANGED, PERMISSION, FILE_MISSING, OBJECT_STORE; a signal's reason
 */
type SendRequest = <T>(call: ObjectCall, send: (signal: AbortSignal) => Promise<T>, stop?: AbortSignal) => Promise<T>;

class ObjectMissingError extends Error {}

async function orUndefined<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ObjectMissingError) {
      return undefined;
    }
    throw error;
  }
}

/** The most requests to one store in flight at once. */
export const maxConcurrentRequests = 24;

/** Credentials that the store refuses are looked up again at most this often. */
const renewalMs = 5000;

function createSendRequest(
  protocol: Pick<ObjectProtocol, "classify" | "renew">,
  { timeouts, retry, signal }: RequestOptions,
): SendRequest {
  const limit = createLimit(maxConcurrentRequests);
  let renewal = { atMs: Number.NEGATIVE_INFINITY, done: Promise.resolve<unknown>(undefined) };

  const withRenewal = async <T>(call: ObjectCall, send: () => Promise<T>): Promise<T> => {
    const before = renewal;
    try {
      return await send();
    } catch (error) {
      if (protocol.classify(error, call).kind !== "credentials") {
        throw error;
      }
      if (renewal === before) {
        const nowMs = performance.now();
        if (nowMs - before.atMs < renewalMs) {
          throw error;
        }
        const done = protocol.renew().catch((failure: unknown) => {
          renewal = before;
          throw failure;
        });
        renewal = { atMs: nowMs, done };
      }
      await renewal.done;
      return await send();
    }
  };

  return async (call, send, stop = signal) => {
    const stops = [signal, stop];
    const judge = (error: unknown): RetryVerdict => {
      throwIfAborted(stops);
      return error instanceof JobError
        ? { kind: "end", error }
        : retryVerdict(error, protocol.classify(error, call), call);
    };
    const hint = "run the same command again; committed spans are kept. retry.max_seconds sets how long it tries";
    return await tryAgain(call.act, retry, { judge, code: "OBJECT_STORE", hint }, () =>
      limit(() => withRenewal(call, () => timed(send, stops, timeouts.requestMs))),
    );
  };
}

function throwIfAborted(stops: readonly AbortSignal[]): void {
  for (const stop of stops) {
    stop.throwIfAborted();
  }
}

/** `AbortSignal.any` is not used: Node 20 never frees its results. @throws the reason of what ended it */
async function timed<T>(
  send: (signal: AbortSignal) => Promise<T>,
  stops: readonly AbortSignal[],
  requestMs: number,
): Promise<T> {
  throwIfAborted(stops);
  const ended = new AbortController();
  const stop = (): void => {
    ended.abort(stops.find(({ aborted }) => aborted)?.reason);
  };
  const timer = setTimeout(() => {
    ended.abort(new BrokenTransfer(`a request took more than ${requestMs / 1000} s`));
  }, requestMs);
  setMaxListeners(0, ...stops); // else Node warns of a leak when many requests are in flight
  for (const signal of stops) {
    signal.addEventListener("abort", stop);
  }
  try {
    return await send(ended.signal);
  } catch (error) {
    ended.signal.throwIfAborted();
    ended.abort(error); // a request goes on whose body could not be read
    throw error;
  } finally {
    clearTimeout(timer);
    for (const signal of stops) {
      signal.removeEventListener("abort", stop);
    }
  }
}

function retryVerdict(error: unknown, failure: ObjectFailure, call: ObjectCall): RetryVerdict {
  switch (failure.kind) {
    case "transient":
      return { kind: "again", found: failure.found };
    case "credentials":
      // New credentials may arrive a moment after the old ones expire.
      return failure.expired ? { kind: "again", found: failure.found } : { kind: "end", error: failure.error };
    case "missing":
      return { kind: "end", error: new ObjectMissingError(`${call.act}: there is no such object`) };
    case "changed":
      return { kind: "end", error: objectChangedError(call, failure.found) };
    case "permanent":
    case "unsupported":
      return { kind: "end", error: failure.error };
    case "exists": {
      const hint = "give the credentials the right to replace what is there";
      return {
        kind: "end",
        error: new JobError("PERMISSION", `${call.act}: the store lets nothing be replaced`, { hint }),
      };
    }
    case "bug":
    default:
      return { kind: "end", error };
  }
}

function objectChangedError({ act }: ObjectCall, found: string): JobError {
  return new JobError("INPUT_CHANGED", `${act}: ${found}`, {
    hint: "put the planned object back; committed spans are kept",
  });
}

interface StoreTools {
  readonly protocol: ObjectProtocol;
  readonly send: SendRequest;
  readonly silenceMs: number;
}

/** @param onBytes receives bytes, which are overwritten after it returns, and their offset in the object */
async function readResuming(
  { protocol, send, silenceMs }: StoreTools,
  call: ObjectCall,
  { object, etag, start, end }: ReadRequest,
  onBytes: (bytes: Uint8Array, offset: number) => void,
): Promise<void> {
  let offset = start;
  const resumed = send(call, async (signal) => {
    const from = offset;
    if (from === end) {
      return; // the last attempt failed after its last byte
    }

    using silence = startSilenceTimeout(signal, silenceMs);
    const onHeaders: Exchange["onHeaders"] = (response) => {
      silence.reset();
      if (response.status < 200 || response.status >= 300) {
        return undefined; // the protocol turns other statuses into errors
      }
      checkResponse(response, { start: from, end, etag });
      return (chunk) => {
        silence.reset();
        if (offset + chunk.length > end) {
          throw new BrokenTransfer(`a body of ${end - from} bytes is longer`);
        }
        onBytes(chunk, offset);
        offset += chunk.length;
      };
    };
    await protocol.get({ object, etag, start: from, end, onHeaders }, silence.signal);
    if (offset < end) {
      throw new BrokenTransfer(`a body of ${end - from} bytes ended after ${offset - from}`);
    }
  });
  await resumed.catch((error: unknown) => {
    throw error instanceof ObjectMissingError ? objectChangedError(call, "it is gone") : error;
  });
}

function checkResponse(
  { headers }: Omit<HttpResponse, "body">,
  { start, end, etag }: { start: number; end: number; etag: string },
): void {
  const { "content-range": range, etag: answered } = headers;
  if (range !== undefined ? !range.startsWith(`bytes ${start}-${end - 1}/`) : start !== 0) {
    throw new BrokenTransfer(
      `the store answered with ${range ?? "all bytes"} where ${start} to ${end - 1} were asked for`,
    );
  }
  if (answered !== undefined && answered !== etag) {
    throw new BrokenTransfer(`the store answered with ETag ${answered} where ${etag} was asked for`);
  }
}
