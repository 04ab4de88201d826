import type { StorePlace } from "../../objects/open.js";
import type { RequestLimits } from "../../objects/requests.js";
import type { ListedObject, ObjectName, ReadRequest, StoredObject } from "../../objects/protocol.js";
import { type ListOptions, type ObjectCalls, type ObjectStore, writeAtOffset } from "../../objects/store.js";
import { isInteger, isRecord, isUndefined } from "../../util/checks.js";
import type { RpcProtocol } from "../../util/rpc.js";

/** A store as a source of shards needs it: it fetches into files, and may run in another thread. */
export interface ObjectReader extends AsyncDisposable {
  /** Lists objects, as `ObjectStore.list` does. */
  list(bucket: string, prefix: string, options?: ListOptions): AsyncIterable<ListedObject>;
  /** Returns an object's ETag and size, as `ObjectStore.head` does. */
  stat(object: ObjectName): Promise<StoredObject | undefined>;
  /**
   * Fetches a range into an open file, at its offset in the object. Nothing is written after the promise settles.
   * @throws JobError as `ObjectStore.read`; the error of a failed write
   */
  fetchIntoFile(act: string, request: ReadRequest, fd: number, signal?: AbortSignal): Promise<void>;
  /** Reads a range into memory. @throws JobError as `ObjectStore.read` */
  readBytes(act: string, request: ReadRequest, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>>;
}

/** Makes a reader that runs in the calling thread. */
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

/** Settings of the reader thread, passed as `workerData`. */
export interface ReaderSettings {
  readonly place: StorePlace;
  readonly timeouts: RequestLimits;
  readonly retrySeconds: number;
}

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
  /** The descriptor of the file to write to. */
  readonly fd: number;
}

const isListCall = (value: unknown): value is ListCall =>
  isRecord(value) && typeof value["bucket"] === "string" && typeof value["prefix"] === "string";
const isUri = (value: unknown): value is ObjectName => isRecord(value) && typeof value["key"] === "string";
const isReadCall = (value: unknown): value is ReadCall => isRecord(value) && isRecord(value["request"]);
const isFetchCall = (value: unknown): value is FetchCall => isReadCall(value) && "fd" in value && isInteger(value.fd);
const isListed = (value: unknown): value is ListedObject[] => Array.isArray(value);
const isStat = (value: unknown): value is StoredObject | undefined => value === undefined || isRecord(value);
const isBytes = (value: unknown): value is Uint8Array<ArrayBuffer> => value instanceof Uint8Array;
const isText = (value: unknown): value is string => typeof value === "string";

/** The calls between the main thread and the reader thread, one for each method of `ObjectReader`. */
export const readerProtocol = {
  calls: {
    /** The items are pages of the listing. */
    list: { request: isListCall, item: isListed, result: isUndefined },
    stat: { request: isUri, result: isStat },
    fetchIntoFile: { request: isFetchCall, result: isUndefined },
    readBytes: { request: isReadCall, result: isBytes },
  },
  toServer: {
    /** The job is stopped: all calls end, also in the pause before a retry. */
    stop: isUndefined,
    /** The main thread makes no more calls: the thread ends. */
    end: isUndefined,
  },
  toClient: { warning: isText },
} satisfies RpcProtocol;
