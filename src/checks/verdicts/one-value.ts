import type { ColumnProfile } from "../profiles/column-profile.js";
import type { ComparedColumn } from "./column-checks.js";

/**
 * How a feature that has one value in each run, such as the date of the night as a number, differs between runs: its value
 * is of a run and not of its rows, so a PSI between two runs says nothing. `usually`: the earlier runs have several values, or
 * there is only one of them. `once`: all had one value, and this run has another. undefined: any other feature.
 */
export function valueChanges({ now, earlier }: ComparedColumn): "usually" | "once" | undefined {
  const [value, ...before] = [now, ...earlier.map(({ profile }) => profile)].map(onlyValueIn);
  if (value === undefined || before.includes(undefined) || before.every((one) => one === value)) {
    return undefined;
  }
  return before.length === 1 || new Set(before).size > 1 ? "usually" : "once";
}

/** The value that all rows of a column have. undefined: there are several, or rows without a number or text. */
function onlyValueIn(profile: ColumnProfile): number | string | undefined {
  if (profile.kind === "numbers") {
    const { finite, min, max } = profile.numbers;
    return finite === profile.rows && min === max ? min : undefined;
  }
  const values =
    profile.kind === "values" && profile.nulls === 0 && profile.values.kind === "few" ? profile.values : undefined;
  const [[name, rows] = [undefined, 0]] = values?.counts ?? [];
  return rows === profile.rows ? name : undefined;
}
