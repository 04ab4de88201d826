/** A store of objects, behind a few verbs. Each is retried after a transient error, and is safe to retry. */
import { sha256Of } from "../util/sha256.js";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import type { Readable } from "node:stream";
import {
  CopyObjectCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  type ListObjectsV2CommandOutput,
  PutObjectCommand,
  type PutObjectCommandInput,
  type S3Client,
} from "@aws-sdk/client-s3";
import { openConnectionPool } from "../net/connections.js";
import { BrokenTransfer } from "../net/http-failures.js";
import { type S3Uri, s3UriText } from "../spec/s3/s3-uri.js";
import { JobError, messageOf } from "../util/errors.js";
import { classify, isNotImplemented, type S3Call, s3Call } from "./failures.js";
import { objectInput, type ObjectVersion, type RangeTools, type ReadRequest, readRange } from "./read-range.js";
import { createSendRequest, type Encryption, ObjectMissingError, type S3Options } from "./requests.js";

/** An object, as a listing reports it. */
export interface ListedObject {
  readonly key: string;
  readonly etag: string;
  readonly sizeBytes: number;
}

/** Which objects a listing yields. */
export interface ListOptions {
  /** Lists keys with a slash after the prefix by their common prefix only, once each, as objects without ETag and bytes. */
  readonly folder?: boolean;
  /** Lists only the store's first page. */
  readonly firstPage?: boolean;
}

/** An object, as HEAD reports it. */
export interface StoredObject {
  readonly etag: string;
  readonly sizeBytes: number;
  /** The object's version, in a bucket that keeps versions. */
  readonly versionId: string | undefined;
  /** User metadata; names in lower case. */
  readonly metadata: Readonly<Record<string, string>>;
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
  readonly metadata?: Readonly<Record<string, string>>;
  /** Whether to send `If-None-Match: *`. Without it only one process may write to the key. */
  readonly conditional: boolean;
}

/** The outcome of a creation. `id` is the `creationIdOf` the object that this call created. */
export type CreateResult = { readonly kind: "created"; readonly id: string } | { readonly kind: "exists" };

/** @throws JobError PERMISSION, OBJECT_STORE; FILE_MISSING for a bucket that is not there */
export interface S3Objects {
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
  readText(object: S3Uri): Promise<{ text: string; etag: string } | undefined>;
  /**
   * Creates an object unless its key exists. After a lost response the id in the object's metadata tells whether this
   * call created it.
   */
  create(object: S3Uri, request: CreateRequest): Promise<CreateResult>;
  /** Overwrites an object. With `etag` only that version, where the store supports `If-Match`. */
  put(object: S3Uri, text: string, etag?: string): Promise<"written" | "changed">;
  /** Copies an object within the store, with its metadata. Resolves to whether `from` exists. */
  copy(from: S3Uri, to: S3Uri): Promise<boolean>;
  /** Deletes an object that may be gone already. With `etag` only that version, where the store supports `If-Match`. */
  remove(object: S3Uri, etag?: string): Promise<"removed" | "changed">;
  /** Whether the store honours `If-None-Match`. Writes to `probe`, an unused key, and deletes it again. */
  honoursIfNoneMatch(probe: S3Uri): Promise<boolean>;
}

export interface S3Store extends S3Objects, Disposable {
  /** The same store; calls on it end when `stop` is aborted. */
  until(stop: AbortSignal): S3Objects;
}

/** Opens a store. */
export function openS3Store(options: S3Options): S3Store {
  const { settings, timeouts } = options;
  const requests = createSendRequest(options);
  const pool = openConnectionPool(timeouts.connectMs);
  const tools: StoreTools = {
    send: requests.send,
    pool,
    silenceMs: timeouts.silenceMs,
    payer: settings.requestPayer === undefined ? {} : { RequestPayer: settings.requestPayer },
    encryption: encryptionInput(settings.encryption),
  };
  return {
    ...objectsWith(tools),
    until: (stop) => objectsWith({ ...tools, send: (call, send) => tools.send(call, send, stop) }),
    [Symbol.dispose]() {
      pool[Symbol.dispose]();
      requests[Symbol.dispose]();
    },
  };
}

