import type { ColumnProfile } from "../profiles/column-profile.js";
import { binEdges } from "../profiles/histogram.js";
import type { NumberProfile } from "../profiles/number-profile.js";
import { type ValueList, valueList } from "../profiles/outside-values.js";
import { knownValues } from "./known-values.js";
import type { OutputOptions } from "./run-profile.js";
import type { CheckResult } from "./verdict.js";

/** What the spec says of an output's values; absolute. */
export function checkWanted(
  column: string,
  now: ColumnProfile,
  { range, in: names, nulls }: OutputOptions,
): CheckResult[] {
  const found: CheckResult[] = [];
  const common = { column, against: null };
  if (range !== undefined && now.kind === "numbers" && now.numbers.finite > 0) {
    const { min, max } = now.numbers.wide ?? now.numbers;
    const [from, to] = endsIn(now.type, range);
    const isLow = min < from;
    found.push({
      ...common,
      check: "range",
      level: isLow || max > to ? "hold" : "pass",
      formula:
        "the smallest and the largest value are within the range; of float32, its ends are rounded as the values are",
      measured: numberOf(isLow ? min : max),
      limit: isLow ? from : to,
      numbers: { min: numberOf(min), max: numberOf(max), from, to, ...rowsOutside(now.numbers, [from, to]) },
    });
  }
  if (names !== undefined) {
    found.push({ ...common, ...listResult(now, valueList(names)) });
  }
  if (nulls !== undefined) {
    const share = now.nulls === 0 ? 0 : now.nulls / now.rows;
    found.push({
      ...common,
      check: "nulls",
      level: share > nulls ? "hold" : "pass",
      formula: "NULLs / rows",
      measured: share,
      limit: nulls,
      numbers: { nulls: now.nulls, rows: now.rows },
    });
  }
  return found;
}

/**
 * The rows whose numbers are out of a range: the least and the most that there can be. They are the same where all numbers are
 * counted one by one, or no bin of the histogram is partly out of range.
 */
function rowsOutside(
  { histogram: { shift, keys, counts }, values, min, max }: NumberProfile,
  [from, to]: readonly [number, number],
): { readonly rows_outside_least: number; readonly rows_outside_most: number } {
  const isOutside = (value: number): boolean => value < from || value > to;
  if (values.kind === "few" && values.rare === undefined) {
    const rows = [...values.counts].reduce((sum, [value, of]) => sum + (isOutside(Number(value)) ? of : 0), 0);
    return { rows_outside_least: rows, rows_outside_most: rows };
  }
  let [least, most] = [0, 0];
  for (const [index, key] of keys.entries()) {
    // The extremes are exact, so that the first and the last bin end there.
    const [low, high] = binEdges(key, shift).map((edge) => Math.min(Math.max(edge, min), max)) as [number, number];
    const rows = counts[index] as number;
    if (low > to || high < from) {
      least += rows;
      most += rows;
    } else if (isOutside(low) || isOutside(high)) {
      least += Number(low === min && min < from) + Number(high === max && max > to); // the extreme itself
      most += rows;
    }
  }
  return { rows_outside_least: least, rows_outside_most: most };
}

/** The ends of a range as values of a type have them: the float32 nearest to 0.1 is within [0, 0.1]. */
function endsIn(type: string, [from, to]: readonly [number, number]): readonly [number, number] {
  return type === "float32" ? [Math.fround(from), Math.fround(to)] : [from, to];
}

/** An integer that JSON cannot have as a text. */
function numberOf(value: number | bigint): number | string {
  return typeof value === "number" ? value : String(value);
}

const manyValues = "too many values";

function listResult(now: ColumnProfile, list: ValueList): Omit<CheckResult, "column" | "against"> {
  const strange = strangeValues(now, list);
  const named = [...(strange?.counts ?? [])].toSorted(([one], [other]) => (one < other ? -1 : 1));
  const isFine = strange !== undefined && named.length === 0 && strange.areAll;
  return {
    check: "in",
    level: isFine ? "pass" : "hold",
    formula:
      "values that are not in the list; not all of them are named where there are more than are counted one by one",
    measured: strange === undefined ? manyValues : strange.areAll ? named.length : `at least ${named.length}`,
    limit: 0,
    numbers: Object.fromEntries(named.slice(0, 20)),
  };
}

/**
 * The values that are not in the list. undefined: they are not known, since there are more values than are counted, and rows
 * were profiled with another list.
 */
function strangeValues(
  now: ColumnProfile,
  list: ValueList,
): { readonly counts: ReadonlyMap<string, number>; readonly areAll: boolean } | undefined {
  const known = knownValues(now);
  if (known?.isCounted === true) {
    return { counts: new Map([...known.values.counts].filter(([name]) => !list.names.has(name))), areAll: true };
  }
  const { outside } = now;
  if (outside?.digest !== list.digest) {
    return undefined;
  }
  const named = [...outside.examples.values()].reduce((sum, rows) => sum + rows, 0);
  return { counts: outside.examples, areAll: named === outside.rows };
}
