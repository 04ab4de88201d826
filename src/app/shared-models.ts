import type { FoundModel } from "../models/port.js";
import type { PlannedModel } from "../plan/plan.js";
import type { JobContext } from "../scoring/context.js";
import { JobError } from "../util/errors.js";
import type { ModelSpec } from "../spec/model-spec.js";

type Resolving = Pick<JobContext, "resolveModel" | "resolveTokenizer">;
type ModelTools = Resolving & Pick<JobContext, "earlierModels">;

/** Wraps the functions of one of several jobs that find models, so that the jobs agree on them. */
export type SharedModels = (model: Pick<ModelSpec, "path" | "sha256" | "server">, own: ModelTools) => Resolving;

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

/**
 * Has a job score with the model of an earlier run, and with its tokenizers: the version that its registry or server
 * has, or the file, or the copy of it that this machine kept. @throws JobError MODEL_CHANGED when it is gone
 */
export function asPlanned(planned: PlannedModel): SharedModels {
  return ({ path }, own) => {
    const { uri, sha256, version, origin } = planned;
    return {
      async resolveModel() {
        const found =
          (await findEarlier(own, planned)) ??
          (path === undefined || path === uri ? undefined : await findEarlier(own, { ...planned, uri: path }));
        if (found === undefined) {
          throw new JobError(
            "MODEL_CHANGED",
            `loading model ${uri}: ${version === undefined ? "the file" : `version ${version}`} with sha256 ${sha256} is gone`,
            { hint: "restore that version; or without --model history the present model scores the run" },
          );
        }
        return { model: found.model, version, origin };
      },
      resolveTokenizer: (named, pin) =>
        own.resolveTokenizer(named, pin ?? planned.tokenizers?.find((one) => one.uri === named)),
    };
  };
}

async function findEarlier(
  { earlierModels }: ModelTools,
  model: PlannedModel,
): ReturnType<ModelTools["earlierModels"]["find"]> {
  try {
    return await earlierModels.find(model);
  } catch (error) {
    if (error instanceof JobError && error.code === "FILE_MISSING") {
      return undefined;
    }
    throw error;
  }
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
