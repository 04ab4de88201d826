import type { ColumnProfile } from "../profiles/column-profile.js";
import { type ComparedColumn, shareStep } from "./column-checks.js";
import { countedValues } from "./known-values.js";

/** A code that most rows have does not take so many values in a few runs, one after another. */
const leastValues = 4;

/**
 * How a feature whose value is of a run and not of its rows, such as the date of the night, differs between runs: all rows
 * have one value, and not the same in all runs; or most rows have one that changes from run to run, and some are late rows of
 * earlier nights. A PSI between two runs says nothing of such a feature. `usually`: the earlier runs show it, or there is
 * only one of them. `once`: this run is the first to differ, or the earlier ones are too few to show it. undefined: any
 * other feature.
 */
export function valueChanges({ now, earlier }: ComparedColumn): "usually" | "once" | undefined {
  const profiles = [...earlier.map(({ profile }) => profile), now];
  const mains = profiles.map(mainValueIn).filter((main) => main !== undefined);
  const [main] = mains.slice(-1);
  if (main === undefined || mains.length < profiles.length) {
    return undefined;
  }
  const before = mains.slice(0, -1);
  const values = new Set(mains.map(({ value }) => value));
  if (mains.every(({ share }) => share === 1)) {
    return values.size === 1 ? undefined : isOneIn(before) && before.length > 1 ? "once" : "usually";
  }
  // If far more rows than before have other values, these are not only late rows.
  if (main.share < Math.min(...before.map(({ share }) => share)) - shareStep) {
    return undefined;
  }
  const changes = before.filter(({ value }, index) => value !== mains[index + 1]?.value).length;
  if (changes < values.size && values.size >= leastValues) {
    return "usually"; // no value came back
  }
  const isNew = values.size === mains.length && !earlier.some(({ profile }) => isNamed(profile, main.value));
  return isNew && mains.length < leastValues ? "once" : undefined;
}

/** A value of more than half of the rows, and its share. */
interface MainValue {
  readonly value: number | string;
  readonly share: number;
}

function isOneIn(mains: readonly MainValue[]): boolean {
  return mains.every(({ value }) => value === mains[0]?.value);
}

/** undefined: no value has more than half of the rows of a column, or its values are not counted. */
function mainValueIn(profile: ColumnProfile): MainValue | undefined {
  const { kind, rows } = profile;
  if (kind === "numbers" && profile.numbers.finite === rows && profile.numbers.min === profile.numbers.max) {
    return { value: profile.numbers.min, share: 1 };
  }
  const counts = countedValues(profile);
  const [name, most] = counts?.kind === "few" ? ([...counts.counts].find(([, count]) => 2 * count > rows) ?? []) : [];
  return name === undefined || most === undefined
    ? undefined
    : { value: kind === "numbers" ? Number(name) : name, share: most / rows };
}

/** Whether a profile names a value, and counts its rows. */
function isNamed(profile: ColumnProfile, value: number | string): boolean {
  const counts = countedValues(profile);
  return counts?.kind === "few" && counts.counts.has(String(value));
}
