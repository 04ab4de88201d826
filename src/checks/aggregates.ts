import type { OutputRows } from "../columnar/types.js";
import { assertNever } from "../util/errors.js";
import { type ColumnProfile, mergeProfiles } from "./profiles/column-profile.js";
import { exactMean, roundExact } from "./profiles/exact-sum.js";
import type { NumberProfile } from "./profiles/number-profile.js";
import { parseProfile, type ProfileJson, profileJson } from "./profiles/profile-json.js";
import type { CheckResult } from "./verdicts/verdict.js";

/** The aggregates that a condition may have. */
export const aggregateNames = ["count", "sum", "avg", "min", "max"] as const;
export type AggregateName = (typeof aggregateNames)[number];

/** The profile of an expression over some rows, as numbers; or why it could not be computed for one of them. */
export type AggregateProfile = ColumnProfile | { readonly error: string };

/** The expressions of `checks.sql`, in the order of the conditions. */
export interface Aggregates extends AsyncDisposable {
  /**
   * Profiles the expressions over rows of the output. The profile of an expression that fails for a row is the error.
   */
  readonly profile: (rows: OutputRows) => Promise<readonly AggregateProfile[]>;
  /** Decides the conditions by the merged profile of a run. `rows`: of its output. */
  results(profile: {
    readonly rows: number;
    readonly aggregates?: readonly AggregateProfile[] | undefined;
  }): Promise<CheckResult[]>;
}

/** The limits of these profiles: only their counts, extremes and sums are needed. */
export const aggregateLimits = { bins: 2, values: 1, nameBytes: 1, dimensions: 1 };

/** Merges the profiles of equal expressions over different rows. The order of the arguments does not matter. */
export function mergeAggregates(
  one: readonly AggregateProfile[],
  other: readonly AggregateProfile[],
): readonly AggregateProfile[] {
  return one.map((profile, index) => {
    const more = other[index];
    if (more === undefined || "error" in profile) {
      return profile;
    }
    return "error" in more ? more : mergeProfiles(profile, more, aggregateLimits);
  });
}

/** The profiles of expressions as plain JSON. */
export function aggregatesJson(aggregates: readonly AggregateProfile[]): readonly ProfileJson[] {
  return aggregates.map((profile) => ("error" in profile ? { error: profile.error } : profileJson(profile)));
}

/** Reads what `aggregatesJson` made. */
export function parseAggregates(json: readonly ProfileJson[]): readonly AggregateProfile[] {
  return json.map((one) => (typeof one["error"] === "string" ? { error: one["error"] } : parseProfile(one)));
}

/** The value of an aggregate: null where SQL has NULL, and NaN where a value is NaN. */
export function aggregateValue(name: AggregateName, profile: ColumnProfile): number | null {
  const count = profile.rows - profile.nulls;
  if (name === "count") {
    return count;
  }
  if (count === 0 || profile.kind !== "numbers") {
    return null;
  }
  const { numbers } = profile;
  if (numbers.nan > 0) {
    return Number.NaN;
  }
  switch (name) {
    case "min":
      return numbers.negativeInfinite > 0 ? Number.NEGATIVE_INFINITY : numbers.min;
    case "max":
      return numbers.positiveInfinite > 0 ? Number.POSITIVE_INFINITY : numbers.max;
    case "sum":
      return infiniteSum(numbers) ?? roundExact(numbers.sum);
    case "avg":
      return infiniteSum(numbers) ?? exactMean(numbers.sum, count);
    default:
      return assertNever(name);
  }
}

/** Returns the sum of numbers if at least one of them is infinite; undefined: all are finite. */
function infiniteSum({ positiveInfinite, negativeInfinite }: NumberProfile): number | undefined {
  if (positiveInfinite === 0 && negativeInfinite === 0) {
    return undefined;
  }
  return positiveInfinite === 0
    ? Number.NEGATIVE_INFINITY
    : negativeInfinite === 0
      ? Number.POSITIVE_INFINITY
      : Number.NaN;
}
