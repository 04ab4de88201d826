import type { JobSpec } from "../../spec/job-spec.js";
import { JobError } from "../../util/errors.js";

/**
 * Returns the path of a spec's model.
 * @throws JobError USAGE if the model is on a server.
 * @param why the reason that a file is needed
 */
export function requireModelPath(
  { model: { path } }: Pick<JobSpec, "model">,
  why: string,
  { hint = "`infer-batch validate` asks the server for the model and checks it against the input" } = {},
): string {
  if (path === undefined) {
    throw new JobError("USAGE", `reading model.server: ${why}, and a server has this one`, { hint });
  }
  return path;
}
