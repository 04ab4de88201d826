import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { dirname, join, normalize } from "node:path";
import type { FindProxy } from "../../base/http/proxies.js";
import { parseJson } from "../../run/plan/parse-plan.js";
import { errnoOf, JobError } from "../../base/errors.js";
import type { RetryTools } from "../../base/retry.js";
import { sha256Of } from "../../base/sha256.js";
import { z } from "../../base/zod.js";
import { notOnnx, openModelFile, readModel, refuseOutside } from "./model-file.js";
import type { ModelFile, ModelPin, ModelSource, ResolvedModel } from "./place.js";

interface ModelCacheOptions {
  /** The folder of the cache. It holds models of all jobs, each in a folder named by its digest. */
  readonly folder: string;
  /** Identifies this process among all processes on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  /** What the cache holds. Default: models. */
  readonly kind?: FileKind;
}

export interface FileKind {
  readonly noun: "model" | "tokenizer";
  /** Reads and digests a file. @throws JobError MODEL_INVALID */
  readonly open: (path: string) => Promise<ModelFile>;
  /** The files that must be fetched with it. @param name the file as messages name it */
  readonly externalData: (path: string, name: string) => Promise<readonly string[]>;
}

const modelKind: FileKind = { noun: "model", open: (path) => openModelFile(path), externalData };

/** A model in a place that its files are fetched from. */
export interface RemoteModel {
  /** Identifies the place: the same name in another place is another file. */
  readonly place: string;
  /**
   * The state of a file of external data, or of the model itself without `location`: a value that changes when the file
   * is replaced, such as an ETag. undefined: the file does not exist, or has no such value.
   */
  stateOf(location?: string): Promise<string | undefined>;
  /** Fetches a file to the new file `path`, and returns its state. @param location as for `stateOf` */
  fetch(path: string, location?: string): Promise<string>;
  close?(): void;
}

/** The models that were fetched to this machine. Each is digested again before use. */
export interface ModelCache {
  readonly noun: FileKind["noun"];
  /** Finds the model of a digest; undefined if it is missing or damaged. */
  find(sha256: string, name: string): Promise<ModelFile | undefined>;
  /** Marks the model of a digest as used, so that it stays; false: it is not there. */
  touch(sha256: string): Promise<boolean>;
  /**
   * Finds a model if none of its files has changed since it was fetched; fetches it otherwise.
   * @throws JobError MODEL_INVALID, DISK, PERMISSION; what `model` throws
   */
  fetch(name: string, model: RemoteModel): Promise<ModelFile>;
}

/** A folder of files that belong to a model. Paths are relative, with slashes. */
export interface Artifacts {
  /** An identifier of the folder that no other folder has. */
  readonly place: string;
  /** A value that changes when the file is replaced; undefined: there is no such file. */
  stateOf(path: string): Promise<string | undefined>;
  /** @throws JobError FILE_MISSING */
  readText(path: string): Promise<string>;
  /** Fetches a file to the new file `to`, and returns its state. @throws JobError FILE_MISSING */
  fetch(path: string, to: string): Promise<string>;
  close?(): void;
}

/** Opens a source of models that `locate` finds. One that is pinned, and in the cache, needs no request. */
export function fetchedModels(
  cache: ModelCache,
  locate: (uri: string, pinned?: ModelPin) => Promise<{ readonly remote: RemoteModel } & Omit<ResolvedModel, "file">>,
  close = (): void => undefined,
): ModelSource {
  return {
    async resolve(uri, pinned) {
      const cached = pinned === undefined ? undefined : await cache.find(pinned.sha256, uri);
      if (cached !== undefined) {
        return { file: cached, version: pinned?.version };
      }
      const { remote, ...about } = await locate(uri, pinned);
      try {
        return { file: await cache.fetch(uri, remote), ...about };
      } finally {
        remote.close?.();
      }
    },
    [Symbol.dispose]: close,
  };
}

/** The model's name in its folder. External data is in the same folder, under the names that the model uses. */
const modelName = "infer-batch.model.onnx";

/** Models that were not used for so long are removed when another one is added. */
const unusedMs = 30 * 24 * 60 * 60 * 1000;

const noteSchema = z.object({
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  external: z.array(z.object({ location: z.string(), etag: z.string() })),
});

type Note = z.infer<typeof noteSchema>;

export function openModelCache(options: ModelCacheOptions): ModelCache {
  const { folder, kind = modelKind } = options;
  return {
    noun: kind.noun,
    find: (sha256, name) => find(options, sha256, name),
    async touch(sha256) {
      return await markUsed(join(folder, sha256)).then(
        () => true,
        () => false,
      );
    },
    async fetch(name, model) {
      const state = await model.stateOf();
      const note = join(folder, "by-object", `${sha256Of([model.place, name, state].join("\n"))}.json`);
      // A note that cannot be read counts as missing: the model is fetched again.
      const known = noteSchema.safeParse(parseJson(await readFile(note, "utf8").catch(() => ""))).data;
      const isSame = state !== undefined && known !== undefined && (await areSame(model, known));
      const cached = isSame ? await find(options, known.sha256, name) : undefined;
      return cached ?? (await caching(folder, () => add(options, name, note, model)));
    },
  };
}

