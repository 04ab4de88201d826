import { open } from "node:fs/promises";
import { normalize } from "node:path";
import type { ObjectVersion, StoredObject } from "../../stores/objects/protocol.js";
import { type ObjectStore, splitRange, writeAtOffset } from "../../stores/objects/store.js";
import { type ObjectUri, objectUriText, parseObjectUri } from "../../job/jobfile/uri.js";
import { JobError } from "../../base/errors.js";
import { type Artifacts, fetchedModels, type ModelCache, type RemoteModel } from "./cache.js";
import type { ModelPin, ModelSource } from "./place.js";

export interface ObjectModelOptions {
  /** The store, which is closed with the source. */
  readonly store: ObjectStore;
  /** Identifies the store in the cache: the same key is another object in another store. */
  readonly endpoint: string;
  readonly cache: ModelCache;
}

type VersionUri = ObjectUri & ObjectVersion;

/** Opens the source of models in a store of objects. Each model is fetched once to this machine, with its external data. */
export function objectModels({ store, endpoint, cache }: ObjectModelOptions): ModelSource {
  const find = async (
    uri: string,
    pinned?: ModelPin,
  ): Promise<{ remote: RemoteModel; version: string | undefined }> => {
    const what = `${cache.noun} ${uri}`;
    const { object, model } = await findVersion(store, uri, what, pinned?.version);
    const remote: RemoteModel = {
      place: endpoint,
      // Missing external data is an error when it is fetched.
      stateOf: async (location) =>
        location === undefined ? model.etag : (await store.head(externalDataUri(object, location)))?.etag,
      async fetch(path, location) {
        const part = location === undefined ? object : externalDataUri(object, location);
        const facts = location === undefined ? model : await lookAt(store, part, what);
        await fetchFile(store, { object: part, ...facts }, path, what);
        return facts.etag;
      },
    };
    return { remote, version: model.versionId };
  };
  return fetchedModels(cache, find, () => store[Symbol.dispose]());
}

/**
 * Opens a folder in a store, for a registry that stores its files there.
 * @param store closed with the folder
 * @param what the model as messages name it: "model s3://…"
 */
export function objectArtifacts(
  { store, endpoint }: Pick<ObjectModelOptions, "store" | "endpoint">,
  uri: string,
  what: string,
): Artifacts {
  const objectOf = (path: string): ObjectUri => parseObjectUri(`${uri}/${path}`);
  return {
    place: `${endpoint} ${uri}`,
    stateOf: async (path) => (await store.head(objectOf(path)))?.etag,
    async readText(path) {
      const object = objectOf(path);
      return ((await store.readText(object)) ?? missing(object, what)).text;
    },
    async fetch(path, to) {
      const object = objectOf(path);
      const facts = await lookAt(store, object, what);
      await fetchFile(store, { object, ...facts }, to, what);
      return facts.etag;
    },
    close: () => store[Symbol.dispose](),
  };
}

/** Reading a version by its id needs a permission of its own: it is only done if the object has a newer version. */
async function findVersion(
  store: ObjectStore,
  uri: string,
  what: string,
  planned: string | undefined,
): Promise<{ readonly object: VersionUri; readonly model: StoredObject }> {
  const object = parseObjectUri(uri);
  const current = await store.head(object);
  if (planned !== undefined && current?.versionId !== planned) {
    const version = { ...object, versionId: planned };
    const model = await store.head(version);
    if (model !== undefined) {
      return { object: version, model };
    }
    // It is no longer kept: the digest of the current one tells that the model has changed.
  }
  return { object, model: current ?? (await lookAt(store, object, what)) };
}

async function lookAt(store: ObjectStore, object: VersionUri, what: string): Promise<StoredObject> {
  return (await store.head(object)) ?? missing(object, what);
}

function missing(object: ObjectUri, what: string): never {
  throw new JobError("FILE_MISSING", `loading ${what}: there is no object ${objectUriText(object)}`, {
    hint: "set model.path to one object; external data is at the same place, under the names that the model uses",
  });
}

function externalDataUri({ key, ...place }: ObjectUri, location: string): ObjectUri {
  const folder = key.slice(0, key.lastIndexOf("/") + 1);
  return { ...place, key: `${folder}${normalize(location)}` };
}

/** Downloads an object into the new file `path`, which is not fsynced. */
async function fetchFile(
  store: ObjectStore,
  { object, etag, sizeBytes }: StoredObject & { readonly object: ObjectVersion },
  path: string,
  what: string,
): Promise<void> {
  await using file = await open(path, "wx");
  await file.truncate(sizeBytes);
  const stop = new AbortController();
  const stoppable = store.until(stop.signal);
  const reading = splitRange({ start: 0, end: sizeBytes }).map((range) =>
    stoppable.read(`loading ${what}`, { object, etag, ...range }, writeAtOffset(file.fd)),
  );
  try {
    await Promise.all(reading);
  } catch (error) {
    throw error instanceof JobError && error.code === "INPUT_CHANGED"
      ? new JobError("MODEL_CHANGED", `loading ${what}: it was written to while it was being fetched`, {
          hint: "run again when the model is in place",
          cause: error,
        })
      : error;
  } finally {
    stop.abort(new Error("another range failed"));
    await Promise.allSettled(reading); // none may write after the file is closed
  }
}
