import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { dirname, join, normalize } from "node:path";
import { z } from "../util/zod.js";
import { errnoOf, JobError } from "../util/errors.js";
import { parseJson } from "../plan/parse-plan.js";
import { download } from "../s3/download.js";
import type { ObjectFacts, S3Store } from "../s3/store.js";
import { parseS3Uri, type S3Uri, s3UriText } from "../spec/s3-uri.js";
import { notOnnx, openModelFile, readModel, refuseOutside } from "./file.js";
import type { ModelFile } from "../engine/port.js";

export interface S3ModelOptions {
  readonly store: S3Store;
  /** Names the store in the cache: the same key may be another object elsewhere. */
  readonly endpoint: string;
  /** Holds models of all jobs, each in a folder named by its digest. */
  readonly cache: string;
  /** Names this process among all on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
}

/** In a model's folder. Its external data lies beside it, by the names that it gives them. */
const modelName = "infer-batch.model.onnx";

/** Models that nobody used for so long are removed when another one comes. */
const unusedMs = 30 * 24 * 60 * 60 * 1000;

/** What was found behind a URI before, by ETags: one that is known need not be fetched. */
const knownSchema = z.object({
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  external: z.array(z.object({ location: z.string(), etag: z.string() })),
});
type Known = z.infer<typeof knownSchema>;

/**
 * A model in S3, with its external data, as files on this machine. It is fetched once: what is in the cache is
 * digested again before it is used.
 * @param pinned the digest that it must have, where the spec says so: then the cache is looked at first
 * @throws JobError FILE_MISSING, PERMISSION, MODEL_INVALID, MODEL_CHANGED, OBJECT_STORE, DISK
 */
export async function openS3Model(
  uri: string,
  pinned: string | undefined,
  options: S3ModelOptions,
): Promise<ModelFile> {
  const found = pinned === undefined ? undefined : await openCached(options, uri, pinned);
  if (found !== undefined) {
    return found;
  }
  const object = parseS3Uri(uri);
  const facts = await lookAt(options.store, object, uri);
  const index = join(options.cache, "by-object", `${digest([options.endpoint, uri, facts.etag].join("\n"))}.json`);
  const known = knownSchema.safeParse(parseJson(await readFile(index, "utf8").catch(() => ""))).data;
  if (known !== undefined && (await holds(options.store, object, known))) {
    const cached = await openCached(options, uri, known.sha256);
    if (cached !== undefined) {
      return cached;
    }
  }
  return await caching(options.cache, () => fetchModel(options, { uri, object, facts, index }));
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** undefined: it is not there, or not what its name says any more. */
async function openCached({ cache }: S3ModelOptions, uri: string, sha256: string): Promise<ModelFile | undefined> {
  const folder = join(cache, sha256);
  const path = join(folder, modelName);
  try {
    const now = new Date();
    await utimes(folder, now, now); // it is in use
    const model = await openModelFile(path);
    return model.sha256 === sha256 ? { ...model, name: uri } : undefined;
  } catch (error) {
    if (error instanceof JobError || errnoOf(error) !== undefined) {
      return undefined; // whatever is wrong with it, it can be fetched
    }
    throw error;
  }
}

async function lookAt(store: S3Store, object: S3Uri, model: string): Promise<ObjectFacts> {
  const facts = await store.look(object);
  if (facts === undefined) {
    throw new JobError("FILE_MISSING", `loading model ${model}: there is no object ${s3UriText(object)}`, {
      hint: "model.path names one object; external data lies beside it, by the names that the model gives",
    });
  }
  return facts;
}

/** Whether the external data are still those that were found with the model. */
async function holds(store: S3Store, model: S3Uri, { external }: Known): Promise<boolean> {
  for (const { location, etag } of external) {
    if ((await store.look(beside(model, location)))?.etag !== etag) {
      return false;
    }
  }
  return true;
}

function beside({ bucket, key }: S3Uri, location: string): S3Uri {
  const folder = key.slice(0, key.lastIndexOf("/") + 1);
  return { bucket, key: `${folder}${normalize(location)}` };
}

interface Wanted {
  readonly uri: string;
  readonly object: S3Uri;
  readonly facts: ObjectFacts;
  /** Where what is found is noted. */
  readonly index: string;
}

async function fetchModel(options: S3ModelOptions, { uri, object, facts, index }: Wanted): Promise<ModelFile> {
  const { store, cache, writer } = options;
  const making = join(cache, "tmp", writer);
  await mkdir(dirname(index), { recursive: true });
  await mkdir(making, { recursive: true });
  try {
    await tidy(options);
    const path = join(making, modelName);
    await fetchFile(store, { object, ...facts }, path, uri);
    const external: Known["external"] = [];
    for (const location of await externalData(path, uri)) {
      const part = beside(object, location);
      const partFacts = await lookAt(store, part, uri);
      await mkdir(dirname(join(making, normalize(location))), { recursive: true });
      await fetchFile(store, { object: part, ...partFacts }, join(making, normalize(location)), uri);
      external.push({ location, etag: partFacts.etag });
    }
    const { sha256 } = await openModelFile(path);
    await putInto(options, making, { uri, sha256 });
    const note = join(cache, "tmp", `${writer}.json`);
    await writeFile(note, JSON.stringify({ sha256, external } satisfies Known));
    await rename(note, index);
    const model = await openCached(options, uri, sha256);
    if (model === undefined) {
      throw new JobError("DISK", `loading model ${uri}: what was put into ${cache} is not there any more`, {
        hint: "something else writes there; run the same command again",
      });
    }
    return model;
  } finally {
    await rm(making, { recursive: true, force: true });
  }
}

async function fetchFile(
  store: S3Store,
  object: ObjectFacts & { readonly object: S3Uri },
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

async function externalData(path: string, model: string): Promise<readonly string[]> {
  const { proto } = await readModel(path, (_path, cause) => notOnnx(model, cause));
  const locations = proto.externalData;
  for (const location of locations) {
    refuseOutside(model, location);
    if ([modelName, "."].includes(normalize(location)) || location.endsWith("/")) {
      throw new JobError(
        "MODEL_INVALID",
        `loading model ${model}: its external data cannot be called \`${location}\``,
        {
          hint: "external data is a file beside the model; give it another name",
        },
      );
    }
  }
  return locations;
}

/** A folder appears whole under its name. One that is there stays, unless it is damaged: others may be using it. */
async function putInto(
  options: S3ModelOptions,
  from: string,
  { uri, sha256 }: { uri: string; sha256: string },
): Promise<void> {
  const { cache, writer } = options;
  const [to, aside] = [join(cache, sha256), join(cache, "tmp", `${writer}.damaged`)];
  if (await renamed(from, to)) {
    return;
  }
  if ((await openCached(options, uri, sha256)) === undefined) {
    await renamed(to, aside);
    await rm(aside, { recursive: true, force: true });
    await renamed(from, to);
  }
}

/** false: the name is taken, or there is nothing to be renamed. */
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

/** Removes what dead processes left, and models that nobody has used for long. */
async function tidy({ cache, writer, isDead }: S3ModelOptions): Promise<void> {
  for (const name of await readdir(join(cache, "tmp"))) {
    if (name !== writer && isDead(name)) {
      await rm(join(cache, "tmp", name), { recursive: true, force: true });
    }
  }
  for (const name of await readdir(cache)) {
    const folder = join(cache, name);
    const used = /^[0-9a-f]{64}$/.test(name) ? await stat(folder).catch(() => undefined) : undefined;
    if (used !== undefined && Date.now() - used.mtimeMs > unusedMs) {
      await rm(folder, { recursive: true, force: true });
    }
  }
}

/** Does `work`; what the disk says is told with what it was wanted for. */
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
      hint: "XDG_CACHE_HOME names another folder for what may be fetched again",
      cause: error,
    });
  }
}
