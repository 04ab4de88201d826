import {
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  type ListObjectsV2CommandOutput,
  type S3Client,
} from "@aws-sdk/client-s3";
import { JobError } from "../errors.js";
import { type RetryTools, tryAgain, type Verdict } from "../retry.js";
import { type S3Uri, s3UriText } from "../spec/s3-uri.js";
import { type Clients, createClients, defaultTimeouts, type S3Place, type S3Timeouts } from "./client.js";
import { type Connections, openConnections } from "./connections.js";
import { sendOver } from "./direct.js";
import type { Answer } from "./exchange.js";
import { BrokenTransfer, classify, type S3Call } from "./failures.js";
import { createLimit } from "./limit.js";
import { type Watch, watchRequest } from "./watch.js";

export interface S3Options {
  readonly place: S3Place;
  readonly timeouts?: S3Timeouts | undefined;
  readonly retry: RetryTools;
  /** The job's: its reason is thrown when it is aborted. */
  readonly signal: AbortSignal;
}

export interface ObjectFacts {
  readonly etag: string;
  readonly sizeBytes: number;
}

export interface ListedObject extends ObjectFacts {
  readonly key: string;
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

/** Requests of one store under way at once. */
const requestsAtOnce = 24;

export function openS3Store(options: S3Options): S3Store {
  const { place, timeouts = defaultTimeouts } = options;
  const clients = createClients(place, timeouts, requestsAtOnce);
  const connections = openConnections(timeouts.connectMs);
  const attempt = createAttempts(options, clients);
  const payer = place.requestPayer === undefined ? {} : { RequestPayer: place.requestPayer };
  return {
    list: (bucket, prefix, { folder = false } = {}) => list(attempt, { bucket, key: prefix }, { folder, payer }),
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
    read: (doing, request, take, signal) => read(attempt, { connections, payer }, { doing, request, take, signal }),
    [Symbol.dispose]() {
      connections[Symbol.dispose]();
      clients[Symbol.dispose]();
    },
  };
}

/** Makes a request until it comes through, or cannot. `stop`: ends it, as the job's signal does. */
type Attempt = <T>(
  call: S3Call,
  work: (client: S3Client, watch: Watch) => Promise<T>,
  stop?: AbortSignal,
) => Promise<T>;

function createAttempts({ timeouts = defaultTimeouts, retry, signal }: S3Options, clients: Clients): Attempt {
  const limit = createLimit(requestsAtOnce);
  return async (call, work, stop = signal) => {
    const rules = {
      judge: (error: unknown): Verdict => {
        signal.throwIfAborted();
        stop.throwIfAborted();
        return verdictOf(error, call);
      },
      code: "OBJECT_STORE",
      hint: "run the same command again; committed spans are kept. retry.max_seconds sets how long it tries",
    } as const;
    const once = async (client: S3Client): ReturnType<typeof work> => {
      signal.throwIfAborted();
      stop.throwIfAborted();
      using watch = watchRequest(timeouts, [signal, stop]);
      try {
        return await work(client, watch);
      } catch (error) {
        throw watch.signal.aborted ? watch.signal.reason : error;
      }
    };
    const onceOrRenewed = async (): ReturnType<typeof work> => {
      const client = await clients.current();
      try {
        return await once(client);
      } catch (error) {
        if (classify(error, call).kind === "credentials" && (await clients.renew(client))) {
          return await once(await clients.current());
        }
        throw error;
      }
    };
    return await tryAgain(call.doing, retry, rules, () => limit(onceOrRenewed));
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

async function* list(
  attempt: Attempt,
  { bucket, key }: S3Uri,
  { folder, payer }: { folder: boolean; payer: object },
): AsyncGenerator<ListedObject> {
  const object = { bucket, key };
  const call: S3Call = { doing: `listing ${s3UriText(object)}`, action: "ListBucket", object };
  const delimiter = folder ? { Delimiter: "/" } : {};
  for (let token: string | undefined; ; ) {
    const after = token === undefined ? {} : { ContinuationToken: token };
    const command = new ListObjectsV2Command({ Bucket: bucket, Prefix: key, ...delimiter, ...after, ...payer });
    const page = await attempt(call, (client, { signal }) => client.send(command, { abortSignal: signal }));
    yield* objectsIn(page);
    token = page.NextContinuationToken;
    if (page.IsTruncated !== true || token === undefined) {
      return;
    }
  }
}

function* objectsIn({ Contents = [] }: ListObjectsV2CommandOutput): Generator<ListedObject> {
  for (const { Key: key, ETag: etag, Size: sizeBytes } of Contents) {
    if (key !== undefined && etag !== undefined && sizeBytes !== undefined) {
      yield { key, etag, sizeBytes };
    }
  }
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

class NotThere extends Error {}

function verdictOf(error: unknown, call: S3Call): Verdict {
  if (error instanceof JobError) {
    return { kind: "end", error };
  }
  const failure = classify(error, call);
  switch (failure.kind) {
    case "transient":
      return { kind: "again", found: failure.found };
    case "credentials":
      // Whoever rotates them may be late.
      return failure.expired ? { kind: "again", found: failure.found } : { kind: "end", error: failure.error };
    case "missing":
      return { kind: "end", error: new NotThere(`${call.doing}: there is no such object`) };
    case "changed":
      return { kind: "end", error: changed(call, failure.found) };
    case "permanent":
      return { kind: "end", error: failure.error };
    case "exists":
    case "bug":
    default:
      return { kind: "end", error };
  }
}

function changed({ doing }: S3Call, found: string): JobError {
  return new JobError("INPUT_CHANGED", `${doing}: ${found}`, {
    hint: "put the planned object back; committed spans are kept",
  });
}
