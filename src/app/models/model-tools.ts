import { constants } from "node:fs";
import { copyFile, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { Engine } from "../../engine/port.js";
import type { ModelFile } from "../../models/port.js";
import type { EarlierModel, EarlierModels, EngineNeed, ScoringContext } from "../../scoring/context.js";
import { challengerPlaces } from "../../spec/challenger-spec.js";
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
): ModelTools & Pick<ScoringContext, "resolveTokenizer" | "loadTokenCounter" | "challenger" | "earlierModels"> {
  return {
    earlierModels: earlierModels({ ...spec, engine: engineOfSecondModel(spec) }, options, (earlier) =>
      toolsOf(earlier, { ...options, profileFolder: undefined }),
    ),
    ...toolsOf(spec, options),
    challenger: challengerTools(spec, options),
    async resolveTokenizer(uri, planned) {
      const { findTokenizer } = await import("./tokenizers.js");
      return await findTokenizer({ model: spec.model, uri }, options, planned);
    },
    ...countingTokens(spec, options),
  };
}

/** How a model is found, and an engine opened for it. */
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
      const { file, ...found } = await resolveModel({ ...model, path }, options, planned);
      return { ...found, model: file };
    },
    async openEngine(found, need) {
      if (server?.protocol === "openai" && "served" in found) {
        const { openPrompted } = await import("./prompted-model.js");
        return await openPrompted({ ...model, server }, options, found.served.version);
      }
      if (server !== undefined && "served" in found) {
        const { openServed } = await import("./served-model.js");
        return await openServed(server, options, found);
      }
      if ("served" in found) {
        throw new Error(`the spec has no server for ${found.name}`);
      }
      return await openFile(found, need, { ...options, spec: { model, engine } });
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
 * The same for the challenger of a spec; undefined: the spec has none. The keys of `model` that say how its registry or
 * store is reached hold for both.
 */
function challengerTools(spec: JobSpec, given: ModelToolsOptions): ModelTools | undefined {
  const { challenger } = spec;
  if (challenger === undefined) {
    return undefined;
  }
  const { path, server, sha256, outputs } = challenger;
  return toolsOf(
    { model: { ...spec.model, path, server, sha256, outputs }, engine: engineOfSecondModel(spec) },
    {
      ...given,
      profileFolder: undefined, // its profiles would replace those of the champion
      where: challengerPlaces(given.where),
    },
  );
}

/** The keys of `engine` for another model that is open at the same time as the model of the spec. */
function engineOfSecondModel({ model, engine }: Pick<JobSpec, "model" | "engine">): JobSpec["engine"] {
  // Two threads with a session each on WebGPU crash ONNX Runtime.
  const listed = listedProviders(engine);
  const isCpu = model.server === undefined && listed.includes("webgpu");
  return { ...engine, providers: isCpu ? ["cpu"] : listed };
}

async function openFile(model: ModelFile, need: EngineNeed, options: EngineOptions): Promise<Engine> {
  if (model.tokenizers !== undefined) {
    const { requireTokenizers } = await import("./tokenizers.js");
    requireTokenizers();
  }
  return await openEngine(model, need, options);
}

/** Larger files are not kept: copying them takes too long. */
const keptBytes = 256 * 1024 * 1024;

/**
 * Opens the models of earlier runs of a job.
 * @param toolsOf how the model of a spec is found, and an engine opened for it
 */
function earlierModels(
  spec: Pick<JobSpec, "model" | "engine">,
  options: ModelOptions,
  toolsOf: (spec: Pick<JobSpec, "model" | "engine">) => Pick<ScoringContext, "resolveModel" | "openEngine">,
): EarlierModels {
  return {
    async find(earlier) {
      const { uri: path, sha256, version } = earlier;
      const { server } = spec.model;
      if (isServedUri(path) && (server === undefined || modelUri(spec.model) !== path)) {
        return undefined; // where it was served is not known
      }
      const place = isServedUri(path) ? { server: { ...server, version } } : { path, server: undefined };
      const model = { ...spec.model, ...place, sha256: undefined } as JobSpec["model"];
      const tools = toolsOf({ model, engine: spec.engine });
      const kept = isFile(path) ? await (await openCache(options)).find(sha256, path) : undefined;
      const found = kept ?? (await tools.resolveModel({ sha256, version })).model;
      return found.sha256 === sha256 ? { model: found, openEngine: tools.openEngine } : undefined;
    },
    keep: (model) => keep(model, options),
  };
}

/** Whether a URI names a file of this machine. */
function isFile(uri: string): boolean {
  return !isModelUri(uri) && !isHttpUri(uri);
}

async function copy(from: string, to: string): Promise<void> {
  await copyFile(from, to, constants.COPYFILE_FICLONE);
}

async function keep({ uri, sha256 }: EarlierModel, options: ModelOptions): Promise<void> {
  const from = resolve(options.folder, uri);
  if (!isFile(uri) || (await stat(from)).size > keptBytes) {
    return;
  }
  const cache = await openCache(options);
  if (await cache.touch(sha256)) {
    return;
  }
  await cache.add({
    key: `file ${sha256}`,
    name: uri,
    model: (to) => copy(from, to),
    async external(location, to) {
      await copy(join(dirname(from), location), to);
      return "";
    },
  });
}
