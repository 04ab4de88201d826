import { leastQuantileRows } from "./quantile-check.js";
import type { Baseline, ColumnProfiles } from "./run-profile.js";
import type { FewSampled, SampleSize } from "./verdict.js";

/** A run with fewer rows is small by itself: that few of its rows are compared surprises no one. */
const manyRows = 1000;

/**
 * Finds out whether features were not compared because a sample has too few of many rows: that of this run, or those of
 * all earlier runs that have one. undefined: the samples suffice, or there is nothing to compare with.
 */
export function findFewSampled(features: ColumnProfiles, latest: Baseline): FewSampled | undefined {
  const now = sampleSize(features);
  const before = latest.flatMap((run) => sampleSize(run.features) ?? []);
  if (now === undefined || before.length === 0) {
    return undefined;
  }
  const largest = before.reduce((one, other) => (other.sampled > one.sampled ? other : one));
  const both: readonly FewSampled[] = [
    { of: "run", ...now },
    { of: "earlier", ...largest },
  ];
  return both.filter(isFew).toSorted((one, other) => one.sampled - other.sampled)[0];
}

/** Whether many rows have a sample that some checks do not use. */
export function isFew({ rows, sampled }: SampleSize): boolean {
  return rows >= manyRows && sampled < rows && sampled < leastQuantileRows;
}

/** Returns how many rows the model read, and how many of them are in the sample; undefined: no feature is sampled. */
export function sampleSize(features: ColumnProfiles): SampleSize | undefined {
  for (const { kind, rows, all } of features.values()) {
    if (kind !== "rows" && all !== undefined) {
      return { rows: all.rows, sampled: rows };
    }
  }
  return undefined;
}
