import { JobError, orError } from "../base/errors.js";
import { atKey, type Models, type PlacedSpec } from "../flow/opened-job.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import { modelUri, tokenizerUris } from "../job/jobfile/model-spec.js";
import { isRegistryUri } from "../job/jobfile/uri.js";
import type { FoundModel, Model, TokenizerFile } from "../models/places/place.js";
import type { PinnedFile, PinnedTokenizer, Plan, PlannedModel } from "./plan/plan.js";

/* The model of a run: how it is found, and compared with the plan. */

/**
 * Finds the model of the spec with its tokenizers, and checks it against `model.sha256`.
 * @param planned the model that the plan of an unfinished run pins
 * @throws JobError MODEL_PIN when the spec pins another digest; MODEL_CHANGED when the planned version is gone
 */
export async function openPinnedModel(job: PlacedSpec, models: Models, planned?: PlannedModel): Promise<FoundModel> {
  const found = await findModel(job, models, planned);
  return "served" in found.model
    ? found
    : { ...found, model: { ...found.model, tokenizers: await openTokenizers(job, models, planned) } };
}

async function findModel(job: PlacedSpec, models: Models, planned?: PlannedModel): Promise<FoundModel> {
  return await atKey(job, ["model", job.spec.model.server === undefined ? "path" : "server"], async () => {
    const resolved = await models.resolveModel(planned).catch((error: unknown) => {
      throw planned === undefined ? error : goneError(error, planned);
    });
    const { model } = resolved;
    const pinned = job.spec.model.sha256;
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

/**
 * Finds the tokenizers of the spec; undefined: it has none.
 * @param planned the model that the plan of an unfinished run pins
 * @throws JobError MODEL_CHANGED when the planned version of one is gone
 */
export async function openTokenizers(
  job: PlacedSpec,
  models: Models,
  planned?: PlannedModel,
): Promise<TokenizerFile[] | undefined> {
  const found: TokenizerFile[] = [];
  for (const [uri, input] of tokenizerUris(job.spec.model)) {
    const pin = planned?.tokenizers?.find((one) => one.uri === uri);
    const resolve = async (): Promise<TokenizerFile> =>
      await models.resolveTokenizer(uri, pin).catch((error: unknown) => {
        throw pin === undefined ? error : goneError(error, pin);
      });
    found.push(await atKey(job, ["model", "inputs", input, "tokenizer"], resolve));
  }
  return found.length === 0 ? undefined : found;
}

/** The tokenizers of a model's inputs. */
export function tokenizersOf(model: Model): readonly TokenizerFile[] {
  return "served" in model ? [] : (model.tokenizers ?? []);
}

/** The tokenizers of a model's inputs as a plan pins them; undefined: it has none. */
export function pinnedTokenizers(model: Model): PinnedTokenizer[] | undefined {
  const all = tokenizersOf(model).map(({ uri, sha256, version }) => ({ uri, sha256, version }));
  return all.length === 0 ? undefined : all;
}

function goneError(error: unknown, { uri, version }: Pick<PlannedModel, "uri" | "version">): unknown {
  if (version === undefined || !(error instanceof JobError) || error.code !== "FILE_MISSING") {
    return error;
  }
  return new JobError("MODEL_CHANGED", `${error.message}; this run was planned with version ${version}`, {
    hint: `restore that version and run again; or abandon this run: --new-run scores with the version that ${uri} resolves to now`,
    cause: error,
  });
}

/** Returns the model that a plan pins, if the spec names the same model. */
export function plannedModel(spec: JobSpec, { model }: { readonly model: PlannedModel }): PlannedModel | undefined {
  return model.uri === modelUri(spec.model) ? model : undefined;
}

/**
 * Returns the model of the stored plan. It differs from the model that this attempt found if an alias moved while two
 * attempts were planning.
 */
export async function modelOfPlan(job: PlacedSpec, models: Models, plan: Plan, found: Model): Promise<Model> {
  const planned = plannedModel(job.spec, plan);
  const isPlanned =
    planned === undefined ||
    (planned.sha256 === found.sha256 && tokenizerDifference(planned, tokenizersOf(found)) === undefined);
  return isPlanned ? found : (await openPinnedModel(job, models, planned)).model;
}

/** How a tokenizer differs from the planned one, as its URI and a text; undefined: none does. */
export function tokenizerDifference(
  { tokenizers = [] }: PlannedModel,
  found: readonly PinnedFile[],
): readonly [uri: string, difference: string] | undefined {
  const planned = new Map(tokenizers.map(({ uri, sha256 }) => [uri, sha256]));
  const differing = found.find(({ uri, sha256 }) => (planned.get(uri) ?? sha256) !== sha256);
  return differing && [differing.uri, `its sha256 is ${differing.sha256}, planned ${planned.get(differing.uri)}`];
}

/** The digests of a model and of its tokenizers, as far as they are known. */
export interface FoundDigests {
  readonly modelSha256: string | undefined;
  readonly tokenizers: readonly PinnedFile[];
}

export function digestsOf(model: Model): FoundDigests {
  return { modelSha256: model.sha256, tokenizers: tokenizersOf(model) };
}

/**
 * Returns the digests of model and tokenizers for a run that no longer needs them, without those that are gone, and
 * without those that only a registry or a server knows. A finished run asks neither, because a moved alias does not
 * concern its rows.
 */
export async function digestsIfThere(job: PlacedSpec, models: Models, planned?: PlannedModel): Promise<FoundDigests> {
  const { path = "", server, sha256 } = job.spec.model;
  const isElsewhere = server !== undefined || isRegistryUri(path);
  const modelSha256 = isElsewhere
    ? sha256
    : await unlessGone(async () => (await findModel(job, models, planned)).model);
  const tokenizers: PinnedFile[] = [];
  for (const uri of tokenizerUris(job.spec.model).keys()) {
    const pin = planned?.tokenizers?.find((one) => one.uri === uri);
    const found = isRegistryUri(uri) ? undefined : await unlessGone(() => models.resolveTokenizer(uri, pin));
    tokenizers.push(...(found === undefined ? [] : [{ uri, sha256: found }]));
  }
  return { modelSha256, tokenizers };
}

/** undefined: it is gone, and not needed, because all rows are scored. */
async function unlessGone(find: () => Promise<{ readonly sha256: string }>): Promise<string | undefined> {
  const found = await orError(find, ({ code }) => code === "FILE_MISSING" || code === "MODEL_CHANGED");
  return found instanceof JobError ? undefined : found.sha256;
}
