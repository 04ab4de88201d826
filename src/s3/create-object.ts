import { randomBytes } from "node:crypto";
import { HeadObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import { type S3Uri, s3UriText } from "../spec/s3/s3-uri.js";
import type { SendRequest } from "./requests.js";
import type { Watchdog } from "./watchdog.js";
import { BrokenTransfer } from "../net/http-failures.js";
import { classify, isNotImplemented, type S3Call } from "./failures.js";
import { type ObjectBody, type PutOptions, putObject } from "./put-object.js";

/** What all requests that write have in common. */
export interface WriteContext {
  readonly sendRequest: SendRequest;
  /** Names this process among all processes on all machines. */
  readonly writer: string;
  /** Options that each request that writes carries. */
  readonly encryption: PutOptions;
}

/** An object's properties, as HEAD reports them. */
export interface StoredObject {
  readonly etag: string;
  readonly sizeBytes: number;
  /** User metadata; names in lower case. */
  readonly metadata: Readonly<Record<string, string>>;
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

const idKey = "infer-batch-id";

/** The id of the call that created an object, unique to that call; undefined for objects that others put there. */
export function creationIdOf({ metadata }: StoredObject): string | undefined {
  return metadata[idKey];
}

/** Describes a call. `act` is the verb that messages write before the object's URI, such as "reading". */
export function s3Call(act: string, action: S3Call["action"], object: S3Uri): S3Call {
  return { act: `${act} ${s3UriText(object)}`, action, object };
}

/** Sends a HEAD request. @throws the SDK's errors */
export async function headObject(
  client: S3Client,
  { signal }: Watchdog,
  { bucket, key }: S3Uri,
): Promise<StoredObject> {
  const found = await client.send(new HeadObjectCommand({ Bucket: bucket, Key: key }), { abortSignal: signal });
  return { etag: found.ETag ?? "", sizeBytes: found.ContentLength ?? 0, metadata: found.Metadata ?? {} };
}

/**
 * Creates an object unless its key exists. After a lost response the id in the metadata tells whether the object at
 * the key is this call's own: then it counts as created.
 */
export async function createObject(
  { sendRequest, writer, encryption }: WriteContext,
  object: S3Uri,
  request: CreateRequest,
): Promise<CreateResult> {
  const { body, metadata = {}, conditional } = request;
  const id = `${writer}.${randomBytes(6).toString("hex")}`;
  const options = {
    Metadata: { ...metadata, [idKey]: id },
    ...(conditional ? { IfNoneMatch: "*" } : {}),
    ...encryption,
  };
  const call = s3Call("writing", "PutObject", object);
  return await sendRequest(call, async (client, watchdog) => {
    // Before each attempt: the response to the last one may be lost; and a body that is not needed is not sent.
    const before = await findCreation(client, watchdog, object, id);
    if (before !== undefined) {
      return before;
    }
    try {
      await putObject(client, watchdog, object, { body, options });
      return { kind: "created", id };
    } catch (error) {
      if (classify(error, call).kind !== "exists") {
        throw error;
      }
    }
    const after = await findCreation(client, watchdog, object, id);
    if (after === undefined) {
      throw new BrokenTransfer("the key was in use, and then free again");
    }
    return after;
  });
}

async function findCreation(
  client: S3Client,
  watchdog: Watchdog,
  object: S3Uri,
  id: string,
): Promise<CreateResult | undefined> {
  try {
    const found = await headObject(client, watchdog, object);
    return creationIdOf(found) === id ? { kind: "created", id } : { kind: "exists" };
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

/** Whether the store refuses a second creation of `probe`, an unused key. `remove` is called at the end. */
export async function honoursIfNoneMatch(
  { sendRequest, encryption }: WriteContext,
  probe: S3Uri,
  remove: () => Promise<unknown>,
): Promise<boolean> {
  const call = s3Call("writing", "PutObject", probe);
  const options = { ...encryption, IfNoneMatch: "*" };
  const isRefused = async (): Promise<boolean> =>
    await sendRequest(call, async (client, watchdog) => {
      try {
        await putObject(client, watchdog, probe, { body: "", options });
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
    for (let attempts = 0; attempts < maxProbes; attempts += 1) {
      await isRefused();
      if (await isRefused()) {
        return true;
      }
    }
    return false;
  } finally {
    await remove();
  }
}