interface StoreTools extends RangeTools {
  /** Added to each request that writes. */
  readonly encryption: PutOptions;
}

type PutOptions = Partial<
  Pick<
    PutObjectCommandInput,
    "Metadata" | "IfNoneMatch" | "IfMatch" | "ServerSideEncryption" | "SSEKMSKeyId" | "BucketKeyEnabled"
  >
>;

function encryptionInput(encryption: Encryption | undefined): PutOptions {
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

function objectsWith(tools: StoreTools): S3Objects {
  const { send, payer, encryption } = tools;
  return {
    list: (bucket, prefix, options = {}) => listObjects(tools, { bucket, key: prefix }, options),
    head: (object) =>
      orUndefined(
        send(s3Call("checking", "GetObject", object), (client, signal) => headObject(client, signal, object, payer)),
      ),
    read: (act, request, onBytes) => readRange(tools, act, request, onBytes),
    readText: (object) =>
      orUndefined(
        send(s3Call("reading", "GetObject", object), async (client, abortSignal) => {
          const command = new GetObjectCommand({ ...objectInput(object), ...payer });
          const { Body, ContentLength: sizeBytes, ETag: etag = "" } = await client.send(command, { abortSignal });
          const bytes = Buffer.from((await Body?.transformToByteArray()) ?? []);
          if (bytes.length !== sizeBytes) {
            throw new BrokenTransfer(`a body of ${sizeBytes} bytes ended after ${bytes.length}`);
          }
          return { text: bytes.toString("utf8"), etag };
        }),
      ),
    create: (object, request) => createObject(tools, object, request),
    async put(object, text, etag) {
      const call = s3Call("writing", "PutObject", object);
      const outcome = await ifMatching(tools, call, etag, (client, signal, match) =>
        putObject(client, signal, object, text, { ...encryption, ...match }),
      );
      return outcome === "done" ? "written" : "changed"; // also when the key has no object any more
    },
    async copy(from, to) {
      const source = `${from.bucket}/${from.key.split("/").map(encodeURIComponent).join("/")}`;
      const command = new CopyObjectCommand({ ...objectInput(to), CopySource: source, ...encryption });
      const copied = send(s3Call("writing", "PutObject", to), (client, abortSignal) =>
        client.send(command, { abortSignal }),
      );
      return (await orUndefined(copied)) !== undefined;
    },
    async remove(object, etag) {
      const call = s3Call("removing", "DeleteObject", object);
      const outcome = await ifMatching(tools, call, etag, (client, abortSignal, match) =>
        client.send(new DeleteObjectCommand({ ...objectInput(object), ...match }), { abortSignal }),
      );
      return outcome === "changed" ? "changed" : "removed";
    },
    honoursIfNoneMatch: (probe) => honoursIfNoneMatch(tools, probe),
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

/** An incomplete page is requested again: nothing else would notice the objects that it leaves out. */
async function* listObjects(
  { send, payer }: StoreTools,
  prefix: S3Uri,
  { folder = false, firstPage = false }: ListOptions,
): AsyncGenerator<ListedObject> {
  const delimiter = folder ? { Delimiter: "/" } : {};
  for (let token: string | undefined; ; ) {
    const after = token === undefined ? {} : { ContinuationToken: token };
    const command = new ListObjectsV2Command({
      Bucket: prefix.bucket,
      Prefix: prefix.key,
      ...delimiter,
      ...after,
      ...payer,
    });
    const { objects, next } = await send(s3Call("listing", "ListBucket", prefix), async (client, abortSignal) =>
      pageOf(await client.send(command, { abortSignal }), token),
    );
    yield* objects;
    if (next === undefined || firstPage) {
      return;
    }
    token = next;
  }
}

/** @throws BrokenTransfer when a page lacks what a listing must have */
function pageOf(
  page: ListObjectsV2CommandOutput,
  token: string | undefined,
): { readonly objects: readonly ListedObject[]; readonly next: string | undefined } {
  const { Name: name, IsTruncated: isTruncated, NextContinuationToken: next } = page;
  if (name === undefined && isTruncated === undefined) {
    throw new BrokenTransfer("the store's response is not a listing");
  }
  if (isTruncated === true && (next === undefined || next === "" || next === token)) {
    throw new BrokenTransfer("the store's listing is truncated, and does not say where it continues");
  }
  const objects = (page.Contents ?? []).map(({ Key: key, ETag: etag = "", Size: sizeBytes }) => {
    if (key === undefined || etag === "" || sizeBytes === undefined) {
      throw new BrokenTransfer("the store lists an object without its key, ETag or size");
    }
    return { key, etag, sizeBytes };
  });
  const folders = (page.CommonPrefixes ?? []).map(({ Prefix: key = "" }) => ({ key, etag: "", sizeBytes: 0 }));
  return { objects: [...objects, ...folders], next: isTruncated === true ? next : undefined };
}

/** Sends a HEAD request. @throws the SDK's errors; BrokenTransfer for a response that lacks what each object has */
async function headObject(
  client: S3Client,
  abortSignal: AbortSignal,
  object: ObjectVersion,
  payer: object,
): Promise<StoredObject> {
  const {
    ETag: etag = "",
    ContentLength: sizeBytes,
    VersionId: versionId,
    Metadata: metadata = {},
  } = await client.send(new HeadObjectCommand({ ...objectInput(object), ...payer }), { abortSignal });
  if (etag === "" || sizeBytes === undefined) {
    throw new BrokenTransfer("the response to HEAD has no ETag or no size");
  }
  return { etag, sizeBytes, versionId, metadata };
}

/**
 * Sends a request for a version of an object, if the store implements `If-Match` (not: 501). 412 and 404: the key has
 * another object, or none.
 */
async function ifMatching(
  { send }: StoreTools,
  call: S3Call,
  etag: string | undefined,
  request: (client: S3Client, signal: AbortSignal, match: { readonly IfMatch?: string }) => Promise<unknown>,
): Promise<"done" | "changed" | "missing"> {
  let match = etag === undefined ? {} : { IfMatch: etag };
  return await send(call, async (client, signal) => {
    try {
      await request(client, signal, match).catch(async (error: unknown) => {
        if (etag === undefined || !isNotImplemented(error)) {
          throw error;
        }
        match = {};
        await request(client, signal, match);
      });
      return "done";
    } catch (error) {
      const { kind } = classify(error, call);
      if (kind === "missing" && (etag !== undefined || call.action === "DeleteObject")) {
        return "missing";
      }
      if (etag !== undefined && (kind === "changed" || kind === "exists")) {
        return "changed";
      }
      throw error;
    }
  });
}

const idKey = "infer-batch-id";

/** The id of the call that created an object, unique to that call; undefined for objects that others put there. */
export function creationIdOf({ metadata }: StoredObject): string | undefined {
  return metadata[idKey];
}

async function createObject(
  { send, encryption }: StoreTools,
  object: S3Uri,
  { body, metadata = {}, conditional }: CreateRequest,
): Promise<CreateResult> {
  const id = randomUUID();
  const options = {
    Metadata: { ...metadata, [idKey]: id },
    ...(conditional ? { IfNoneMatch: "*" } : {}),
    ...encryption,
  };
  const call = s3Call("writing", "PutObject", object);
  return await send(call, async (client, signal) => {
    // Before each attempt: the response to the last one may be lost; and a body that is not needed is not sent.
    const before = await findCreation(client, signal, object, id);
    if (before !== undefined) {
      return before;
    }
    try {
      await putObject(client, signal, object, body, options);
      return { kind: "created", id };
    } catch (error) {
      if (classify(error, call).kind !== "exists") {
        throw error;
      }
    }
    const after = await findCreation(client, signal, object, id);
    if (after === undefined) {
      throw new BrokenTransfer("the key was in use, and then free again");
    }
    return after;
  });
}

/** Asks who wrote an object; undefined when nobody did. */
async function findCreation(
  client: S3Client,
  signal: AbortSignal,
  object: S3Uri,
  id: string,
): Promise<CreateResult | undefined> {
  try {
    const stored = await headObject(client, signal, object, {});
    return creationIdOf(stored) === id ? { kind: "created", id } : { kind: "exists" };
  } catch (error) {
    const failure = classify(error, s3Call("checking", "GetObject", object));
    if (failure.kind === "missing") {
      return undefined;
    }
    throw failure.kind === "permanent" ? failure.error : error;
  }
}

/** A worker that finishes the run may remove the probe at any time, so one success out of so many decides. */
const maxProbes = 3;

async function honoursIfNoneMatch(tools: StoreTools, probe: S3Uri): Promise<boolean> {
  const call = s3Call("writing", "PutObject", probe);
  const isRefused = async (): Promise<boolean> =>
    await tools.send(call, async (client, signal) => {
      try {
        await putObject(client, signal, probe, "", { ...tools.encryption, IfNoneMatch: "*" });
        return false;
      } catch (error) {
        if (isNotImplemented(error)) {
          return false;
        }
        if (classify(error, call).kind === "exists") {
          return true;
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
    await objectsWith(tools).remove(probe);
  }
}

/**
 * The largest file that is sent as a buffer. The SDK learns from a response that a bucket is in another region, and
 * sends the body again there. It cannot send a stream twice; but for bodies above 2 MiB it asks before it sends
 * (100-continue).
 */
const smallBytes = 4 * 1024 * 1024;
/** The size of one read of a file that is sent as a stream. */
const readBytes = 256 * 1024;

/** Sends one PUT. The store compares the body with the signed sha256 before it creates the object. */
async function putObject(
  client: S3Client,
  abortSignal: AbortSignal,
  object: S3Uri,
  body: ObjectBody,
  options: PutOptions,
): Promise<void> {
  const cannotRead = (cause: unknown): never => {
    const message = `writing ${s3UriText(object)}: reading the file to send: ${messageOf(cause)}`;
    const hint = "its disk fails, or something removes temporary files: run the same command again";
    throw new JobError("DISK", message, { hint, cause });
  };
  const content = typeof body === "string" ? textBody(body) : await fileBody(body).catch(cannotRead);
  const { bytes, sizeBytes, sha256 } = content;
  const command = new PutObjectCommand({
    ...objectInput(object),
    Body: bytes,
    ContentLength: sizeBytes,
    ChecksumSHA256: Buffer.from(sha256, "hex").toString("base64"),
    ...options,
  });
  // The SDK leaves the body of a stream out of the signature, over plain HTTP too; with this header it is covered.
  command.middlewareStack.add(
    (next) => (args) => {
      const headers: unknown = Reflect.get(Object(args.request), "headers");
      Reflect.set(Object(headers), "x-amz-content-sha256", sha256);
      return next(args);
    },
    { step: "build", name: "signedBody" },
  );
  const send = async (): Promise<void> => {
    const { ETag: etag = "" } = await client.send(command, { abortSignal });
    if (etag === "") {
      throw new BrokenTransfer("the response to PUT has no ETag"); // it is none of a store
    }
  };
  if (Buffer.isBuffer(bytes)) {
    await send();
    return;
  }

  try {
    // The SDK would wait for the bytes that cannot be read, and the store for those that are not sent.
    const failure = once(bytes, "error").then(([cause]) => cannotRead(cause));
    await Promise.race([send(), failure]);
  } finally {
    bytes.destroy(); // else the file of a failed request stays open
  }
}

interface SentBody extends Omit<FileBody, "path"> {
  readonly bytes: Buffer | Readable;
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
