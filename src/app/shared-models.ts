import type { FoundModel } from "../models/port.js";
import type { JobContext } from "../scoring/context.js";
import type { ModelSpec } from "../spec/model-spec.js";

type Resolving = Pick<JobContext, "resolveModel" | "resolveTokenizer">;

/** Wraps the functions of one of several jobs that find models, so that the jobs agree on them. */
export type SharedModels = (model: Pick<ModelSpec, "path" | "sha256" | "server">, own: Resolving) => Resolving;

/**
 * Has several jobs score with the same version of a model and of its tokenizers: each URI is resolved once, by the first
 * job that plans a run, even if its alias or file changes after that. The plan of an unfinished run pins versions of its
 * own.
 * @param onResolved called with each model that is found for runs to be planned
 */
export function resolveOnce(
  onResolved: (model: Pick<ModelSpec, "path" | "server">, resolved: FoundModel) => void,
): SharedModels {
  const models = createMemory<FoundModel>();
  const tokenizers = createMemory<Awaited<ReturnType<Resolving["resolveTokenizer"]>>>();
  return (model, own) => ({
    resolveModel: (planned) =>
      models([model.path, model.sha256, model.server, planned], async () => {
        const resolved = await own.resolveModel(planned);
        if (planned === undefined) {
          onResolved(model, resolved);
        }
        return resolved;
      }),
    resolveTokenizer: (uri, planned) => tokenizers([uri, planned], () => own.resolveTokenizer(uri, planned)),
  });
}

/** Remembers what was found for a key. After an error, the next caller tries again. */
function createMemory<T>(): (key: unknown, find: () => Promise<T>) => Promise<T> {
  const found = new Map<string, Promise<T>>();
  return async (key, find) => {
    const name = JSON.stringify(key);
    const known = found.get(name);
    if (known !== undefined) {
      return await known;
    }
    const finding = find();
    found.set(name, finding);
    try {
      return await finding;
    } catch (error) {
      found.delete(name);
      throw error;
    }
  };
}
