import type { JobContext } from "../../scoring/context.js";
import { challengerPlaces } from "../../spec/challenger-spec.js";

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
