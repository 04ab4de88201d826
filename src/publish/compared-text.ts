import { shortDigest } from "../plan/identity.js";
import type { Plan, PlannedChecks, PlannedModel } from "../plan/plan.js";
import { logicalDateOf } from "./published-run.js";

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

const reasons = { approved: "approved as not normal", expected: "expected to differ" };

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
