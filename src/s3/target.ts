import type { Readable } from "node:stream";
import { CopyObjectCommand, DeleteObjectCommand, GetObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import type { S3Uri } from "../spec/s3-uri.js";
import { type Attempt, createAttempts, NotThere, requestsAtOnce, type S3Options } from "./attempts.js";
import { readBody } from "./body.js";
import { createClients, defaultTimeouts } from "./client.js";
import {
  callOf,
  create,
  type CreateRequest,
  type Creation,
  head,
  isExclusive,
  type StoredObject,
  type Writing,
} from "./creation.js";
import { BrokenTransfer, classify, isNotImplemented } from "./failures.js";
import { listPages, objectsIn } from "./listing.js";
import { type PutOptions, send } from "./sending.js";
import { readingStore, type S3Store } from "./store.js";
import type { Watch } from "./watch.js";

/** How the store is to encrypt what is written; nothing: as the bucket says. */
export interface Encryption {
  readonly algorithm: "AES256" | "aws:kms";
  readonly keyId?: string | undefined;
  readonly bucketKey?: boolean | undefined;
}

export interface S3TargetOptions extends S3Options {
  /** Names this process among all on all machines. */
  readonly writer: string;
  readonly encryption?: Encryption | undefined;
}

/** What lies right below a folder. */
export interface FolderEntry {
  readonly name: string;
  /** undefined: a folder. */
  readonly sizeBytes: number | undefined;
}

/** A store that is written to. Every call is tried again after a transient error, and safe to try again. */
export interface S3Target extends S3Store {
  /** Without the object that only marks the folder. A folder's key is given without a slash at its end. */
  entries(folder: S3Uri): Promise<FolderEntry[]>;
  stored(object: S3Uri): Promise<StoredObject | undefined>;
  readText(object: S3Uri): Promise<{ text: string; etag: string } | undefined>;
  /**
   * Writes an object unless its key is taken. Whose it is that has the key after an answer was lost is told by the
   * id of its writer, which is in its metadata: its own counts as created.
   */
  create(object: S3Uri, request: CreateRequest): Promise<Creation>;
  /** Writes over whatever has the key; with `etag`, only over that one, as far as the store knows of `If-Match`. */
  put(object: S3Uri, text: string, etag?: string): Promise<"written" | "changed">;
  /** Copies an object within the store, metadata and all. @returns whether `from` was there */
  copy(from: S3Uri, to: S3Uri): Promise<boolean>;
  /** Safe where it is gone. With `etag`: only that one, as far as the store knows of `If-Match`. */
  remove(object: S3Uri, etag?: string): Promise<"removed" | "changed">;
  /** Whether the store keeps to `If-None-Match`. `probe`: an unused key; it is free again when this returns. */
  isExclusive(probe: S3Uri): Promise<boolean>;
}

export function openS3Target(options: S3TargetOptions): S3Target {
  const { place, timeouts = defaultTimeouts } = options;
  const clients = createClients(options, requestsAtOnce);
  const attempt = createAttempts(options, clients);
  const tools: Writing = { attempt, writer: options.writer, encryption: encryptionOf(options.encryption) };
  return {
    ...readingStore(attempt, { place, timeouts }, clients),
    entries: (folder) => entries(attempt, folder),
    stored: (object) =>
      orUndefined(attempt(callOf("looking at", "GetObject", object), (client, watch) => head(client, watch, object))),
    readText: (object) =>
      orUndefined(attempt(callOf("reading", "GetObject", object), (client, watch) => text(client, watch, object))),
    create: (object, request) => create(tools, object, request),
    put: (object, body, etag) => put(tools, object, { body, etag }),
    copy: (from, to) => copy(tools, from, to),
    remove: (object, etag) => remove(attempt, object, etag),
    isExclusive: (probe) => isExclusive(tools, probe, () => remove(attempt, probe, undefined)),
  };
}

function encryptionOf(given: Encryption | undefined): PutOptions {
  if (given === undefined) {
    return {};
  }
  const { algorithm, keyId, bucketKey } = given;
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
    if (error instanceof NotThere) {
      return undefined;
    }
    throw error;
  }
}

async function entries(attempt: Attempt, { bucket, key }: S3Uri): Promise<FolderEntry[]> {
  const prefix = key === "" ? "" : `${key}/`;
  const found: FolderEntry[] = [];
  for await (const page of listPages(attempt, { bucket, key: prefix }, { folder: true })) {
    for (const { key: one, sizeBytes } of objectsIn(page)) {
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

async function text(client: S3Client, watch: Watch, { bucket, key }: S3Uri): Promise<{ text: string; etag: string }> {
  const command = new GetObjectCommand({ Bucket: bucket, Key: key });
  const {
    Body,
    ContentLength: expectedBytes,
    ETag: etag = "",
  } = await client.send(command, { abortSignal: watch.signal });
  const body = Body as Readable | undefined;
  if (body === undefined || expectedBytes === undefined) {
    body?.destroy();
    throw new BrokenTransfer("the store answered without a body, or its length");
  }
  return { text: (await readBody(body, { expectedBytes, watch })).toString("utf8"), etag };
}

async function put(
  { attempt, encryption, writer }: Writing,
  object: S3Uri,
  { body, etag }: { body: string; etag: string | undefined },
): Promise<"written" | "changed"> {
  const call = callOf("writing", "PutObject", object);
  const options = { ...encryption, ...(etag === undefined ? {} : { IfMatch: etag }) };
  const outcome = await attempt(call, async (client, watch) => {
    try {
      await send(client, watch, object, { body, options });
      return "written";
    } catch (error) {
      if (etag !== undefined && isNotImplemented(error)) {
        return "unconditional";
      }
      // With an ETag given: another one has the key, or none.
      if (etag !== undefined && ["exists", "missing"].includes(classify(error, call).kind)) {
        return "changed";
      }
      throw error;
    }
  });
  return outcome === "unconditional"
    ? await put({ attempt, encryption, writer }, object, { body, etag: undefined })
    : outcome;
}

async function copy({ attempt, encryption }: Writing, from: S3Uri, to: S3Uri): Promise<boolean> {
  const source = `${from.bucket}/${from.key.split("/").map(encodeURIComponent).join("/")}`;
  const command = new CopyObjectCommand({ Bucket: to.bucket, Key: to.key, CopySource: source, ...encryption });
  try {
    await attempt(callOf("writing", "PutObject", to), (client, { signal }) =>
      client.send(command, { abortSignal: signal }),
    );
    return true;
  } catch (error) {
    if (error instanceof NotThere) {
      return false;
    }
    throw error;
  }
}

async function remove(attempt: Attempt, object: S3Uri, etag: string | undefined): Promise<"removed" | "changed"> {
  const call = callOf("removing", "DeleteObject", object);
  const match = etag === undefined ? {} : { IfMatch: etag };
  const command = new DeleteObjectCommand({ Bucket: object.bucket, Key: object.key, ...match });
  const outcome = await attempt(call, async (client, { signal }) => {
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
  return outcome === "unconditional" ? await remove(attempt, object, undefined) : outcome;
}
