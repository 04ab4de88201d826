import type { Engine } from "../../engine/port.js";
import type { ModelFile } from "../../models/port.js";
import type { EngineNeed, ScoringContext } from "../../scoring/context.js";
import { listedProviders } from "../../spec/engine-spec.js";
import type { JobSpec } from "../../spec/job-spec.js";
import { type EngineOptions, openEngine } from "../open-engine.js";
import { type ModelOptions, resolveModel } from "../open-model.js";
import { earlierModels } from "./earlier-models.js";

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
    earlierModels: earlierModels({ ...spec, engine: engineOfSecondModel(spec) }, options, (earlier) =>
      toolsOf(earlier, { ...options, profileFolder: undefined }),
    ),
    ...toolsOf(spec, options),
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
 * The same for the challenger of a spec. The keys of `model` that say how its registry or store is reached hold for both;
 * its profiles would replace those of the model.
 */
export function challengerTools(
  spec: JobSpec,
  options: ModelToolsOptions,
): Pick<ModelTools, "resolveModel" | "openEngine"> {
  const { path, server, sha256, outputs } = spec.challenger ?? {};
  const model = { ...spec.model, path, server, sha256, outputs };
  return toolsOf({ model, engine: engineOfSecondModel(spec) }, { ...options, profileFolder: undefined });
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
    const { requireTokenizers } = await import("./tokenizer-library.js");
    requireTokenizers();
  }
  return await openEngine(model, need, options);
}
