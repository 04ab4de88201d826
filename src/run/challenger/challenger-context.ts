import type { JobContext } from "../../scoring/context.js";

/** The context of a job whose model is the challenger of this one; undefined: it has none. */
export function challengerContext(context: JobContext): JobContext | undefined {
  const { spec, challenger: tools } = context;
  const { challenger } = spec;
  if (challenger === undefined || tools === undefined) {
    return undefined;
  }
  const { path, sha256, inputs, outputs, cast, missing } = challenger;
  return {
    ...context,
    ...tools,
    challenger: undefined,
    spec: {
      ...spec,
      model: { ...spec.model, server: undefined, path, sha256, inputs, outputs, cast, missing },
      challenger: undefined,
      output: { ...spec.output, lineage: false },
    },
    where: ([first = "", ...others]) => context.where([first === "model" ? "challenger" : first, ...others]),
  };
}
