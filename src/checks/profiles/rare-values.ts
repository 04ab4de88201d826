import { assertNever } from "../../util/errors.js";
import type { ColumnProfile } from "./column-profile.js";
import type { NumberProfile } from "./number-profile.js";
import { type FewValues, moveToRare } from "./few-values.js";
import type { ValueCounts } from "./value-counts.js";
import { hashBins } from "./value-names.js";

/** The smallest number of rows for which the value of a feature is named. A rarer value could identify a person. */
export const namedRows = 20;

/** Leaves out the names of rare values from the profiles of columns, by name. */
export function hideRareValues(columns: ReadonlyMap<string, ColumnProfile>): Map<string, ColumnProfile> {
  return new Map([...columns].map(([name, profile]) => [name, hideIn(profile)]));
}

function hideIn(profile: ColumnProfile): ColumnProfile {
  switch (profile.kind) {
    case "numbers":
      return { ...profile, numbers: hideNumbers(profile.numbers) };
    case "values":
      return { ...profile, values: hide(profile.values, hashBins) };
    case "vectors":
      return { ...profile, vectors: { ...profile.vectors, norms: hideNumbers(profile.vectors.norms) } };
    case "rows":
      return profile;
    default:
      return assertNever(profile);
  }
}

/** Numbers have a histogram, so the rare ones are counted together. */
function hideNumbers(numbers: NumberProfile): NumberProfile {
  return { ...numbers, values: hide(numbers.values, 1) };
}

function hide(values: ValueCounts, bins: number): ValueCounts {
  return values.kind === "few" ? moveToRare(values, bins, (_, rows) => rows < namedRows) : values;
}

/**
 * Returns the rows of the most frequent value in the profile of a run. If that value may have no name, these are the most
 * rows that it can have: those of its bin, fewer than 20, and not the at least one row of each other value without a name.
 */
export function mostFrequentRows({ counts, rare }: FewValues): number {
  const named = Math.max(0, ...counts.values());
  if (rare === undefined) {
    return named;
  }
  const { hashed, values } = rare;
  const rows = hashed.reduce((sum, inBin) => sum + inBin, 0);
  return Math.max(named, Math.min(Math.max(...hashed), namedRows - 1, rows - (values - 1)));
}
