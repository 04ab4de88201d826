import type { CheckName, CheckResult, UnlistedResults } from "./verdict.js";

/** Checks with a result for each class or value of a column. */
const ofEachValue: ReadonlySet<CheckName> = new Set<CheckName>(["class", "unseen_value"]);

/** Results of one check of a column that are listed, of each level and cause. docs/decisions/checks.md says what was measured. */
const mostListed = 5;

/**
 * Lists the results of a few classes and values of each column, and counts the others. Of those that did not pass, the ones
 * with the most rows are listed; of those that pass, the ones that are closest to their limit. Where these are equal, the first
 * ones by name are listed, so that the order in which spans were merged does not matter.
 */
export function boundValues(results: readonly CheckResult[]): {
  readonly listed: readonly CheckResult[];
  readonly unlisted: readonly UnlistedResults[];
} {
  const groups = new Map<string, CheckResult[]>();
  for (const result of results) {
    if (ofEachValue.has(result.check)) {
      const { check, column, isFeature, level, cause } = result;
      const key = JSON.stringify([check, column, isFeature, level, cause?.of]);
      groups.set(key, [...(groups.get(key) ?? []), result]);
    }
  }
  const dropped = new Set<CheckResult>();
  const unlisted: UnlistedResults[] = [];
  for (const group of groups.values()) {
    const [first, ...more] = group.toSorted(byWeight).slice(mostListed);
    if (first !== undefined) {
      const { check, column, level, isFeature } = first;
      const of = { check, column, level, ...(isFeature === undefined ? {} : { isFeature }) };
      unlisted.push({ ...of, results: 1 + more.length });
      [first, ...more].forEach((result) => dropped.add(result));
    }
  }
  return { listed: results.filter((result) => !dropped.has(result)), unlisted };
}

function byWeight(one: CheckResult, other: CheckResult): number {
  const [name, otherName] = [nameOf(one), nameOf(other)];
  return (
    weightOf(other) - weightOf(one) ||
    Number(name > otherName) - Number(name < otherName) ||
    Number(one.numbers["bin"] ?? -1) - Number(other.numbers["bin"] ?? -1)
  );
}

/** The class or value that a result is about. Values that must not be named share a name, and differ by their bins. */
function nameOf({ numbers }: CheckResult): string {
  return String(numbers["class"] ?? numbers["value"]);
}

/** How much a result of a class or a value matters among those of its check, its column and its level. */
function weightOf({ check, level, measured, numbers }: CheckResult): number {
  const isMissing = check === "class" && level !== "pass";
  return isMissing
    ? Number(numbers["smallest_share_before"])
    : check === "class"
      ? -Number(measured)
      : Number(measured);
}
