import type { OutputRows } from "../columnar/types.js";
import { assertNever } from "../util/errors.js";
import type { Finding } from "./check.js";
import {
  type ColumnJson,
  columnJson,
  type ColumnProfile,
  countedRows,
  mergeColumns,
  type NumberColumn,
  parseColumn,
} from "./profile/column.js";

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
  }): Promise<Finding[]>;
}

/** The most bins of these profiles: only their counts, extremes and sums are needed. */
export const aggregateBins = 2;

/** Merges the profiles of equal expressions over different rows. The order of the arguments does not matter. */
export function mergeAggregates(
  one: readonly AggregateProfile[],
  other: readonly AggregateProfile[],
): readonly AggregateProfile[] {
  return one.map((profile, index) => {
    const more = other[index] as AggregateProfile;
    if ("error" in profile || "error" in more) {
      const errors = [profile, more].flatMap((each) => ("error" in each ? each.error : []));
      return { error: errors.toSorted()[0] as string }; // whichever was merged first
    }
    return mergeColumns(profile, more, aggregateBins);
  });
}

/** The profiles of expressions as plain JSON. */
export function aggregatesJson(aggregates: readonly AggregateProfile[]): readonly ColumnJson[] {
  return aggregates.map((profile) =>
    "error" in profile ? { error: profile.error } : columnJson(profile, { nameBytes: 0, namedRows: 1 }),
  );
}

/** Reads what `aggregatesJson` made. */
export function parseAggregates(json: readonly ColumnJson[]): readonly AggregateProfile[] {
  return json.map((one) => (typeof one["error"] === "string" ? { error: one["error"] } : parseColumn(one)));
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
  if (profile.nan > 0) {
    return Number.NaN;
  }
  const [negative, positive] = profile.infinite;
  switch (name) {
    case "min":
      return negative > 0 ? Number.NEGATIVE_INFINITY : profile.min;
    case "max":
      return positive > 0 ? Number.POSITIVE_INFINITY : profile.max;
    case "sum":
      return infiniteSum(profile) ?? profile.sum[0];
    case "avg":
      return infiniteSum(profile) ?? profile.sum[0] / countedRows(profile);
    default:
      return assertNever(name);
  }
}

/** Returns the sum of numbers if at least one of them is infinite; undefined: all are finite. */
function infiniteSum({ infinite: [negative, positive] }: NumberColumn): number | undefined {
  if (negative === 0 && positive === 0) {
    return undefined;
  }
  return positive === 0 ? Number.NEGATIVE_INFINITY : negative === 0 ? Number.POSITIVE_INFINITY : Number.NaN;
}
