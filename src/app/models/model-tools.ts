import { constants } from "node:fs";
import { copyFile, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { EarlierModels, ScoringContext } from "../../scoring/context.js";
import { challengerModel } from "../../spec/challenger-spec.js";
import { listedProviders } from "../../spec/engine-spec.js";
import type { JobSpec } from "../../spec/job-spec.js";
import { modelUri } from "../../spec/model-spec.js";
import { isHttpUri, isModelUri, isServedUri } from "../../spec/model-uri.js";
import { type EngineOptions, openEngine } from "../open-engine.js";
import { type ModelOptions, openCache, resolveModel } from "../open-model.js";

type ModelTools = Pick<ScoringContext, "resolveModel" | "openEngine" | "lookAtPaid">;

export interface ModelToolsOptions extends ModelOptions, Omit<EngineOptions, "spec"> {
  /** Returns the place of a key in the spec file, for messages. */
  readonly where: (path: readonly string[]) => string;
}

/** Finds the models of a spec and opens engines for them: on this machine, or on a server. */
export function modelTools(
  spec: JobSpec,
  options: ModelToolsOptions,
): ModelTools & Pick<ScoringContext, "resolveTokenizer" | "loadTokenCounter" | "earlierModels"> {
  return {
    earlierModels: earlierModels({ ...spec, engine: engineOfSecondModel(spec) }, options),
    ...toolsOf(spec, options),
    async resolveTokenizer(uri, planned) {
      const { findTokenizer } = await import("./tokenizers.js");
      return await findTokenizer({ model: spec.model, uri }, options, planned);
    },
    ...countingTokens(spec, options),
  };
}

function toolsOf({ model, engine }: Pick<JobSpec, "model" | "engine">, options: ModelToolsOptions): ModelTools {
  const { server, path = "" } = model;
  return {
    ...lookingAtPaid(model),
    async resolveModel(planned) {
      if (server?.protocol === "openai") {
        const { findPrompted } = await import("./prompted-model.js");
        return await findPrompted({ ...model, server }, options, planned);
      }
      if (server !== undefined) {
        const { findServed } = await import("./served-model.js");
        return await findServed(server, options, planned);
      }
      const { file, ...facts } = await resolveModel({ ...model, path }, options, planned);
      return { ...facts, model: file };
    },
    async openEngine(resolved, need) {
      if (server?.protocol === "openai" && "served" in resolved) {
        const { openPrompted } = await import("./prompted-model.js");
        return await openPrompted({ ...model, server }, options, resolved.served.version);
      }
      if (server !== undefined && "served" in resolved) {
        const { openServed } = await import("./served-model.js");
        return await openServed(server, options, resolved);
      }
      if ("served" in resolved) {
        throw new Error(`the spec has no server for ${resolved.name}`);
      }
      if (resolved.tokenizers !== undefined) {
        const { requireTokenizers } = await import("./tokenizers.js");
        requireTokenizers();
      }
      return await openEngine(resolved, need, { ...options, spec: { model, engine } });
    },
  };
}

function countingTokens({ model }: JobSpec, options: ModelToolsOptions): Pick<ScoringContext, "loadTokenCounter"> {
  const uri = model.prompt?.tokenizer;
  return uri === undefined
    ? {}
    : {
        async loadTokenCounter() {
          const { openTokenCounter } = await import("./tokenizers.js");
          return await openTokenCounter({ model, uri }, options);
        },
      };
}

function lookingAtPaid(model: JobSpec["model"]): Pick<ScoringContext, "lookAtPaid"> {
  const { server } = model;
  return server?.protocol !== "openai"
    ? {}
    : {
        async lookAtPaid(...look) {
          const { lookAtRun } = await import("../../engine/prompts/kept-answers.js");
          return await lookAtRun(model.budget?.price)(...look);
        },
      };
}

/**
 * The same for the challenger of a spec. The keys of `model` that say how its registry or store is reached hold for both;
 * its profiles would replace those of the model.
 */
export function challengerTools(
  spec: JobSpec,
  options: ModelToolsOptions,
): Pick<ModelTools, "resolveModel" | "openEngine"> {
  const model = spec.challenger === undefined ? spec.model : challengerModel(spec.model, spec.challenger);
  return toolsOf({ model, engine: engineOfSecondModel(spec) }, { ...options, profileFolder: undefined });
}

/** The keys of `engine` for another model that is open at the same time as the model of the spec. */
function engineOfSecondModel({ model, engine }: Pick<JobSpec, "model" | "engine">): JobSpec["engine"] {
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

/** Whether a URI names a file of this machine. */
function isFile(uri: string): boolean {
  return !isModelUri(uri) && !isHttpUri(uri);
}
