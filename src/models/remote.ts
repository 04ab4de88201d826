import type { FindProxy } from "../net/request.js";
import type { RetryTools } from "../util/retry.js";
import type { CachedModel, ModelCache } from "./cache.js";
import type { ModelFile, ModelPin, ResolvedModel } from "./port.js";

/** What each source of models on a server takes. */
export interface RemoteOptions {
  readonly cache: ModelCache;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
  readonly findProxy: FindProxy;
}

/** A model in a place that its files are fetched from. */
interface RemoteModel {
  /** The model as messages name it. */
  readonly name: string;
  /** Identifies the place: the same name in another place is another file. */
  readonly place: string;
  /**
   * The state of a file of external data, or of the model itself without `location`: a value that changes when the file
   * is replaced, such as an ETag. undefined: the file does not exist, or has no such value.
   */
  stateOf(location?: string): Promise<string | undefined>;
  /** Fetches a file to the new file `path`, and returns its state. @param location as for `stateOf` */
  fetch(path: string, location?: string): Promise<string>;
}

/** A folder of files that belong to a model. Paths are relative, with slashes. */
export interface Artifacts extends Disposable {
  /** An identifier of the folder that no other folder has. */
  readonly place: string;
  /** A value that changes when the file is replaced; undefined: there is no such file. */
  stateOf(path: string): Promise<string | undefined>;
  /** @throws JobError FILE_MISSING */
  readText(path: string): Promise<string>;
  /** Fetches a file to the new file `to`, and returns its state. @throws JobError FILE_MISSING */
  fetch(path: string, to: string): Promise<string>;
}

/** Finds a pinned model in the cache, without a request. */
export async function findPinned(
  cache: ModelCache,
  name: string,
  pinned: ModelPin | undefined,
): Promise<ResolvedModel | undefined> {
  const file = pinned === undefined ? undefined : await cache.find(pinned.sha256, name);
  return file === undefined ? undefined : { file, version: pinned?.version };
}

/** Finds a model in the cache if none of its files has changed since; fetches it into the cache otherwise. */
export async function cachedOrFetched(cache: ModelCache, model: RemoteModel): Promise<ModelFile> {
  const { name, place } = model;
  const state = await model.stateOf();
  const key = [place, name, state].join("\n");
  const known = state === undefined ? undefined : await cache.known(key);
  if (known !== undefined && (await areSame(model, known))) {
    const cached = await cache.find(known.sha256, name);
    if (cached !== undefined) {
      return cached;
    }
  }
  return await cache.add({
    key,
    name,
    async model(path) {
      await model.fetch(path);
    },
    external: (location, path) => model.fetch(path, location),
  });
}

async function areSame(model: RemoteModel, { external }: CachedModel): Promise<boolean> {
  for (const { location, etag } of external) {
    if (etag === "" || (await model.stateOf(location)) !== etag) {
      return false;
    }
  }
  return true;
}
