import type { Contract } from "../../binding/contract.js";
import type { PlannedChecks } from "../../plan/plan.js";
import { chooseBaseline, logicalDateOf } from "../../publish/published-run.js";
import type { JobContext } from "../../scoring/context.js";
import { aggregatesOf } from "../aggregates.js";
import { pinGolden } from "../golden/golden-file.js";
import { requireSlices } from "../slices.js";
import { pinProfile, readAll } from "../judging/baseline.js";
import { requireKey } from "../review.js";
import { JobError } from "../../util/errors.js";

/**
 * Finds the published runs that a run is compared with, and pins the file of `checks.golden`. Returns undefined without
 * `checks`.
 * @throws JobError USAGE for a target that cannot hold a run; SPEC_INVALID, FILE_MISSING
 */
export async function planChecks(
  context: JobContext,
  { modelSha256, contract }: { readonly modelSha256: string; readonly contract: Contract },
): Promise<PlannedChecks | undefined> {
  const { spec, sink } = context;
  if (spec.checks === undefined) {
    return undefined;
  }
  if (sink.published === undefined) {
    throw new JobError("USAGE", `planning ${spec.name}: ${sink.target} cannot hold a run`, {
      hint: "remove `checks` from the spec, or write to output.parquet, which can hold runs",
    });
  }
  requireKey(context, contract);
  requireSlices(context, contract);
  const golden = await pinGolden(context);
  const { slices, sql } = spec.checks;
  await using _ = await aggregatesOf(context, { contract, checks: { sql } });
  const profile = await pinProfile(context);
  const compared =
    profile === undefined ? await planComparisons(context, { modelSha256 }) : { baseline: [], first: null, profile };
  return {
    ...compared,
    ...(golden === undefined ? {} : { golden }),
    ...(slices === undefined ? {} : { slices }),
    ...(sql === undefined ? {} : { sql }),
  };
}

/** Finds the published runs that a run is compared with. */
async function planComparisons(
  { spec, sink, dateParam, log }: Pick<JobContext, "spec" | "sink" | "dateParam" | "log">,
  { modelSha256 }: { readonly modelSha256: string },
): Promise<Pick<PlannedChecks, "baseline" | "first">> {
  const date = logicalDateOf({ params: spec.params, dateParam: dateParam ?? null });
  if (dateParam === undefined || date === undefined) {
    log.warn(
      dateParam === undefined
        ? "the checks cannot compare this run with earlier runs: no param comes from ${today} or ${yesterday}, so runs have no order"
        : `the checks cannot compare this run with earlier runs: param ${dateParam} is ${spec.params[dateParam] ?? ""}, not a date such as 2026-11-23`,
    );
    return { baseline: [], first: null };
  }
  const found = (await sink.published?.({ job: spec.name, params: spec.params, dateParam, date })) ?? [];
  const chosen = chooseBaseline(found, { date, modelSha256 });
  if (chosen.baseline.length === 0) {
    log.warn(
      "the checks cannot compare this run with earlier runs: no published run with an earlier date has a profile",
    );
  }
  // A profile that cannot be read is reported before rows are scored in vain.
  await readAll({ sink }, [...chosen.baseline, ...(chosen.first === null ? [] : [chosen.first])]);
  return chosen;
}
