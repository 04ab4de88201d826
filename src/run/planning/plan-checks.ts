import type { Contract } from "../../binding/contract.js";
import type { FoundModel } from "../../models/port.js";
import { shortDigest } from "../../plan/identity.js";
import type { PlannedChecks, PlannedModel } from "../../plan/plan.js";
import {
  chooseBaseline,
  leftOutText,
  logicalDateOf,
  nameWithVersion,
  normalAndOthers,
  olderModelText,
  whyNotCompared,
} from "../../publish/published-run.js";
import type { JobContext } from "../../scoring/context.js";
import { aggregatesOf } from "../aggregates.js";
import { modelUri } from "../../spec/model-spec.js";
import { pinGolden } from "../golden/golden-file.js";
import { pinProfile, requireProfiles } from "../judging/baseline.js";
import { requireColumns } from "../judging/require-columns.js";

/**
 * Finds the published runs that a run is compared with, and pins the file of `checks.golden`. Returns undefined without
 * `checks`.
 * @throws JobError USAGE for a target that cannot hold a run; SPEC_INVALID, FILE_MISSING
 */
export async function planChecks(
  context: JobContext,
  { resolved, contract }: { readonly resolved: FoundModel; readonly contract: Contract },
): Promise<PlannedChecks | undefined> {
  const { spec } = context;
  if (spec.checks === undefined) {
    return undefined;
  }
  await requireFitting(context, contract);
  const golden = await pinGolden(context);
  const { slices, sql } = spec.checks;
  const profile = await pinProfile(context);
  const { isNewModel, ...compared } =
    profile === undefined ? await planComparisons(context, resolved) : { isNewModel: false, baseline: [], profile };
  if (isNewModel && golden === undefined) {
    warnOfNoGoldenRows(context, resolved, compared);
  }
  return {
    ...compared,
    ...(golden === undefined ? {} : { golden }),
    ...(slices === undefined ? {} : { slices }),
    ...(sql === undefined ? {} : { sql }),
  };
}

/**
 * Checks that the columns and the conditions of `checks` fit the output.
 * @throws JobError SPEC_INVALID
 */
export async function requireFitting(context: JobContext, contract: Contract): Promise<void> {
  requireColumns(context, contract);
  await using _ = await aggregatesOf(context, { contract, checks: { sql: context.spec.checks?.sql } });
}

/** Finds the published runs that a run is compared with. */
async function planComparisons(
  { spec, sink, dateParam, log }: Pick<JobContext, "spec" | "sink" | "dateParam" | "log">,
  resolved: FoundModel,
): Promise<Pick<PlannedChecks, "baseline" | "leftOut" | "olderModel"> & { readonly isNewModel: boolean }> {
  const modelSha256 = resolved.model.sha256;
  const ordered = { params: spec.params, dateParam: dateParam ?? null };
  const date = logicalDateOf(ordered);
  const warning = `the checks cannot compare this run with earlier runs: ${whyNotCompared(ordered)}`;
  if (dateParam === undefined || date === undefined) {
    log.warn(warning);
    return { baseline: [], isNewModel: false }; // or the warning would come with every run
  }
  const series = { job: spec.name, params: spec.params, dateParam, date };
  const found = normalAndOthers(await sink.published("everywhere"), series);
  const chosen = await chooseBaseline(found, { modelSha256 });
  if (chosen.baseline.length === 0) {
    log.warn(warning);
  }
  const leftOut = leftOutText(chosen);
  if (leftOut !== undefined) {
    log.info(`checks: ${leftOut}`);
  }
  const older = olderModelText(namedModel(spec, resolved), chosen);
  if (older !== undefined) {
    log.warn(older);
  }
  // A profile that cannot be read is reported before rows are scored in vain.
  await requireProfiles({ sink }, chosen.baseline);
  return { ...chosen, isNewModel: !found.some((run) => run.modelSha256 === modelSha256) };
}

/** Warns, in the first run of a version of the model, that its predictions are compared with earlier runs at most. */
function warnOfNoGoldenRows(
  { spec, log }: Pick<JobContext, "spec" | "log">,
  resolved: FoundModel,
  { baseline }: Pick<PlannedChecks, "baseline">,
): void {
  if (spec.model.server?.protocol === "openai") {
    return; // `checks.golden` is refused for it
  }
  const model = namedModel(spec, resolved);
  const named =
    model.version === undefined ? `${model.uri} (sha256 ${shortDigest(model.sha256)})` : nameWithVersion(model);
  const compared = baseline.length === 0 ? "with nothing" : "with earlier runs only";
  log.warn(
    `first run with ${named}, and without known predictions: its predictions are compared ${compared}, so a wrong model or wrong preprocessing may not be noticed; name rows with known predictions in checks.golden, which are scored first`,
  );
}

/** The model as a plan names it. */
function namedModel(
  { model }: JobContext["spec"],
  { model: { sha256 }, version }: FoundModel,
): Pick<PlannedModel, "uri" | "sha256" | "version"> {
  return { uri: modelUri(model), sha256, version };
}
