import { GetObjectCommand, HeadObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import { type S3Uri, s3UriText } from "../spec/s3-uri.js";
import { type Attempt, changed, createAttempts, NotThere, requestsAtOnce, type S3Options } from "./attempts.js";
import { createClients, defaultTimeouts } from "./client.js";
import { type Connections, openConnections } from "./connections.js";
import { sendOver } from "./direct.js";
import type { Answer } from "./exchange.js";
import { BrokenTransfer, type S3Call } from "./failures.js";
import { foldersIn, type ListedObject, listPages, objectsIn } from "./listing.js";
import type { Watch } from "./watch.js";

export interface ObjectFacts {
  readonly etag: string;
  readonly sizeBytes: number;
}

/** What is read of an object: some bytes of what it was when it was pinned. */
export interface ReadRequest {
  readonly object: S3Uri;
  readonly etag: string;
  /** [start, end), not empty. */
  readonly start: number;
  readonly end: number;
}

export interface ListOptions {
  /** Of keys with a slash after the prefix only what they begin with is told, once, as an object of no bytes. */
  readonly folder?: boolean;
  /** Only what the store tells in its first answer. */
  readonly firstPage?: boolean;
}

/** A store, as far as reading goes. Every call is tried again after a transient error. */
export interface S3Store extends Disposable {
  /**
   * Objects of a bucket whose key begins with a prefix, in the order of their keys.
   * @throws JobError FILE_MISSING for a bucket that is not there, PERMISSION, OBJECT_STORE
   */
  list(bucket: string, prefix: string, options?: ListOptions): AsyncIterable<ListedObject>;
  /** undefined: it is not there. @throws JobError PERMISSION, OBJECT_STORE */
  look(object: S3Uri): Promise<ObjectFacts | undefined>;
  /**
   * Reads bytes of an object that must still be the one with this ETag, and hands them on in order.
   * @param doing how messages begin
   * @param take gets pieces that hold until it returns
   * @throws JobError INPUT_CHANGED, PERMISSION, OBJECT_STORE
   */
  read(
    doing: string,
    request: ReadRequest,
    take: (piece: Uint8Array, at: number) => void,
    signal?: AbortSignal,
  ): Promise<void>;
}

export function openS3Store(options: S3Options): S3Store {
  const clients = createClients(options, requestsAtOnce);
  return readingStore(createAttempts(options, clients), options, clients);
}

/** What reads, of a store. Closing it closes the clients. */
export function readingStore(
  attempt: Attempt,
  { place, timeouts = defaultTimeouts }: Pick<S3Options, "place" | "timeouts">,
  clients: Disposable,
): S3Store {
  const connections = openConnections(timeouts.connectMs);
  const payer = place.requestPayer === undefined ? {} : { RequestPayer: place.requestPayer };
  return {
    async *list(bucket, prefix, { folder = false, firstPage = false } = {}) {
      for await (const page of listPages(attempt, { bucket, key: prefix }, { folder, payer })) {
        yield* objectsIn(page);
        for (const key of foldersIn(page)) {
          yield { key, etag: "", sizeBytes: 0 };
        }
        if (firstPage) {
          return;
        }
      }
    },
    async look(object) {
      const call: S3Call = { doing: `looking at ${s3UriText(object)}`, action: "GetObject", object };
      const command = new HeadObjectCommand({ Bucket: object.bucket, Key: object.key, ...payer });
      try {
        return await attempt(call, async (client, { signal }) => {
          const { ETag: etag, ContentLength: sizeBytes } = await client.send(command, { abortSignal: signal });
          if (etag === undefined || etag === "" || sizeBytes === undefined) {
            throw new BrokenTransfer("the store does not say an object's ETag or size");
          }
          return { etag, sizeBytes };
        });
      } catch (error) {
        if (error instanceof NotThere) {
          return undefined;
        }
        throw error;
      }
    },
    read: (doing, request, take, signal) => read(attempt, { connections, payer }, { doing, request, take, signal }),
    [Symbol.dispose]() {
      connections[Symbol.dispose]();
      clients[Symbol.dispose]();
    },
  };
}

interface Reading {
  readonly doing: string;
  readonly request: ReadRequest;
  readonly take: (piece: Uint8Array, at: number) => void;
  readonly signal: AbortSignal | undefined;
}

/** Each try goes on where the one before broke off. */
async function read(
  attempt: Attempt,
  { connections, payer }: { connections: Connections; payer: object },
  { doing, request: { object, etag, start, end }, take, signal }: Reading,
): Promise<void> {
  const call: S3Call = { doing, action: "GetObject", object };
  let at = start;
  const begin = (answer: Omit<Answer, "body">): ((piece: Uint8Array) => void) | undefined => {
    if (answer.status < 200 || answer.status >= 300) {
      return undefined; // what it means is for the SDK to say
    }
    refuseOther(answer, { start: at, end, etag });
    const expected = end - at;
    return (piece) => {
      if (at + piece.length > end) {
        throw new BrokenTransfer(`a body of ${expected} bytes has more`);
      }
      take(piece, at);
      at += piece.length;
    };
  };
  const readOn = async (client: S3Client, { heard, signal: stopped }: Watch): Promise<void> => {
    const from = at;
    if (from === end) {
      return; // all of it had come when something failed
    }
    const range = { Range: `bytes=${at}-${end - 1}`, IfMatch: etag };
    const command = new GetObjectCommand({ Bucket: object.bucket, Key: object.key, ...range, ...payer });
    sendOver(connections, command, { begin, heard, signal: stopped });
    await client.send(command, { abortSignal: stopped });
    if (at < end) {
      throw new BrokenTransfer(`a body of ${end - from} bytes ended after ${at - from}`);
    }
  };
  await attempt(call, readOn, signal).catch((error: unknown) => {
    throw error instanceof NotThere ? changed(call, "it is gone") : error;
  });
}

/** @throws BrokenTransfer when an answer is not for these bytes of this object */
function refuseOther(
  { headers }: Omit<Answer, "body">,
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
