import type { JobContext } from "../../scoring/context.js";
import { challengerKeys, challengerPlaces } from "../../spec/challenger-spec.js";
import { JobError, reworded } from "../../util/errors.js";

/** The context of a job whose model is the challenger of this one; undefined: it has none. */
export function challengerContext(context: JobContext): JobContext | undefined {
  const { spec, challenger: tools } = context;
  const { challenger } = spec;
  if (challenger === undefined || tools === undefined) {
    return undefined;
  }
  const { path, server, sha256, inputs, outputs, cast, missing } = challenger;
  return {
    ...context,
    ...tools,
    challenger: undefined,
    spec: {
      ...spec,
      model: { ...spec.model, path, server, sha256, inputs, outputs, cast, missing },
      challenger: undefined,
      output: { ...spec.output, lineage: false },
    },
    where: challengerPlaces(context.where),
  };
}

/** Runs `work` for a challenger and rewrites its errors: keys such as `model.path` become `challenger.path`. */
export async function forChallenger<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof JobError)) {
      throw error;
    }
    const { message, hint } = error;
    throw reworded(error, { message: challengerKeys(message), hint: hint && challengerKeys(hint) });
  }
}
