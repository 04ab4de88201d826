import type { Engine } from "../../engine/port.js";
import type { ModelFile } from "../../models/port.js";
import type { EngineNeed, ScoringContext } from "../../scoring/context.js";
import type { JobSpec } from "../../spec/job-spec.js";
import { type EngineOptions, openEngine } from "../open-engine.js";
import { type ModelOptions, resolveModel } from "../open-model.js";

type ModelTools = Pick<ScoringContext, "resolveModel" | "openEngine">;

export interface ModelToolsOptions extends ModelOptions, Omit<EngineOptions, "spec"> {
  /** Returns the place of a key in the spec file, for messages. */
  readonly where: (path: readonly string[]) => string;
}

/** Finds the models of a spec and opens engines for them: on this machine, or on a server. */
export function modelTools(
  spec: JobSpec,
  options: ModelToolsOptions,
): ModelTools & Pick<ScoringContext, "resolveTokenizer" | "challenger"> {
  const { server, path = "" } = spec.model;
  return {
    challenger: challengerTools(spec, options),
    async resolveModel(planned) {
      if (server?.protocol === "openai") {
        const { findPrompted } = await import("./prompted-model.js");
        return await findPrompted({ ...spec.model, server }, options, planned);
      }
      if (server !== undefined) {
        const { findServed } = await import("./served-model.js");
        return await findServed(server, options, planned);
      }
      const { file: model, ...found } = await resolveModel({ ...spec.model, path }, options, planned);
      return { ...found, model };
    },
    async resolveTokenizer(uri, planned) {
      const { findTokenizer } = await import("./tokenizers.js");
      return await findTokenizer({ model: spec.model, uri }, options, planned);
    },
    async openEngine(model, need) {
      if (server?.protocol === "openai" && "served" in model) {
        const { openPrompted } = await import("./prompted-model.js");
        return await openPrompted({ ...spec.model, server }, options, model.served.version);
      }
      if (server !== undefined && "served" in model) {
        const { openServed } = await import("./served-model.js");
        return await openServed(server, options, model);
      }
      if ("served" in model) {
        throw new Error(`the spec has no server for ${model.name}`);
      }
      return await openFile(model, need, { ...options, spec });
    },
  };
}

/**
 * How the challenger of a spec is found, and an engine opened for it on this machine; undefined: the spec has none. The keys
 * of `model` that say how its registry or store is reached hold for both.
 */
function challengerTools({ challenger, model, engine }: JobSpec, given: ModelToolsOptions): ModelTools | undefined {
  if (challenger === undefined) {
    return undefined;
  }
  const options = { ...given, profileFolder: undefined }; // its profiles would replace those of the champion
  const place = { ...model, path: challenger.path, sha256: challenger.sha256 };
  // Two threads with a session each on WebGPU crash ONNX Runtime.
  const providers = engine.providers.includes("webgpu") ? (["cpu"] as const) : engine.providers;
  const spec = { engine: { ...engine, providers }, model: { outputs: challenger.outputs } };
  return {
    async resolveModel(planned) {
      const { file, ...found } = await resolveModel(place, options, planned);
      return { ...found, model: file };
    },
    async openEngine(file, need) {
      if ("served" in file) {
        throw new Error(`challenger ${file.name} is on a server`);
      }
      return await openFile(file, need, { ...options, spec });
    },
  };
}

async function openFile(model: ModelFile, need: EngineNeed, options: EngineOptions): Promise<Engine> {
  if (model.tokenizers !== undefined) {
    const { requireTokenizers } = await import("./tokenizer-library.js");
    requireTokenizers();
  }
  return await openEngine(model, need, options);
}
