import type { Plan } from "../plan/plan.js";
import { logicalDateOf } from "./published-run.js";

/** Says why a run is compared with no earlier run; undefined: it is compared, or it has no checks. */
export function notComparedText(plan: Pick<Plan, "checks" | "dateParam" | "params">): string | undefined {
  const { checks, dateParam, params } = plan;
  if (checks === null || checks.profile !== undefined || checks.baseline.length > 0) {
    return undefined;
  }
  const why =
    dateParam === null
      ? "no param of the job is a date, so its runs have no order"
      : logicalDateOf(plan) === undefined
        ? `param ${dateParam} is ${params[dateParam] ?? ""}, not a date such as 2026-11-23`
        : "no published run with an earlier date has a profile";
  return `compared with no earlier run: ${why}`;
}
