import type { ColumnProfile } from "../profiles/column-profile.js";
import type { ComparedColumn } from "./column-checks.js";

/** With fewer earlier runs, main values that rise may do so by chance. */
const leastRising = 3;

/**
 * How a feature whose value is of a run and not of its rows, such as the date of the night as a number, differs between runs:
 * all rows have one value, and not the same in all runs; or more than half of them have one, which rises from run to run, and
 * others are late rows of earlier nights. A PSI between two runs says nothing of such a feature. `usually`: the earlier runs
 * show it, or there is only one of them. `once`: this run is the first to differ, or there are too few earlier ones that rise.
 * undefined: any other feature.
 */
export function valueChanges({ now, earlier }: ComparedColumn): "usually" | "once" | undefined {
  const before = earlier.map(({ profile }) => mainValueIn(profile));
  const value = mainValueIn(now);
  const all = [...before, value];
  if (all.every((one) => one?.isOnly === true)) {
    const values = new Set(before.map((one) => one?.value));
    return values.size === 1 && values.has(value?.value)
      ? undefined
      : before.length === 1 || values.size > 1
        ? "usually"
        : "once";
  }
  const isRising = all.every((one, index) => index === 0 || isBelow(all[index - 1], one));
  return isRising ? (before.length < leastRising ? "once" : "usually") : undefined;
}

interface MainValue {
  readonly value: number | string;
  /** Whether all rows have it. */
  readonly isOnly: boolean;
}

/** Numbers by value; texts, such as dates, by their characters. */
function isBelow(one: MainValue | undefined, other: MainValue | undefined): boolean {
  return one !== undefined && other !== undefined && one.value < other.value;
}

/** The value that more than half of the rows of a column have. undefined: none has, or the values are not counted. */
function mainValueIn(profile: ColumnProfile): MainValue | undefined {
  const { rows } = profile;
  if (profile.kind === "numbers") {
    const { finite, min, max } = profile.numbers;
    if (finite === rows && min === max) {
      return { value: min, isOnly: true };
    }
  }
  const counted =
    profile.kind === "numbers" ? profile.numbers.values : profile.kind === "values" ? profile.values : undefined;
  const counts = counted?.kind === "few" ? [...counted.counts] : [];
  const [name, most] = counts.find(([, count]) => 2 * count > rows) ?? [undefined, 0];
  return name === undefined
    ? undefined
    : { value: profile.kind === "numbers" ? Number(name) : name, isOnly: most === rows };
}
