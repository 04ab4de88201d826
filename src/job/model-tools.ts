import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { copyFile, mkdir, readFile, rename, stat, writeFile } from "node:fs/promises";
import { totalmem } from "node:os";
import { dirname, join, resolve } from "node:path";
import type { FoundModel } from "../models/places/place.js";
import { parseJson } from "../run/plan/parse-plan.js";
import type { BatchLimitCache, BatchLimitKey, EarlierModels, Log, Models } from "../flow/opened-job.js";
import { listedProviders } from "./jobfile/engine-spec.js";
import type { JobSpec } from "./jobfile/job-spec.js";
import { type ModelSpec, modelUri } from "./jobfile/model-spec.js";
import { isHttpUri, isModelUri, isServedUri } from "./jobfile/uri.js";
import { cacheFolder } from "../base/cache-folder.js";
import { JobError, errnoOf, messageOf } from "../base/errors.js";
import { sha256Of } from "../base/sha256.js";
import { z } from "../base/zod.js";
import { componentVersions } from "./attempt.js";
import type { EngineOptions } from "./open-engine.js";
import { type ModelOptions, openCache, resolveModel } from "./kinds.js";

/** What needs no tokenizer of the spec. */
interface ModelTools {
  readonly prepare: Models["prepare"];
  readonly resolveModel: Models["resolveModel"];
  readonly openEngine: Models["openEngine"];
  readonly lookAtPaid?: Models["lookAtPaid"];
}

export interface ModelToolsOptions extends ModelOptions, Omit<EngineOptions, "spec"> {
  readonly log: Log;
  readonly where: (path: readonly string[]) => string;
}

export function modelTools(spec: JobSpec, options: ModelToolsOptions): Models {
  const counter = spec.model.prompt?.tokenizer;
  return {
    earlierModels: earlierModels({ ...spec, engine: engineOfSecondModel(spec) }, options),
    ...toolsOf(spec, options),
    batchLimits: openBatchLimitCache(options.log),
    async resolveTokenizer(uri, planned) {
      const { findTokenizer } = await import("./tokenizers.js");
      return await findTokenizer({ model: spec.model, uri }, options, planned);
    },
    ...(counter !== undefined && {
      async loadTokenCounter() {
        const { openTokenCounter } = await import("./tokenizers.js");
        return await openTokenCounter({ model: spec.model, uri: counter }, options);
      },
    }),
  };
}

function toolsOf({ model, engine }: Pick<JobSpec, "model" | "engine">, options: ModelToolsOptions): ModelTools {
  const { server, path = "" } = model;
  const lookAtPaid: Models["lookAtPaid"] = async (...look) => {
    const { lookAtRun } = await import("../models/prompts/kept-answers.js");
    return await lookAtRun(model.budget?.price)(...look);
  };
  return {
    ...(server?.protocol === "openai" && { lookAtPaid }),
    prepare() {
      if (server === undefined) {
        options.early?.start();
      }
    },
    async resolveModel(planned) {
      if (server !== undefined) {
        const { findServed } = await import("./served-models.js");
        return await findServed({ ...model, server }, options, planned);
      }
      const { file, ...facts } = await resolveModel({ ...model, path }, options, planned);
      return { ...facts, model: file };
    },
    async openEngine(resolved, need) {
      if (server !== undefined && "served" in resolved) {
        const { openServed } = await import("./served-models.js");
        return await openServed({ ...model, server }, options, resolved);
      }
      if ("served" in resolved) {
        throw new Error(`the spec has no server for ${resolved.name}`);
      }
      if (resolved.tokenizers !== undefined) {
        const { requireTokenizers } = await import("./tokenizers.js");
        requireTokenizers();
      }
      const { openEngine } = await import("./open-engine.js");
      return await openEngine(resolved, need, { ...options, spec: { model, engine } });
    },
  };
}

/** The keys of `engine` for another model that is open at the same time as the model of the spec. */
export function engineOfSecondModel({ model, engine }: Pick<JobSpec, "model" | "engine">): JobSpec["engine"] {
  // Two threads with a session each on WebGPU crash ONNX Runtime.
  const listed = listedProviders(engine);
  const isCpu = model.server === undefined && listed.includes("webgpu");
  return { ...engine, providers: isCpu ? ["cpu"] : listed };
}

/** Larger files are not kept: copying them takes too long. */
const keptBytes = 256 * 1024 * 1024;

