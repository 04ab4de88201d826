import type { ModelFile, ResolvedModel } from "../models/port.js";
import type { Plan, PlannedModel } from "../plan/plan.js";
import { atKey, type JobContext, type ScoringContext } from "../scoring/context.js";
import { isRegistryUri } from "../spec/model-uri.js";
import { JobError } from "../util/errors.js";

/**
 * Finds the model of the spec and checks it against `model.sha256`.
 * @param planned the model that the plan of an unfinished run pins
 * @throws JobError MODEL_PIN when the spec pins another digest; MODEL_CHANGED when the planned version is gone
 */
export async function openPinnedModel(context: ScoringContext, planned?: PlannedModel): Promise<ResolvedModel> {
  return await atKey(context, ["model", "path"], async () => {
    const resolved = await context.resolveModel(planned).catch((error: unknown) => {
      throw planned === undefined ? error : goneError(error, planned);
    });
    const { file } = resolved;
    const pinned = context.spec.model.sha256;
    if (pinned !== undefined && pinned !== file.sha256) {
      throw new JobError(
        "MODEL_PIN",
        `loading model ${file.name}: its sha256 is ${file.sha256}, model.sha256 asks for ${pinned}`,
        { hint: "deploy the model that is pinned, or change the pin" },
      );
    }
    return resolved;
  });
}

/** The error for a planned version that the registry no longer has. */
function goneError(error: unknown, { uri, version }: PlannedModel): unknown {
  if (version === undefined || !(error instanceof JobError) || error.code !== "FILE_MISSING") {
    return error;
  }
  return new JobError("MODEL_CHANGED", `${error.message}; this run was planned with version ${version}`, {
    hint: `restore that version and run again; or give this run up: --new-run scores with what ${uri} stands for now`,
    cause: error,
  });
}

/** The model that a plan pins, if it is the one that the spec names. */
export function plannedModel(
  { spec }: JobContext,
  { model }: { readonly model: PlannedModel },
): PlannedModel | undefined {
  return model.uri === spec.model.path ? model : undefined;
}

/**
 * Returns the model of the stored plan. It is another one than this attempt has found if an alias moved while two
 * attempts were planning.
 */
export async function modelOfPlan(context: JobContext, plan: Plan, found: ModelFile): Promise<ModelFile> {
  const planned = plannedModel(context, plan);
  return planned === undefined || planned.sha256 === found.sha256
    ? found
    : (await openPinnedModel(context, planned)).file;
}

/**
 * Returns the digest of the model for a run that needs the model no longer; undefined if it is gone, or if only a
 * registry could tell: a finished run asks none, because a moved alias says nothing about its rows.
 */
export async function digestIfThere(context: JobContext, planned?: PlannedModel): Promise<string | undefined> {
  const { path, sha256 } = context.spec.model;
  if (isRegistryUri(path)) {
    return sha256;
  }
  try {
    return (await openPinnedModel(context, planned)).file.sha256;
  } catch (error) {
    if (error instanceof JobError && ["FILE_MISSING", "MODEL_CHANGED"].includes(error.code)) {
      return undefined; // rows that are scored no longer need it
    }
    throw error;
  }
}
