import type { FoundModel } from "../models/port.js";
import type { JobContext } from "../scoring/context.js";
import type { ModelSpec } from "../spec/model-spec.js";

type Resolve = JobContext["resolveModel"];

/** Wraps the `resolveModel` of one of several jobs, so that all of them share the resolved models. */
export type SharedModels = (model: Pick<ModelSpec, "path" | "sha256" | "server">, resolve: Resolve) => Resolve;

/**
 * Has several jobs score with the same version of a model: each `model.path` is resolved once, by the first job that
 * plans a run, even if its alias or file changes after that. The plan of an unfinished run pins a version of its own.
 * @param onResolved called with each model that is found for runs to be planned
 */
export function resolveOnce(
  onResolved: (model: Pick<ModelSpec, "path" | "server">, resolved: FoundModel) => void,
): SharedModels {
  const found = new Map<string, Promise<FoundModel>>();
  return (model, resolve) => async (planned) => {
    const key = JSON.stringify([model.path, model.sha256, model.server, planned]);
    const known = found.get(key);
    if (known !== undefined) {
      return await known;
    }
    const resolving = resolve(planned);
    found.set(key, resolving);
    try {
      const resolved = await resolving;
      if (planned === undefined) {
        onResolved(model, resolved);
      }
      return resolved;
    } catch (error) {
      found.delete(key); // the next job tries again
      throw error;
    }
  };
}
