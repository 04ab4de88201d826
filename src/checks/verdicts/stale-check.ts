import type { AllRows } from "../profiles/all-rows.js";
import type { ColumnProfile } from "../profiles/column-profile.js";
import { profileJson } from "../profiles/profile-json.js";
import type { RunProfile } from "./run-profile.js";
import type { CheckResult } from "./verdict.js";

/** Checks whether every feature is the same as in the last run, which suggests that an input table was not refreshed. */
export function checkStale({ features }: RunProfile, last: RunProfile): CheckResult[] {
  const found = new Set([...features].map(([column, now]) => sameness(now, last.features.get(column))));
  if (found.has("other") || !found.has("same")) {
    return [];
  }
  const result: CheckResult = {
    check: "stale",
    column: null,
    level: "warn",
    formula: "features whose profile is that of the last run; fewer than all",
    measured: features.size,
    limit: features.size,
    against: last.runId,
    numbers: { features: features.size },
  };
  return [result];
}

/**
 * Compares the profiles of a feature. An exact sum tells numbers apart. Other values need their whole profile: if the samples
 * of the runs have other sizes, or the profile has no values, it is "unknown" whether they are the same.
 */
function sameness(now: ColumnProfile, before: ColumnProfile | undefined): "same" | "unknown" | "other" {
  const [ofNow, ofBefore] = [ofAllRows(now), before && ofAllRows(before)];
  if (ofBefore === undefined || ofNow.rows === 0 || now.type !== before?.type || !isEqual(ofNow, ofBefore)) {
    return "other";
  }
  const { numbers } = ofNow;
  if (numbers !== undefined && numbers.min < numbers.max) {
    return "same";
  }
  if (now.kind === "rows" || now.rows !== before.rows) {
    return "unknown";
  }
  return JSON.stringify(profileJson(before)) === JSON.stringify(profileJson(now)) ? "same" : "other";
}

/** What a profile says of all rows, also if it is of a sample of them. */
function ofAllRows({ all, rows, nulls, ...profile }: ColumnProfile): AllRows {
  return all ?? { rows, nulls, ...(profile.kind === "numbers" ? { numbers: profile.numbers } : {}) };
}

function isEqual(one: AllRows, other: AllRows): boolean {
  const [numbers, others] = [one.numbers, other.numbers];
  return (
    one.rows === other.rows &&
    one.nulls === other.nulls &&
    numbers?.nan === others?.nan &&
    numbers?.positiveInfinite === others?.positiveInfinite &&
    numbers?.negativeInfinite === others?.negativeInfinite &&
    numbers?.finite === others?.finite &&
    numbers?.min === others?.min &&
    numbers?.max === others?.max &&
    numbers?.sum === others?.sum
  );
}
