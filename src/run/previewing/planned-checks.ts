import { comparedNights, enoughNights } from "../../checks/check.js";
import type { Plan, PlannedChecks } from "../../plan/plan.js";
import { limitsOf } from "../../publish/verdict-text.js";
import { datesText, leftOutText, olderModelText } from "../../publish/published-run.js";
import { count } from "../../report/report.js";
import type { ScoringContext } from "../../scoring/context.js";
import { featurePlanOf, keyColumns } from "../../scoring/features.js";

/**
 * Says what the checks of a run look at and what becomes of a run that fails one, then what it is compared with; nothing
 * without `checks`. A plan that was made without them has the first line only.
 */
export function plannedChecks({ spec }: Pick<ScoringContext, "spec">, plan: Plan): string[] {
  const { checks } = spec;
  if (checks === undefined) {
    return [];
  }
  const { unique = [], sql = {}, golden, slices = [] } = checks;
  const checked = { ...plan, checks: plan.checks ?? { baseline: [] } };
  const { columns, left } = featurePlanOf(checked, keyColumns(spec)) ?? { columns: [], left: [] };
  const features = count(columns.length + left.length, "feature");
  const conditions = Object.keys(sql).length;
  const looked = [
    ...(checks.baseline === "published" ? ["rows"] : []),
    "rejects",
    count(plan.contract.outputs.length, "output"),
    left.length === 0 ? features : `the first ${columns.length} of ${features}`,
    ...(slices.length === 0 ? [] : [`slices by ${slices.join(", ")}`]),
    ...(unique.length === 0 ? [] : [`keys of ${unique.join(", ")}`]),
    ...(conditions === 0 ? [] : [count(conditions, "SQL condition")]),
  ];
  const end = checks.on_fail === "hold" ? "holds the run" : "only warns";
  return [
    `${looked.join(", ")}; a failed check ${end}`,
    ...(golden === undefined
      ? []
      : ["golden rows, before any other; if one differs, the attempt ends with exit code 65"]),
    ...(plan.checks === null ? [] : comparedLines(checks, { ...plan, checks: plan.checks })),
  ];
}

/** Says what a planned run is compared with, and where comparisons only warn, a line each. */
function comparedLines(
  checks: NonNullable<ScoringContext["spec"]["checks"]>,
  plan: Pick<Plan, "params" | "dateParam" | "staged" | "model"> & { readonly checks: PlannedChecks },
): string[] {
  const canHold = checks.on_fail === "hold";
  const notes = [leftOutText(plan.checks), olderModelText(plan.model, plan.checks)];
  const { expected } = limitsOf(checks, plan);
  return [
    comparedLine(plan.checks, canHold),
    ...(expected === undefined
      ? []
      : [`expected to differ (${expected.reason})${canHold ? ": comparisons only warn" : ""}`]),
    ...notes.filter((line) => line !== undefined),
  ];
}

function comparedLine({ baseline, profile }: PlannedChecks, canHold: boolean): string {
  const dates = baseline.map(({ date }) => date);
  const runs = count(dates.length, "earlier run");
  if (profile !== undefined) {
    return `compared with ${profile.uri}`;
  }
  if (dates.length === 0) {
    return `compared with no earlier run${canHold ? ": only checks that need none can hold this one" : ""}`;
  }
  const latest = dates.slice(-comparedNights);
  const few = canHold && dates.length < enoughNights ? `; ${dates.length} of ${enoughNights} nights known` : "";
  return dates.length > comparedNights
    ? `compared with the last ${comparedNights} of ${runs}, from ${latest[0]} to ${latest.at(-1)}`
    : `compared with ${runs}, ${datesText(dates)}${few}`;
}
