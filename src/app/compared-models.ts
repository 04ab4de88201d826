import { openPinnedModel, openTokenizers } from "../run/model.js";
import type { ComparedModel } from "../run/compare.js";
import type { JobContext } from "../scoring/context.js";
import { modelUriProblem } from "../spec/model-uri.js";
import { isObjectUri, objectUriProblem } from "../spec/object-uri.js";
import { JobError } from "../util/errors.js";
import { attemptServices } from "./attempt-services.js";
import { requireModelPath } from "./models/model-path.js";
import { resolveModel } from "./open-model.js";

/**
 * Resolves two models for a comparison: both given ones, or the spec's and the given one. Paths start from this process's
 * folder.
 * @throws JobError USAGE, and those of `ModelSource.resolve`
 */
export async function resolveCompared(
  job: JobContext,
  given: readonly string[],
): Promise<readonly [ComparedModel, ComparedModel]> {
  const [first = "", second, ...more] = given;
  if (more.length > 0) {
    throw new JobError("USAGE", `comparing models: ${given.length} are given, and two can be compared`, {
      hint: "--model A --model B; with one --model, it is compared with the model of the spec",
    });
  }
  for (const uri of given) {
    requireModelUri(uri);
  }
  if (second === undefined) {
    requireModelPath(job.spec, "compare measures models on this machine", {
      hint: "name two models with --model; or name one under `challenger` in the spec: each run compares it with the served model",
    });
  }
  return second === undefined
    ? [await ownModel(job), await resolveGiven(job, first)]
    : [await resolveGiven(job, first), await resolveGiven(job, second)];
}

function requireModelUri(uri: string): void {
  const problem = modelUriProblem(uri) ?? (isObjectUri(uri) ? objectUriProblem(uri) : undefined);
  if (uri === "" || problem !== undefined) {
    throw new JobError("USAGE", `reading --model ${uri}: ${problem ?? "it names no model"}`, {
      hint: "name a file, or a URI that model.path accepts",
    });
  }
}

async function ownModel(job: JobContext): Promise<ComparedModel> {
  const { model, ...found } = await openPinnedModel(job);
  if (!("path" in model)) {
    throw new TypeError(`${model.name} is on a server`);
  }
  return { ...found, model, isGiven: false };
}

/** A given model takes the inputs of the spec, and so its tokenizers. */
async function resolveGiven(job: JobContext, path: string): Promise<ComparedModel> {
  const { spec, log, signal } = job;
  const services = attemptServices(spec, log, signal);
  const folder = process.cwd();
  // `model.sha256` pins the spec's own model only.
  const { file, ...found } = await resolveModel({ ...spec.model, path, sha256: undefined }, { folder, ...services });
  return { ...found, model: { ...file, tokenizers: await openTokenizers(job) }, isGiven: true };
}
