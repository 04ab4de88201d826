import { setMaxListeners } from "node:events";
import { Worker } from "node:worker_threads";
import type { StorePlace } from "../stores/objects/open.js";
import { messageOf } from "../base/errors.js";
import {
  CredentialsError,
  type GiveCredentials,
  type GivenCredentials,
  type ListedObject,
  type ObjectName,
  type ReadRequest,
  type StoredObject,
} from "../stores/objects/protocol.js";
import {
  type ListOptions,
  type ObjectCalls,
  type ObjectStore,
  type RequestLimits,
  type RequestOptions,
  writeAtOffset,
} from "../stores/objects/store.js";
import { notifyServer, openRpcClient, type RpcCall, type RpcProtocol, untilExit } from "../base/rpc.js";

/** A store as a source of shards needs it: it fetches into files, and may run in another thread. */
export interface ObjectReader extends AsyncDisposable {
  /** Lists objects, as `ObjectStore.list` does. */
  list(bucket: string, prefix: string, options?: ListOptions): AsyncIterable<ListedObject>;
  /** Returns an object's ETag and size, as `ObjectStore.head` does. */
  stat(object: ObjectName): Promise<StoredObject | undefined>;
  /**
   * Nothing is written after the promise settles. @throws JobError as `ObjectStore.read`; the error of a failed write
   */
  fetchIntoFile(act: string, request: ReadRequest, fd: number, signal?: AbortSignal): Promise<void>;
  /** Reads a range into memory. @throws JobError as `ObjectStore.read` */
  readBytes(act: string, request: ReadRequest, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>>;
}

export function createReader(store: ObjectStore): ObjectReader {
  const until = (stop: AbortSignal | undefined): ObjectCalls => (stop === undefined ? store : store.until(stop));
  return {
    list: (bucket, prefix, options) => store.list(bucket, prefix, options),
    stat: (object) => store.head(object),
    fetchIntoFile: (act, request, fd, signal) => until(signal).read(act, request, writeAtOffset(fd)),
    async readBytes(act, request, signal) {
      const bytes = new Uint8Array(request.end - request.start);
      const onBytes = (chunk: Uint8Array, offset: number): void => {
        bytes.set(chunk, offset - request.start);
      };
      await until(signal).read(act, request, onBytes);
      return bytes;
    },
    [Symbol.asyncDispose]() {
      store[Symbol.dispose]();
      return Promise.resolve();
    },
  };
}

export interface ReaderSettings {
  readonly place: StorePlace;
  readonly timeouts: RequestLimits;
  readonly retrySeconds: number;
  /** Whether the main thread is asked for credentials. */
  readonly asksCredentials: boolean;
}

/** The answer of the main thread: credentials, or why there are none. */
export type CredentialsAnswer = GivenCredentials | Pick<CredentialsError, "message" | "hint">;

interface ListCall {
  readonly bucket: string;
  readonly prefix: string;
  readonly options: ListOptions;
}

interface ReadCall {
  /** Begins messages, such as "reading s3://bucket/key". */
  readonly act: string;
  readonly request: ReadRequest;
}

interface FetchCall extends ReadCall {
  readonly fd: number;
}

/** The calls between the main thread and the reader thread, one for each method of `ObjectReader`. */
export interface ReaderProtocol extends RpcProtocol {
  calls: {
    /** The items are pages of the listing. */
    list: { request: ListCall; item: ListedObject[]; result: undefined };
    stat: { request: ObjectName; result: StoredObject | undefined };
    fetchIntoFile: { request: FetchCall; result: undefined };
    readBytes: { request: ReadCall; result: Uint8Array<ArrayBuffer> };
  };
  toServer: {
    /** The job is stopped: all calls end, also in the pause before a retry. */
    stop: undefined;
    /** The main thread makes no more calls: the thread ends. */
    end: undefined;
    credentials: CredentialsAnswer;
  };
  toClient: { warning: string; credentialsWanted: undefined };
}

/** How long a thread may take to end by itself. */
const endTimeoutMs = 1000;
/** The `threadId` of a worker that has ended. */
const endedThreadId = -1;

/**
 * Starts at once, since its code takes a while to load. @param credentials asked when needed or expired; undefined:
 * from the environment
 */
export function openReaderThread(
  place: StorePlace,
  { timeouts, retry, signal }: RequestOptions,
  credentials?: GiveCredentials,
): ObjectReader {
  const asksCredentials = credentials !== undefined;
  const settings: ReaderSettings = { place, timeouts, retrySeconds: retry.maxSeconds, asksCredentials };
  const worker = new Worker(new URL("./reader-worker.js", import.meta.url), { workerData: settings, name: "reader" });
  const client = openRpcClient<ReaderProtocol>(worker, {
    doing: "reading from the store",
    onNotice: {
      warning(message) {
        retry.warn(message);
      },
      credentialsWanted() {
        void credentials?.()
          .catch((error: unknown) => ({
            message: messageOf(error),
            hint: error instanceof CredentialsError ? error.hint : undefined,
          }))
          .then((answer) => client.notify("credentials", { body: answer }));
      },
    },
  });
  const stop = (): void => {
    client.notify("stop", { body: undefined });
  };
  signal.addEventListener("abort", stop, { once: true });
  const throwIfStopped = (callSignal?: AbortSignal): void => {
    signal.throwIfAborted();
    callSignal?.throwIfAborted();
  };
  return {
    async *list(bucket, prefix, listOptions = {}) {
      throwIfStopped();
      const listed: ListedObject[] = [];
      const call = client.call("list", { body: { bucket, prefix, options: listOptions } }, (objects) => {
        listed.push(...objects);
      });
      await resultOf(call, signal);
      yield* listed;
    },
    async stat(object) {
      throwIfStopped();
      return await resultOf(client.call("stat", { body: object }), signal);
    },
    async fetchIntoFile(act, request, fd, callSignal) {
      throwIfStopped(callSignal);
      await resultOf(client.call("fetchIntoFile", { body: { act, request, fd } }), signal, callSignal);
    },
    async readBytes(act, request, callSignal) {
      throwIfStopped(callSignal);
      return await resultOf(client.call("readBytes", { body: { act, request } }), signal, callSignal);
    },
    async [Symbol.asyncDispose]() {
      signal.removeEventListener("abort", stop);
      stop();
      await endWorker(worker);
    },
  };
}

/** The thread ends by itself, so that its code cache is saved; it is terminated when that takes too long. */
async function endWorker(worker: Worker): Promise<void> {
  if (worker.threadId === endedThreadId) {
    return;
  }
  const ended = untilExit(worker);
  notifyServer<ReaderProtocol>(worker, "end");
  const timeout = setTimeout(() => void worker.terminate(), endTimeoutMs);
  await ended;
  clearTimeout(timeout);
}

/** A cancelled call settles only when the thread no longer uses its file. */
async function resultOf<T>({ result, cancel }: RpcCall<T>, job: AbortSignal, callSignal?: AbortSignal): Promise<T> {
  if (callSignal !== undefined) {
    setMaxListeners(0, callSignal); // else Node warns of a leak when many calls are open
    callSignal.addEventListener("abort", cancel, { once: true });
  }
  try {
    return await result;
  } catch (error) {
    job.throwIfAborted();
    callSignal?.throwIfAborted();
    throw error;
  } finally {
    callSignal?.removeEventListener("abort", cancel);
  }
}
