import { normalize } from "node:path";
import { download } from "../s3/download.js";
import type { ObjectStat, S3Store } from "../s3/store.js";
import { parseS3Uri, type S3Uri, s3UriText } from "../spec/s3-uri.js";
import { JobError } from "../util/errors.js";
import type { ModelCache } from "./cache.js";
import type { ModelFile, ModelSource } from "./port.js";
import { cachedOrFetched } from "./remote.js";

export interface S3ModelOptions {
  /** The store, which is closed with the source. */
  readonly store: S3Store;
  /** Identifies the store in the cache: the same key is another object in another store. */
  readonly endpoint: string;
  readonly cache: ModelCache;
}

/** Opens the source of models in S3. Each model is fetched once to this machine, with its external data. */
export function s3Models(options: S3ModelOptions): ModelSource {
  const { cache, store } = options;
  return {
    async resolve(uri, sha256) {
      const pinned = sha256 === undefined ? undefined : await cache.find(sha256, uri);
      return { file: pinned ?? (await findObject(options, uri)) };
    },
    [Symbol.dispose]() {
      store[Symbol.dispose]();
    },
  };
}

async function findObject({ store, endpoint, cache }: S3ModelOptions, uri: string): Promise<ModelFile> {
  const object = parseS3Uri(uri);
  const part = (location?: string): S3Uri => (location === undefined ? object : beside(object, location));
  return await cachedOrFetched(cache, {
    name: uri,
    place: endpoint,
    // A missing model is an error; missing external data is one when it is fetched.
    stateOf: async (location) =>
      location === undefined ? (await lookAt(store, object, uri)).etag : (await store.stat(part(location)))?.etag,
    async fetch(path, location) {
      const facts = await lookAt(store, part(location), uri);
      await fetchFile(store, { object: part(location), ...facts }, path, uri);
      return facts.etag;
    },
  });
}

async function lookAt(store: S3Store, object: S3Uri, model: string): Promise<ObjectStat> {
  const facts = await store.stat(object);
  if (facts === undefined) {
    throw new JobError("FILE_MISSING", `loading model ${model}: there is no object ${s3UriText(object)}`, {
      hint: "model.path names one object; external data lies beside it, by the names that the model gives",
    });
  }
  return facts;
}

function beside({ bucket, key }: S3Uri, location: string): S3Uri {
  const folder = key.slice(0, key.lastIndexOf("/") + 1);
  return { bucket, key: `${folder}${normalize(location)}` };
}

async function fetchFile(
  store: S3Store,
  object: ObjectStat & { readonly object: S3Uri },
  path: string,
  model: string,
): Promise<void> {
  try {
    await download(store, `loading model ${model}`, object, path);
  } catch (error) {
    if (error instanceof JobError && error.code === "INPUT_CHANGED") {
      throw new JobError("MODEL_CHANGED", `loading model ${model}: it was written to while it was being fetched`, {
        hint: "run again when the model is in place",
        cause: error,
      });
    }
    throw error;
  }
}
