import { GetObjectCommand, HeadObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import { type S3Uri, s3UriText } from "../spec/s3/s3-uri.js";
import {
  type SendRequest,
  objectChangedError,
  createSendRequest,
  ObjectMissingError,
  maxConcurrentRequests,
  type S3Options,
} from "./requests.js";
import { createClientProvider, defaultTimeouts } from "./client.js";
import { type ConnectionPool, type HttpResponse, openConnectionPool } from "../net/connections.js";
import { sendOverPool } from "./pool-transport.js";
import { BrokenTransfer } from "../net/http-failures.js";
import { type S3Call } from "./failures.js";
import { foldersOf, type ListedObject, listPages, objectsOf } from "./listing.js";
import type { Watchdog } from "./watchdog.js";

/** What HEAD reports about an object. */
export interface ObjectStat {
  readonly etag: string;
  readonly sizeBytes: number;
  /** The object's version, in a bucket that keeps versions. */
  readonly versionId?: string | undefined;
}

/** An object, or one of its versions. */
export interface ObjectVersion extends S3Uri {
  readonly versionId?: string | undefined;
}

/** A range of an object whose ETag is known. */
export interface ReadRequest {
  readonly object: ObjectVersion;
  readonly etag: string;
  /** [start, end), not empty. */
  readonly start: number;
  readonly end: number;
}

/** Which objects a listing yields. */
export interface ListOptions {
  /** Lists keys with a slash after the prefix by their common prefix only, once each, as objects without ETag and bytes. */
  readonly folder?: boolean;
  /** Lists only the store's first page. */
  readonly firstPage?: boolean;
}

/** A store, for reading. Every call is retried after a transient error. */
export interface S3Store extends Disposable {
  /**
   * Lists the objects of a bucket whose keys start with `prefix`, in the order of the keys.
   * @throws JobError FILE_MISSING for a bucket that is not there, PERMISSION, OBJECT_STORE
   */
  list(bucket: string, prefix: string, options?: ListOptions): AsyncIterable<ListedObject>;
  /** Resolves to undefined when the object does not exist. @throws JobError PERMISSION, OBJECT_STORE */
  stat(object: ObjectVersion): Promise<ObjectStat | undefined>;
  /**
   * Reads a range of an object, and passes it on in order.
   * @param act begins messages, such as "reading s3://bucket/key"
   * @param onBytes receives bytes, which are overwritten after it returns, and their offset in the object
   * @throws JobError INPUT_CHANGED when the object's ETag is another one, PERMISSION, OBJECT_STORE
   */
  read(
    act: string,
    request: ReadRequest,
    onBytes: (bytes: Uint8Array, offset: number) => void,
    signal?: AbortSignal,
  ): Promise<void>;
}

/** Opens a store for reading. */
export function openS3Store(options: S3Options): S3Store {
  const clients = createClientProvider(options, maxConcurrentRequests);
  return createReadingStore(createSendRequest(options, clients), options, clients);
}

/** Makes the reading half of a store. Disposing it disposes `clients`. */
export function createReadingStore(
  sendRequest: SendRequest,
  { settings, timeouts = defaultTimeouts }: Pick<S3Options, "settings" | "timeouts">,
  clients: Disposable,
): S3Store {
  const pool = openConnectionPool(timeouts.connectMs);
  const payer = settings.requestPayer === undefined ? {} : { RequestPayer: settings.requestPayer };
  return {
    async *list(bucket, prefix, { folder = false, firstPage = false } = {}) {
      for await (const page of listPages(sendRequest, { bucket, key: prefix }, { folder, payer })) {
        yield* objectsOf(page);
        for (const key of foldersOf(page)) {
          yield { key, etag: "", sizeBytes: 0 };
        }
        if (firstPage) {
          return;
        }
      }
    },
    async stat(object) {
      const call: S3Call = { act: `checking ${s3UriText(object)}`, action: "GetObject", object };
      const command = new HeadObjectCommand({ ...inputOf(object), ...payer });
      try {
        return await sendRequest(call, async (client, { signal }) => {
          const {
            ETag: etag,
            ContentLength: sizeBytes,
            VersionId: versionId,
          } = await client.send(command, { abortSignal: signal });
          if (etag === undefined || etag === "" || sizeBytes === undefined) {
            throw new BrokenTransfer("the response to HEAD has no ETag or no size");
          }
          return { etag, sizeBytes, ...(versionId === undefined ? {} : { versionId }) };
        });
      } catch (error) {
        if (error instanceof ObjectMissingError) {
          return undefined;
        }
        throw error;
      }
    },
    read: (act, request, onBytes, signal) => readRange(sendRequest, { pool, payer }, { act, request, onBytes, signal }),
    [Symbol.dispose]() {
      pool[Symbol.dispose]();
      clients[Symbol.dispose]();
    },
  };
}

function inputOf({ bucket, key, versionId }: ObjectVersion): { Bucket: string; Key: string; VersionId?: string } {
  return { Bucket: bucket, Key: key, ...(versionId === undefined ? {} : { VersionId: versionId }) };
}

interface RangeRead {
  readonly act: string;
  readonly request: ReadRequest;
  readonly onBytes: (bytes: Uint8Array, offset: number) => void;
  readonly signal: AbortSignal | undefined;
}

/** Reads a range; each attempt resumes where the last one ended. */
async function readRange(
  sendRequest: SendRequest,
  { pool, payer }: { pool: ConnectionPool; payer: object },
  { act, request: { object, etag, start, end }, onBytes, signal }: RangeRead,
): Promise<void> {
  const call: S3Call = { act, action: "GetObject", object };
  let offset = start;
  const onHeaders = (response: Omit<HttpResponse, "body">): ((chunk: Uint8Array) => void) | undefined => {
    if (response.status < 200 || response.status >= 300) {
      return undefined; // the SDK turns other statuses into errors
    }
    checkResponse(response, { start: offset, end, etag });
    const expected = end - offset;
    return (chunk) => {
      if (offset + chunk.length > end) {
        throw new BrokenTransfer(`a body of ${expected} bytes is longer`);
      }
      onBytes(chunk, offset);
      offset += chunk.length;
    };
  };
  const resume = async (client: S3Client, { reset, signal: stopped }: Watchdog): Promise<void> => {
    const from = offset;
    if (from === end) {
      return; // the last attempt failed after its last byte
    }
    const range = { Range: `bytes=${from}-${end - 1}`, IfMatch: etag };
    const command = new GetObjectCommand({ ...inputOf(object), ...range, ...payer });
    sendOverPool(pool, command, { onHeaders, onData: reset, signal: stopped });
    await client.send(command, { abortSignal: stopped });
    if (offset < end) {
      throw new BrokenTransfer(`a body of ${end - from} bytes ended after ${offset - from}`);
    }
  };
  await sendRequest(call, resume, signal).catch((error: unknown) => {
    throw error instanceof ObjectMissingError ? objectChangedError(call, "it is gone") : error;
  });
}

/** @throws BrokenTransfer when a response holds other bytes, or those of another object */
function checkResponse(
  { headers }: Omit<HttpResponse, "body">,
  { start, end, etag }: { start: number; end: number; etag: string },
): void {
  const { "content-range": range, etag: found } = headers;
  if (range !== undefined ? !range.startsWith(`bytes ${start}-${end - 1}/`) : start !== 0) {
    throw new BrokenTransfer(
      `the store answered with ${range ?? "all bytes"} where ${start} to ${end - 1} were asked for`,
    );
  }
  if (found !== undefined && found !== etag) {
    throw new BrokenTransfer(`the store answered with ETag ${found} where ${etag} was asked for`);
  }
}