function earlierModels(spec: Pick<JobSpec, "model" | "engine">, options: ModelToolsOptions): EarlierModels {
  return {
    async find(earlier) {
      const { uri: path, sha256, version } = earlier;
      const { server } = spec.model;
      if (isServedUri(path) && (server === undefined || modelUri(spec.model) !== path)) {
        return undefined; // where it was served is not known
      }
      const place = isServedUri(path) ? { server: { ...server, version } } : { path, server: undefined };
      const model = { ...spec.model, ...place, sha256: undefined } as JobSpec["model"];
      const tools = toolsOf({ model, engine: spec.engine }, { ...options, profileFolder: undefined });
      const cached = isFile(path) ? await (await openCache(options)).find(sha256, path) : undefined;
      const resolved = cached ?? (await tools.resolveModel({ sha256, version })).model;
      return resolved.sha256 === sha256 ? { model: resolved, openEngine: tools.openEngine } : undefined;
    },
    async keep({ uri, sha256 }) {
      const from = resolve(options.folder, uri);
      if (!isFile(uri) || (await stat(from)).size > keptBytes) {
        return;
      }

      const cache = await openCache(options);
      if (await cache.touch(sha256)) {
        return;
      }
      await cache.fetch(uri, {
        place: `file ${sha256}`,
        stateOf: () => Promise.resolve(undefined),
        async fetch(to, location) {
          const file = location === undefined ? from : join(dirname(from), location);
          await copyFile(file, to, constants.COPYFILE_FICLONE);
          return "";
        },
      });
    },
  };
}

function isFile(uri: string): boolean {
  return !isModelUri(uri) && !isHttpUri(uri);
}

/** Returns the path of a spec's model. @throws JobError USAGE if it is on a server. @param why a file is needed */
export function requireModelPath(
  { model: { path } }: Pick<JobSpec, "model">,
  why: string,
  { hint = "`infer-batch validate` asks the server for the model and checks it against the input" } = {},
): string {
  if (path === undefined) {
    throw new JobError("USAGE", `reading model.server: ${why}, and a server has this one`, { hint });
  }
  return path;
}

/** A limit expires after this time: the program that used the memory may have ended. */
const believedMs = 30 * 24 * 60 * 60 * 1000;

const schema = z.object({ rows: z.int().min(1) });

/** Opens the cache of batch limits: a small file for each model and device, in the cache folder of this user. @public so that tests call it */
export function openBatchLimitCache(log: Pick<Log, "debug">, folder = cacheFolder("batch-limits")): BatchLimitCache {
  return {
    async find(of) {
      const path = await fileOf(folder, of);
      try {
        const { mtimeMs } = await stat(path);
        const found = schema.safeParse(parseJson(await readFile(path, "utf8")));
        return found.success && Date.now() - mtimeMs < believedMs ? found.data.rows : undefined;
      } catch (error) {
        if (errnoOf(error) !== "ENOENT") {
          log.debug(`reading what fits on ${of.device} in ${folder}: ${errnoOf(error) ?? messageOf(error)}`);
        }
        return undefined; // it is found out again
      }
    },
    async keep(of, rows) {
      const path = await fileOf(folder, of);
      const temporary = `${path}.${process.pid}.${randomBytes(4).toString("hex")}`;
      try {
        await mkdir(folder, { recursive: true });
        await writeFile(temporary, `${JSON.stringify({ rows, ...of })}\n`);
        await rename(temporary, path);
      } catch (error) {
        log.debug(`keeping what fits on ${of.device} in ${folder}: ${errnoOf(error) ?? messageOf(error)}`);
      }
    },
  };
}

/** Another device, driver, library or model has another file. */
async function fileOf(folder: string, { modelSha256, device, rowBytes }: BatchLimitKey): Promise<string> {
  const memory = device === "cpu" ? String(totalmem()) : await identityOfGpus();
  const key = [modelSha256, device, rowBytes, memory, componentVersions["onnxruntime-node"] ?? ""];
  return join(folder, `${sha256Of(key.join("\n"))}.json`);
}

/** The module that inspects GPUs is loaded only if there is one in use. */
async function identityOfGpus(): Promise<string> {
  const { gpuIdentity, thisMachine } = await import("../models/devices.js");
  return gpuIdentity(thisMachine());
}

interface Resolving {
  readonly resolveModel: Models["resolveModel"];
  readonly resolveTokenizer: Models["resolveTokenizer"];
}

/** Wraps the functions of one of several jobs that find models, so that the jobs agree on them. */
export type SharedModels = (model: Pick<ModelSpec, "path" | "sha256" | "server">, own: Resolving) => Resolving;

/**
 * Each URI is resolved once, by the first job that plans a run. The plan of an unfinished run pins versions of its own.
 * @param onResolved called with each model found for a new run
 */
export function resolveOnce(
  onResolved: (model: Pick<ModelSpec, "path" | "server">, resolved: FoundModel) => void,
): SharedModels {
  const known = new Map<string, Promise<unknown>>();
  const once = async <T>(key: readonly unknown[], find: () => Promise<T>): Promise<T> => {
    const name = JSON.stringify(key);
    const finding = (known.get(name) as Promise<T> | undefined) ?? find();
    known.set(name, finding);
    return await finding.catch((error: unknown) => {
      known.delete(name); // the next caller tries again
      throw error;
    });
  };
  return (model, own) => ({
    resolveModel: (planned) =>
      once(["model", model.path, model.sha256, model.server, planned], async () => {
        const resolved = await own.resolveModel(planned);
        if (planned === undefined) {
          onResolved(model, resolved);
        }
        return resolved;
      }),
    resolveTokenizer: (uri, planned) => once(["tokenizer", uri, planned], () => own.resolveTokenizer(uri, planned)),
  });
}
