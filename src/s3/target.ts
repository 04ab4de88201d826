import type { Readable } from "node:stream";
import { CopyObjectCommand, DeleteObjectCommand, GetObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import type { S3Uri } from "../spec/s3/s3-uri.js";
import {
  type SendRequest,
  createSendRequest,
  ObjectMissingError,
  maxConcurrentRequests,
  type S3Options,
} from "./requests.js";
import { readBody } from "./body.js";
import { createClientProvider, defaultTimeouts } from "./client.js";
import {
  s3Call,
  createObject,
  type CreateRequest,
  type CreateResult,
  headObject,
  honoursIfNoneMatch,
  type StoredObject,
  type WriteContext,
} from "./create-object.js";
import { BrokenTransfer } from "../net/http-failures.js";
import { classify, isNotImplemented } from "./failures.js";
import { listPages, objectsOf } from "./listing.js";
import { type PutOptions, putObject } from "./put-object.js";
import { createReadingStore, type S3Store } from "./store.js";
import type { Watchdog } from "./watchdog.js";

/** Server-side encryption of objects that are written; undefined leaves it to the bucket. */
export interface Encryption {
  readonly algorithm: "AES256" | "aws:kms";
  readonly keyId?: string | undefined;
  readonly bucketKey?: boolean | undefined;
}

/** How to reach a store, and how to write to it. */
export interface S3TargetOptions extends S3Options {
  /** Names this process among all processes on all machines. */
  readonly writer: string;
  readonly encryption?: Encryption | undefined;
}

/** An object or folder directly below a folder. */
export interface FolderEntry {
  readonly name: string;
  /** undefined for a folder. */
  readonly sizeBytes: number | undefined;
}

/** Reads and writes objects that are small texts. */
export interface SmallObjects {
  /** Resolves to undefined when the object does not exist. */
  head(object: S3Uri): Promise<StoredObject | undefined>;
  /** Reads a small UTF-8 object; undefined when it does not exist. */
  readText(object: S3Uri): Promise<{ text: string; etag: string } | undefined>;
  /** Overwrites an object. With `etag` only that version, where the store supports `If-Match`. */
  put(object: S3Uri, text: string, etag?: string): Promise<"written" | "changed">;
}

/** A store, for reading and writing. Every call is retried after a transient error, and is safe to retry. */
export interface S3Target extends S3Store, SmallObjects {
  /** Lists what is directly below a folder, whose key has no slash at its end. The folder's marker object is left out. */
  listFolder(folder: S3Uri): Promise<FolderEntry[]>;
  /**
   * Creates an object unless its key exists. After a lost response the id in the object's metadata tells whether this
   * call created it.
   */
  create(object: S3Uri, request: CreateRequest): Promise<CreateResult>;
  /** Copies an object within the store, with its metadata. Resolves to whether `from` exists. */
  copy(from: S3Uri, to: S3Uri): Promise<boolean>;
  /** Deletes an object that may be gone already. With `etag` only that version, where the store supports `If-Match`. */
  remove(object: S3Uri, etag?: string): Promise<"removed" | "changed">;
  /** The same store; calls on it end when `stop` is aborted. */
  until(stop: AbortSignal): SmallObjects;
  /** Whether the store honours `If-None-Match`. Writes to `probe`, an unused key, and deletes it again. */
  honoursIfNoneMatch(probe: S3Uri): Promise<boolean>;
}

/** Opens a store for reading and writing. */
export function openS3Target(options: S3TargetOptions): S3Target {
  const { settings, timeouts = defaultTimeouts } = options;
  const clients = createClientProvider(options, maxConcurrentRequests);
  const sendRequest = createSendRequest(options, clients);
  const context: WriteContext = { sendRequest, writer: options.writer, encryption: encryptionOf(options.encryption) };
  return {
    ...createReadingStore(sendRequest, { settings, timeouts }, clients),
    listFolder: (folder) => listFolder(sendRequest, folder),
    ...smallObjects(context),
    until: (stop) => smallObjects({ ...context, sendRequest: (call, send) => sendRequest(call, send, stop) }),
    create: (object, request) => createObject(context, object, request),
    copy: (from, to) => copy(context, from, to),
    remove: (object, etag) => remove(sendRequest, object, etag),
    honoursIfNoneMatch: (probe) => honoursIfNoneMatch(context, probe, () => remove(sendRequest, probe, undefined)),
  };
}

function smallObjects(context: WriteContext): SmallObjects {
  const { sendRequest } = context;
  return {
    head: (object) =>
      orUndefined(
        sendRequest(s3Call("checking", "GetObject", object), (client, watchdog) =>
          headObject(client, watchdog, object),
        ),
      ),
    readText: (object) =>
      orUndefined(
        sendRequest(s3Call("reading", "GetObject", object), (client, watchdog) => readText(client, watchdog, object)),
      ),
    put: (object, body, etag) => put(context, object, { body, etag }),
  };
}

function encryptionOf(encryption: Encryption | undefined): PutOptions {
  if (encryption === undefined) {
    return {};
  }
  const { algorithm, keyId, bucketKey } = encryption;
  return {
    ServerSideEncryption: algorithm,
    ...(keyId === undefined ? {} : { SSEKMSKeyId: keyId }),
    ...(bucketKey === undefined ? {} : { BucketKeyEnabled: bucketKey }),
  };
}

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

async function listFolder(sendRequest: SendRequest, { bucket, key }: S3Uri): Promise<FolderEntry[]> {
  const prefix = key === "" ? "" : `${key}/`;
  const found: FolderEntry[] = [];
  for await (const page of listPages(sendRequest, { bucket, key: prefix }, { folder: true })) {
    for (const { key: one, sizeBytes } of objectsOf(page)) {
      if (one !== prefix) {
        found.push({ name: one.slice(prefix.length), sizeBytes });
      }
    }
    for (const { Prefix = "" } of page.CommonPrefixes ?? []) {
      found.push({ name: Prefix.slice(prefix.length, -1), sizeBytes: undefined });
    }
  }
  return found;
}

async function readText(
  client: S3Client,
  watchdog: Watchdog,
  { bucket, key }: S3Uri,
): Promise<{ text: string; etag: string }> {
  const command = new GetObjectCommand({ Bucket: bucket, Key: key });
  const {
    Body,
    ContentLength: expectedBytes,
    ETag: etag = "",
  } = await client.send(command, { abortSignal: watchdog.signal });
  const body = Body as Readable | undefined;
  if (body === undefined || expectedBytes === undefined) {
    body?.destroy();
    throw new BrokenTransfer("the response has no body, or does not give its length");
  }
  return { text: (await readBody(body, { expectedBytes, watchdog })).toString("utf8"), etag };
}

async function put(
  { sendRequest, encryption, writer }: WriteContext,
  object: S3Uri,
  { body, etag }: { body: string; etag: string | undefined },
): Promise<"written" | "changed"> {
  const call = s3Call("writing", "PutObject", object);
  const options = { ...encryption, ...(etag === undefined ? {} : { IfMatch: etag }) };
  const outcome = await sendRequest(call, async (client, watchdog) => {
    try {
      await putObject(client, watchdog, object, { body, options });
      return "written";
    } catch (error) {
      if (etag !== undefined && isNotImplemented(error)) {
        return "unconditional";
      }
      // 412 and 404: the key has another object, or none.
      if (etag !== undefined && ["exists", "missing"].includes(classify(error, call).kind)) {
        return "changed";
      }
      throw error;
    }
  });
  return outcome === "unconditional"
    ? await put({ sendRequest, encryption, writer }, object, { body, etag: undefined })
    : outcome;
}

async function copy({ sendRequest, encryption }: WriteContext, from: S3Uri, to: S3Uri): Promise<boolean> {
  const source = `${from.bucket}/${from.key.split("/").map(encodeURIComponent).join("/")}`;
  const command = new CopyObjectCommand({ Bucket: to.bucket, Key: to.key, CopySource: source, ...encryption });
  try {
    await sendRequest(s3Call("writing", "PutObject", to), (client, { signal }) =>
      client.send(command, { abortSignal: signal }),
    );
    return true;
  } catch (error) {
    if (error instanceof ObjectMissingError) {
      return false;
    }
    throw error;
  }
}

async function remove(
  sendRequest: SendRequest,
  object: S3Uri,
  etag: string | undefined,
): Promise<"removed" | "changed"> {
  const call = s3Call("removing", "DeleteObject", object);
  const match = etag === undefined ? {} : { IfMatch: etag };
  const command = new DeleteObjectCommand({ Bucket: object.bucket, Key: object.key, ...match });
  const outcome = await sendRequest(call, async (client, { signal }) => {
    try {
      await client.send(command, { abortSignal: signal });
      return "removed";
    } catch (error) {
      if (etag !== undefined && isNotImplemented(error)) {
        return "unconditional";
      }
      const { kind } = classify(error, call);
      if (kind !== "missing" && kind !== "changed") {
        throw error;
      }
      return kind === "missing" ? "removed" : "changed";
    }
  });
  return outcome === "unconditional" ? await remove(sendRequest, object, undefined) : outcome;
}
