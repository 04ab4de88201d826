import { randomBytes } from "node:crypto";
import { HeadObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import { type S3Uri, s3UriText } from "../spec/s3-uri.js";
import type { Attempt } from "./attempts.js";
import type { Watch } from "./watch.js";
import { BrokenTransfer, classify, isNotImplemented, type S3Call } from "./failures.js";
import { type ObjectBody, type PutOptions, send } from "./sending.js";

/** What requests that write have in common. */
export interface Writing {
  readonly attempt: Attempt;
  readonly writer: string;
  /** In each request that writes. */
  readonly encryption: PutOptions;
}

/** What stands under a key. */
export interface StoredObject {
  readonly etag: string;
  readonly sizeBytes: number;
  /** Of its writer's; names in lower case. */
  readonly metadata: Readonly<Record<string, string>>;
}

export interface CreateRequest {
  readonly body: ObjectBody;
  readonly metadata?: Readonly<Record<string, string>>;
  /** false: of a store that ignores `If-None-Match`, which only one writer may write to. */
  readonly exclusive: boolean;
}

/** `id`: what `writerOf` says of an object that this call created. */
export type Creation = { readonly kind: "created"; readonly id: string } | { readonly kind: "exists" };

const idKey = "infer-batch-id";

/** Who wrote an object: no two creations have the same. */
export function writerOf({ metadata }: StoredObject): string | undefined {
  return metadata[idKey];
}

export function callOf(act: string, action: S3Call["action"], object: S3Uri): S3Call {
  return { doing: `${act} ${s3UriText(object)}`, action, object };
}

export async function head(client: S3Client, { signal }: Watch, { bucket, key }: S3Uri): Promise<StoredObject> {
  const found = await client.send(new HeadObjectCommand({ Bucket: bucket, Key: key }), { abortSignal: signal });
  return { etag: found.ETag ?? "", sizeBytes: found.ContentLength ?? 0, metadata: found.Metadata ?? {} };
}

export async function create(
  { attempt, writer, encryption }: Writing,
  object: S3Uri,
  request: CreateRequest,
): Promise<Creation> {
  const { body, metadata = {}, exclusive } = request;
  const id = `${writer}.${randomBytes(6).toString("hex")}`;
  const options = {
    Metadata: { ...metadata, [idKey]: id },
    ...(exclusive ? { IfNoneMatch: "*" } : {}),
    ...encryption,
  };
  const call = callOf("writing", "PutObject", object);
  return await attempt(call, async (client, watch) => {
    // Before each try: the answer to the one before may be what was lost; and a body that is not wanted is not sent.
    const before = await whose(client, watch, object, id);
    if (before !== undefined) {
      return before;
    }
    try {
      await send(client, watch, object, { body, options });
      return { kind: "created", id };
    } catch (error) {
      if (classify(error, call).kind !== "exists") {
        throw error;
      }
    }
    const after = await whose(client, watch, object, id);
    if (after === undefined) {
      throw new BrokenTransfer("the key was taken, and is free again");
    }
    return after;
  });
}

async function whose(client: S3Client, watch: Watch, object: S3Uri, id: string): Promise<Creation | undefined> {
  try {
    const found = await head(client, watch, object);
    return writerOf(found) === id ? { kind: "created", id } : { kind: "exists" };
  } catch (error) {
    const failure = classify(error, callOf("looking at", "GetObject", object));
    if (failure.kind === "missing") {
      return undefined;
    }
    throw failure.kind === "permanent" ? failure.error : error;
  }
}

/** Somebody who finishes the run meanwhile may remove the probe from under it: one try out of these counts. */
const probes = 3;

export async function isExclusive(
  { attempt, encryption }: Writing,
  probe: S3Uri,
  remove: () => Promise<unknown>,
): Promise<boolean> {
  const call = callOf("writing", "PutObject", probe);
  const options = { ...encryption, IfNoneMatch: "*" };
  const isTaken = async (): Promise<boolean> =>
    await attempt(call, async (client, watch) => {
      try {
        await send(client, watch, probe, { body: "", options });
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
    for (let tries = 0; tries < probes; tries += 1) {
      await isTaken();
      if (await isTaken()) {
        return true;
      }
    }
    return false;
  } finally {
    await remove();
  }
}
