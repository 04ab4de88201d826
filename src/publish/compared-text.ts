import type { Plan } from "../plan/plan.js";
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
    : "no published run with an earlier date has a profile, or is a baseline";
}
