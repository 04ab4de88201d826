import type { ScoringContext } from "../../scoring/context.js";
import type { JobSpec } from "../../spec/job-spec.js";
import { type EngineOptions, openEngine } from "../open-engine.js";
import { type ModelOptions, resolveModel } from "../open-model.js";

export interface ModelToolsOptions extends ModelOptions, Omit<EngineOptions, "spec"> {
  /** Returns the place of a key in the spec file, for messages. */
  readonly where: (path: readonly string[]) => string;
}

/** Finds the model of a spec and opens an engine for it: on this machine, or on a server. */
export function modelTools(
  spec: JobSpec,
  options: ModelToolsOptions,
): Pick<ScoringContext, "resolveModel" | "openEngine"> {
  const { server, path = "" } = spec.model;
  return {
    async resolveModel(planned) {
      if (server !== undefined) {
        const { findServed } = await import("./served-model.js");
        return await findServed(server, options, planned);
      }
      const { file: model, ...found } = await resolveModel({ ...spec.model, path }, options, planned);
      return { ...found, model };
    },
    async openEngine(model, need) {
      if (server !== undefined && "served" in model) {
        const { openServed } = await import("./served-model.js");
        return await openServed(server, options, model);
      }
      if ("served" in model) {
        throw new Error(`the spec has no server for ${model.name}`);
      }
      return await openEngine(model, need, { ...options, spec });
    },
  };
}