async function areSame(model: RemoteModel, { external }: Note): Promise<boolean> {
  for (const { location, etag } of external) {
    if (etag === "" || (await model.stateOf(location)) !== etag) {
      return false;
    }
  }
  return true;
}

async function find(
  { folder: cache, kind = modelKind }: ModelCacheOptions,
  sha256: string,
  name: string,
): Promise<ModelFile | undefined> {
  const folder = join(cache, sha256);
  try {
    await markUsed(folder);
    const model = await kind.open(join(folder, modelName));
    return model.sha256 === sha256 ? { ...model, name } : undefined;
  } catch (error) {
    if (error instanceof JobError || errnoOf(error) !== undefined) {
      return undefined; // it can be fetched again
    }
    throw error;
  }
}

/** Marks a folder as used today. One in a cache that is filled beforehand, and read-only, stays as it is. */
async function markUsed(folder: string): Promise<void> {
  const now = new Date();
  try {
    await utimes(folder, now, now);
  } catch (error) {
    if (!["EROFS", "EPERM", "EACCES"].includes(errnoOf(error) ?? "")) {
      throw error;
    }
  }
}

async function add(options: ModelCacheOptions, name: string, note: string, model: RemoteModel): Promise<ModelFile> {
  const { folder: cache, writer, kind = modelKind } = options;
  const making = join(cache, "tmp", writer);
  await mkdir(dirname(note), { recursive: true });
  await mkdir(making, { recursive: true });
  try {
    await tidy(options);
    const path = join(making, modelName);
    await model.fetch(path);
    const external: Note["external"] = [];
    for (const location of await kind.externalData(path, name)) {
      const to = join(making, normalize(location));
      await mkdir(dirname(to), { recursive: true });
      external.push({ location, etag: await model.fetch(to, location) });
    }

    const { sha256 } = await kind.open(path);
    await putInto(options, making, { name, sha256 });
    const temporary = join(cache, "tmp", `${writer}.json`);
    await writeFile(temporary, JSON.stringify({ sha256, external } satisfies Note));
    await rename(temporary, note);

    const added = await find(options, sha256, name);
    if (added === undefined) {
      throw new JobError("DISK", `loading ${kind.noun} ${name}: what was put into ${cache} is gone`, {
        hint: "something else writes there; run the same command again",
      });
    }
    return added;
  } finally {
    await rm(making, { recursive: true, force: true });
  }
}

async function externalData(path: string, model: string): Promise<readonly string[]> {
  const { proto } = await readModel(path, (_path, cause) => notOnnx(model, cause));
  for (const location of proto.externalData) {
    refuseOutside(model, location);
    if ([modelName, "."].includes(normalize(location)) || location.endsWith("/")) {
      throw new JobError(
        "MODEL_INVALID",
        `loading model ${model}: its external data cannot be called \`${location}\``,
        {
          hint: "external data is a file in the folder of the model; give it another name",
        },
      );
    }
  }
  return proto.externalData;
}

/** Moves a complete folder to its name. An existing folder stays unless it is damaged: others may be using it. */
async function putInto(
  options: ModelCacheOptions,
  from: string,
  { name, sha256 }: { name: string; sha256: string },
): Promise<void> {
  const { folder: cache, writer } = options;
  const [to, aside] = [join(cache, sha256), join(cache, "tmp", `${writer}.damaged`)];
  if (await renamed(from, to)) {
    return;
  }
  if ((await find(options, sha256, name)) === undefined) {
    await renamed(to, aside);
    await rm(aside, { recursive: true, force: true });
    await renamed(from, to);
  }
}

async function renamed(from: string, to: string): Promise<boolean> {
  try {
    await rename(from, to);
    return true;
  } catch (error) {
    if (["ENOTEMPTY", "EEXIST", "ENOENT"].includes(errnoOf(error) ?? "")) {
      return false;
    }
    throw error;
  }
}

async function tidy({ folder: cache, writer, isDead }: ModelCacheOptions): Promise<void> {
  for (const name of await readdir(join(cache, "tmp"))) {
    if (name !== writer && isDead(name)) {
      await rm(join(cache, "tmp", name), { recursive: true, force: true });
    }
  }
  for (const name of await readdir(cache)) {
    const folder = join(cache, name);
    // Another process may have removed it.
    const used = /^[0-9a-f]{64}$/.test(name) ? await stat(folder).catch(() => undefined) : undefined;
    if (used !== undefined && Date.now() - used.mtimeMs > unusedMs) {
      await rm(folder, { recursive: true, force: true });
    }
  }
}

async function caching<T>(cache: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const errno = errnoOf(error);
    if (error instanceof JobError || errno === undefined || !/^E[A-Z0-9]+$/.test(errno)) {
      throw error;
    }
    const code = ["EACCES", "EPERM", "EROFS"].includes(errno) ? "PERMISSION" : "DISK";
    throw new JobError(code, `keeping a model in ${cache}: ${errno}`, {
      hint: "set XDG_CACHE_HOME to another folder for the cache",
      cause: error,
    });
  }
}

/** What each source of models on a server takes. */
export interface RemoteOptions {
  readonly cache: ModelCache;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
  readonly findProxy: FindProxy;
}
