import type { Readable } from "node:stream";
import { GetObjectCommand, type GetObjectCommandOutput, HeadObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import { type S3Uri, s3UriText } from "../spec/s3-uri.js";
import { type Attempt, changed, createAttempts, NotThere, requestsAtOnce, type S3Options } from "./attempts.js";
import { readBody, type Watch } from "./body.js";
import { createClients, defaultTimeouts } from "./client.js";
import { BrokenTransfer, type S3Call } from "./failures.js";
import { type ListedObject, listPages, objectsIn } from "./listing.js";

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

/** A store, as far as reading goes. Every call is tried again while the weather is bad. */
export interface S3Store extends Disposable {
  /**
   * Objects of a bucket whose key begins with a prefix, in the order of their keys. `folder`: without those that have
   * a slash after it.
   * @throws JobError FILE_MISSING for a bucket that is not there, PERMISSION, OBJECT_STORE
   */
  list(bucket: string, prefix: string, options?: { readonly folder?: boolean }): AsyncIterable<ListedObject>;
  /** undefined: it is not there. @throws JobError PERMISSION, OBJECT_STORE */
  look(object: S3Uri): Promise<ObjectFacts | undefined>;
  /**
   * Reads bytes of an object that must still be the one with this ETag, and hands them on in order.
   * @param doing how messages begin
   * @throws JobError INPUT_CHANGED, PERMISSION, OBJECT_STORE
   */
  read(
    doing: string,
    request: ReadRequest,
    take: (pieces: readonly Uint8Array[], at: number) => Promise<void>,
    signal?: AbortSignal,
  ): Promise<void>;
}

export function openS3Store(options: S3Options): S3Store {
  const { place, timeouts = defaultTimeouts } = options;
  const clients = createClients(place, timeouts, requestsAtOnce);
  return readingStore(createAttempts(options, clients), options, clients);
}

/** What reads, of a store. Closing it closes the clients. */
export function readingStore(attempt: Attempt, { place }: Pick<S3Options, "place">, clients: Disposable): S3Store {
  const payer = place.requestPayer === undefined ? {} : { RequestPayer: place.requestPayer };
  return {
    async *list(bucket, prefix, { folder = false } = {}) {
      for await (const page of listPages(attempt, { bucket, key: prefix }, { folder, payer })) {
        yield* objectsIn(page);
      }
    },
    async look(object) {
      const call: S3Call = { doing: `looking at ${s3UriText(object)}`, action: "GetObject", object };
      const command = new HeadObjectCommand({ Bucket: object.bucket, Key: object.key, ...payer });
      try {
        const found = await attempt(call, (client, { signal }) => client.send(command, { abortSignal: signal }));
        return { etag: found.ETag ?? "", sizeBytes: found.ContentLength ?? 0 };
      } catch (error) {
        if (error instanceof NotThere) {
          return undefined;
        }
        throw error;
      }
    },
    async read(doing, { object, etag, start, end }, take, signal) {
      const call: S3Call = { doing, action: "GetObject", object };
      let at = start;
      const readOn = async (client: S3Client, watch: Watch): Promise<void> => {
        const range = { Range: `bytes=${at}-${end - 1}`, IfMatch: etag };
        const command = new GetObjectCommand({ Bucket: object.bucket, Key: object.key, ...range, ...payer });
        const found = await client.send(command, { abortSignal: watch.signal });
        watch.heard();
        const body = bodyOf(found, { start: at, end, etag });
        await readBody(body, { expectedBytes: end - at, watch }, async (pieces) => {
          await take(pieces, at);
          at += pieces.reduce((sum, piece) => sum + piece.length, 0);
        });
      };
      await attempt(call, readOn, signal).catch((error: unknown) => {
        throw error instanceof NotThere ? changed(call, "it is gone") : error;
      });
    },
    [Symbol.dispose]() {
      clients[Symbol.dispose]();
    },
  };
}

/** The body of an answer that is for these bytes, and no others. */
function bodyOf(
  { Body: body, ContentRange: range, ETag: found }: GetObjectCommandOutput,
  { start, end, etag }: { start: number; end: number; etag: string },
): Readable {
  const stream = body as Readable | undefined;
  const discard = (what: string): BrokenTransfer => {
    stream?.destroy();
    return new BrokenTransfer(what);
  };
  if (stream === undefined) {
    throw discard("the store answered without a body");
  }
  if (range !== undefined ? !range.startsWith(`bytes ${start}-${end - 1}/`) : start !== 0) {
    throw discard(`the store answered with ${range ?? "all bytes"} where ${start} to ${end - 1} were asked for`);
  }
  if (found !== undefined && found !== etag) {
    throw discard(`the store answered with ETag ${found} where ${etag} was asked for`);
  }
  return stream;
}
