import { leastPsiRows } from "../checks/verdicts/psi.js";
import { leastQuantileRows } from "../checks/verdicts/quantile-check.js";
import type { CoarseColumn, FewSampled, Verdict } from "../checks/verdicts/verdict.js";
import { shortDigest } from "../plan/identity.js";
import type { Plan, PlannedChecks, PlannedModel } from "../plan/plan.js";
import { logicalDateOf } from "./published-run.js";
import { percent, withSeparators } from "./shown-numbers.js";

/** Says why a run is compared with no earlier run; undefined: it is compared, or it has no checks. */
export function notComparedText(plan: Pick<Plan, "checks" | "dateParam" | "params">): string | undefined {
  const { checks } = plan;
  return checks === null || checks.profile !== undefined || checks.baseline.length > 0
    ? undefined
    : `compared with no earlier run: ${whyNotCompared(plan)}`;
}

/** Says why a run without a baseline has none. */
export function whyNotCompared(plan: Pick<Plan, "dateParam" | "params">): string {
  const { dateParam, params } = plan;
  if (dateParam === null) {
    return "no param is a date, so runs have no order; add one to the spec: ds: { type: date }, or ds: ${today}";
  }
  return logicalDateOf(plan) === undefined
    ? `param ${dateParam} is ${params[dateParam] ?? ""}, not a date such as 2026-11-23`
    : "no run for an earlier date is published, or none of them counts as a baseline";
}

/** Runs that a line names one by one; of more, it has the first and the last date. */
const namedRuns = 3;

/** Says which of the latest published runs a run is not compared with, and why; undefined: there are none. */
export function leftOutText({ leftOut = [] }: Pick<PlannedChecks, "leftOut">): string | undefined {
  const texts = (["approved", "expected"] as const).flatMap((why) => {
    const dates = leftOut.filter((run) => run.why === why).map(({ date }) => date);
    const many = dates.length > namedRuns ? `${dates.length} runs ` : "";
    return dates.length === 0 ? [] : [`${many}${datesText(dates)}: ${reasons[why]}`];
  });
  return texts.length === 0 ? undefined : `not compared with ${texts.join("; nor with ")}`;
}

const reasons = { approved: "approved, but not as a baseline", expected: "expected to differ" };

type NamedModel = Pick<PlannedModel, "uri" | "sha256" | "version">;

/** Names a model, by its version where it has one. */
export function nameWithVersion({ uri, version }: NamedModel): string {
  return version === undefined ? uri : `version ${version} of ${uri}`;
}

/** Says that a model is not that of the last run, but one that an earlier run had; undefined: it is not so. */
export function olderModelText(
  model: NamedModel,
  { olderModel }: Pick<PlannedChecks, "olderModel">,
): string | undefined {
  if (olderModel === undefined) {
    return undefined;
  }
  const { usedOn, last } = olderModel;
  return `the model is not that of the last run: ${nameWithVersion(model)} has sha256 ${shortDigest(model.sha256)}, that run (${last.date}) had ${shortDigest(last.modelSha256)}; it was last used on ${usedOn}`;
}

/** Dates in a few words: "2026-11-20 and 2026-11-21"; of many, "from 2026-11-20 to 2026-11-25". */
export function datesText(dates: readonly string[]): string {
  const last = dates.at(-1) ?? "";
  return dates.length > namedRuns
    ? `from ${dates[0]} to ${last}`
    : [dates.slice(0, -1).join(", "), last].filter((text) => text !== "").join(" and ");
}

/**
 * Says which comparisons of features were left out because a sample is too small.
 * @param file the `checks.baseline` file that the run is compared with; undefined: it is compared with earlier runs
 */
export function fewSampledText({ of, rows, sampled }: FewSampled, file?: string): string {
  const without = sampled < leastPsiRows ? "PSI and quantiles" : "quantiles";
  const whose =
    of === "run"
      ? "the sample of this run"
      : file === undefined
        ? "the largest sample of an earlier run"
        : `the sample of ${file}`;
  return `features were compared without ${without}: ${whose} has only ${withSeparators(sampled)} of ${withSeparators(rows)} rows, and ${neededText(sampled)}`;
}

/** Says how many rows a check needs that a sample of so many is too small for. */
export function neededText(sampled: number): string {
  return sampled < leastPsiRows ? `a PSI needs ${leastPsiRows}` : `quantiles need ${withSeparators(leastQuantileRows)}`;
}

/**
 * Says which columns some checks do not compare, and why.
 * @param file the `checks.baseline` file that the run is compared with; undefined: it is compared with earlier runs
 */
export function columnNotes({ uncounted = [] }: Pick<Verdict, "uncounted">, file?: string): string[] {
  const before = file ?? "earlier runs";
  return uncounted.map(({ column, checks, run }) => {
    if (checks.includes("centroid")) {
      return `\`centroid\` does not compare ${column}: its vectors are too few, or have too little direction in common`;
    }
    const names = checks.map((check) => `\`${check}\``).join(" and ");
    const be = checks.length === 1 ? "does" : "do";
    return run === "this"
      ? `${column} has more different values than are counted one by one, so ${names} ${be} not compare them`
      : `${column} had more different values in ${before} than were counted one by one, so ${names} ${be} not compare them`;
  });
}

/**
 * Describes an output whose PSI is too coarse to show changes within a wide bin.
 * @param file the `checks.baseline` file that the run is compared with; undefined: it is compared with earlier runs
 */
export function coarseText({ column, run, values, rowsInBin, rows }: CoarseColumn, file?: string): string {
  const whose =
    run === "this" ? "of the rows" : file === undefined ? "of the last run's rows" : `of the rows in ${file}`;
  return `the PSI of ${column} is coarse: ${percent(rowsInBin / rows)} ${whose} are in one bin, ${values}, and a change within it is not seen`;
}
