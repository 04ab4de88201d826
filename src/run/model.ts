import type { FoundModel, Model } from "../models/port.js";
import type { Plan, PlannedModel } from "../plan/plan.js";
import { atKey, type JobContext, type ScoringContext } from "../scoring/context.js";
import { modelUri } from "../spec/model-spec.js";
import { isRegistryUri } from "../spec/model-uri.js";
import { JobError } from "../util/errors.js";

/**
 * Finds the model of the spec and checks it against `model.sha256`.
 * @param planned the model that the plan of an unfinished run pins
 * @throws JobError MODEL_PIN when the spec pins another digest; MODEL_CHANGED when the planned version is gone
 */
export async function openPinnedModel(context: ScoringContext, planned?: PlannedModel): Promise<FoundModel> {
  return await atKey(context, placeOf(context.spec), async () => {
    const resolved = await context.resolveModel(planned).catch((error: unknown) => {
      throw planned === undefined ? error : goneError(error, planned);
    });
    const { model } = resolved;
    const pinned = context.spec.model.sha256;
    if (pinned !== undefined && pinned !== model.sha256) {
      throw new JobError(
        "MODEL_PIN",
        `loading model ${model.name}: its sha256 is ${model.sha256}, but model.sha256 is ${pinned}`,
        { hint: "deploy the pinned model, or change the pin" },
      );
    }
    return resolved;
  });
}

/** Returns the key that names the model. */
function placeOf({ model }: ScoringContext["spec"]): readonly string[] {
  return ["model", model.server === undefined ? "path" : "server"];
}

/** The error for a planned version that the registry no longer has. */
function goneError(error: unknown, { uri, version }: PlannedModel): unknown {
  if (version === undefined || !(error instanceof JobError) || error.code !== "FILE_MISSING") {
    return error;
  }
  return new JobError("MODEL_CHANGED", `${error.message}; this run was planned with version ${version}`, {
    hint: `restore that version and run again; or abandon this run: --new-run scores with the version that ${uri} resolves to now`,
    cause: error,
  });
}

/** Returns the model that a plan pins, if the spec names the same model. */
export function plannedModel(
  { spec }: JobContext,
  { model }: { readonly model: PlannedModel },
): PlannedModel | undefined {
  return model.uri === modelUri(spec.model) ? model : undefined;
}

/**
 * Returns the model of the stored plan. It differs from the model that this attempt found if an alias moved while two
 * attempts were planning.
 */
export async function modelOfPlan(context: JobContext, plan: Plan, found: Model): Promise<Model> {
  const planned = plannedModel(context, plan);
  return planned === undefined || planned.sha256 === found.sha256
    ? found
    : (await openPinnedModel(context, planned)).model;
}

/**
 * Returns the digest of the model for a run that no longer needs the model; undefined if the model is gone, or if only
 * a registry or a server knows the digest. A finished run asks neither, because a moved alias does not concern its
 * rows.
 */
export async function digestIfThere(context: JobContext, planned?: PlannedModel): Promise<string | undefined> {
  const { path = "", server, sha256 } = context.spec.model;
  if (server !== undefined || isRegistryUri(path)) {
    return sha256;
  }
  try {
    return (await openPinnedModel(context, planned)).model.sha256;
  } catch (error) {
    if (error instanceof JobError && ["FILE_MISSING", "MODEL_CHANGED"].includes(error.code)) {
      return undefined; // all rows are scored, so the model is not needed
    }
    throw error;
  }
}
