import { createHash } from "node:crypto";
import type { S3Store, StoredObject } from "../../../s3/store.js";
import type { S3Uri } from "../../../spec/s3/s3-uri.js";
import type { TargetState } from "../common/file-system.js";

/** The bucket and key of an object or folder; the folder may be the bucket itself. */
export function objectAt(uri: string): S3Uri {
  const [, bucket = "", key = ""] = /^s3:\/\/([^/]+)\/?(.*)$/s.exec(uri) ?? [];
  return { bucket, key };
}

/** Metadata key of a part's digest, so that an attempt that adopts the part need not read it. */
export const digestKey = "infer-batch-sha256";

/** Reads the state of a target in S3. Paths are URIs. `folder`: the job's own. */
export function targetStateInS3(store: S3Store, folder: string): TargetState {
  return {
    async readdir(uri) {
      const entries = await entriesIn(store, uri);
      if (uri !== folder) {
        return entries.map(({ name }) => name);
      }
      const names: string[] = [];
      for (const { name, sizeBytes } of entries) {
        if (sizeBytes !== undefined || name.startsWith("_") || !(await isMarker(store, `${uri}/${name}`))) {
          names.push(name);
        }
      }
      return names;
    },
    async readText(uri) {
      const found = await store.readText(objectAt(uri));
      return found === undefined ? await gone(uri) : found.text;
    },
    sizeOf: async (uri) => (await storedObject(store, uri)).sizeBytes,
    identityOf: async (uri) => (await storedObject(store, uri)).etag,
    async digest(uri) {
      const { etag, sizeBytes, metadata } = await storedObject(store, uri);
      const known = metadata[digestKey];
      return { sizeBytes, sha256: known ?? (await digestOf(store, uri, { etag, sizeBytes })) };
    },
    async sizesIn(uri) {
      const entries = await entriesIn(store, uri);
      return new Map(entries.flatMap(({ name, sizeBytes }) => (sizeBytes === undefined ? [] : [[name, sizeBytes]])));
    },
  };
}

/** Lists what is directly below a folder; `sizeBytes` is undefined for a folder. The folder's marker object is left out. */
async function entriesIn(store: S3Store, uri: string): Promise<{ name: string; sizeBytes: number | undefined }[]> {
  const { bucket, key } = objectAt(uri);
  const prefix = key === "" ? "" : `${key}/`;
  const entries = [];
  for await (const { key: at, sizeBytes } of store.list(bucket, prefix, { folder: true })) {
    const name = at.slice(prefix.length);
    if (name.endsWith("/")) {
      entries.push({ name: name.slice(0, -1), sizeBytes: undefined });
    } else if (name !== "") {
      entries.push({ name, sizeBytes });
    }
  }
  return entries;
}

/** Whether a folder holds nothing but the empty object with which some programs make a folder. */
async function isMarker(store: S3Store, uri: string): Promise<boolean> {
  const { bucket, key } = objectAt(uri);
  for await (const { key: one, sizeBytes } of store.list(bucket, `${key}/`)) {
    if (!one.endsWith("/") || sizeBytes > 0) {
      return false;
    }
  }
  return true;
}

/** @throws as a disk for a missing file */
export async function storedObject(store: S3Store, uri: string): Promise<StoredObject> {
  return (await store.head(objectAt(uri))) ?? (await gone(uri));
}

/** Rejects as a disk does for a missing file. */
function gone(uri: string): Promise<never> {
  const error = new Error(`there is no object ${uri}`);
  return Promise.reject(Object.assign(error, { code: "ENOENT", path: uri }));
}

/** Computes the digest of an object that another program has put there, such as from a backup. */
async function digestOf(
  store: S3Store,
  uri: string,
  { etag, sizeBytes }: { etag: string; sizeBytes: number },
): Promise<string> {
  const hash = createHash("sha256");
  if (sizeBytes > 0) {
    await store.read(`reading ${uri}`, { object: objectAt(uri), etag, start: 0, end: sizeBytes }, (piece) => {
      hash.update(piece);
    });
  }
  return hash.digest("hex");
}
