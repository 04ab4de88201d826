import type { ColumnProfile } from "../profiles/column-profile.js";
import { type FewValues, rareBins, rareRows, rowsInBin } from "../profiles/few-values.js";
import { namedRows } from "../profiles/rare-values.js";
import type { ComparedColumn } from "./column-checks.js";
import type { OutputOptions } from "./run-profile.js";
import type { CheckResult } from "./verdict.js";

/** A class collapses if at least this many rows are expected and fewer than this share of them occur. */
const leastDue = 20;
const collapse = 0.2;
/** An output's value that no run before had. */
const unseen = { hold: 0.001, leastRows: 5 };
/** A feature's. */
const newCategory = 0.02;
/** A value that may be one of those without names of an earlier run is new above so many times their share. */
const growth = 10;

/** Whether a class of an output has all but vanished. */
export function checkClasses({ column, now, earlier }: ComparedColumn): CheckResult[] {
  const counts = classesOf(now)?.counts;
  const before = earlier.map(({ runId, profile }) => ({
    runId,
    rows: profile.rows,
    counts: classesOf(profile)?.counts,
  }));
  if (counts === undefined) {
    return [];
  }
  const found: CheckResult[] = [];
  for (const name of before[0]?.counts?.keys() ?? []) {
    const rare = before
      .map(({ runId, rows: all, counts: of }) => {
        const ofClass = of?.get(name) ?? 0;
        return { runId, all, ofClass, share: ofClass / Math.max(all, 1) };
      })
      .reduce((one, other) => (other.share < one.share ? other : one));
    const due = rare.share * now.rows;
    const rows = counts.get(name) ?? 0;
    if (due >= leastDue) {
      found.push({
        check: "class",
        column,
        level: rows < collapse * due ? "hold" : "pass",
        formula: `rows of a class / (its smallest share before · rows), where that is at least ${leastDue}`,
        measured: rows / due,
        limit: collapse,
        against: rare.runId,
        numbers: {
          class: name,
          rows_of_class: rows,
          rows: now.rows,
          smallest_share_before: rare.share,
          rows_of_class_before: rare.ofClass,
          rows_before: rare.all,
        },
      });
    }
  }
  return found;
}

/** Values of an output or categories of a feature that no run before had. */
export function checkUnseen({ column, now, earlier }: ComparedColumn, isOutput: boolean): CheckResult[] {
  const values = classesOf(now);
  const known = earlier.flatMap(({ profile }) => {
    const before = classesOf(profile);
    return before === undefined ? [] : [{ rows: profile.rows, values: before }];
  });
  // Whole numbers among features are quantities as a rule.
  if (values === undefined || known.length < earlier.length || (!isOutput && now.kind === "numbers")) {
    return [];
  }
  const limit = isOutput ? unseen.hold : newCategory;
  const isFrequent = ([, rows]: readonly [unknown, number]): boolean =>
    rows / now.rows > limit && rows >= unseen.leastRows;
  return unseenValues(values, known, isFrequent)
    .filter(({ rows, before }) => rows / now.rows > growth * before)
    .map(({ name, bin, rows, before }) => ({
      check: "unseen_value",
      column,
      level: isOutput ? "hold" : "warn",
      formula: `the share of a value that no run before had, of at least ${unseen.leastRows} rows${before === 0 ? "" : mayBeKnown}`,
      measured: rows / now.rows,
      limit,
      against: null,
      numbers: {
        value: name,
        ...(bin === undefined ? {} : { bin }),
        rows_of_value: rows,
        rows: now.rows,
        ...(before === 0 ? {} : { largest_share_before: before }),
      },
    }));
}

/** Ends the formula for a value that may have been among the values without names of an earlier run. */
const mayBeKnown = `; or whose share is more than ${growth} times that of the values without names of an earlier run of which it may be one`;

interface UnseenValue {
  readonly name: string;
  /** The hash of values that must not be named. */
  readonly bin?: number;
  readonly rows: number;
  /** The largest share of an earlier run's rows that the value may have had. */
  readonly before: number;
}

/** The frequent values that none of the `known` names. A bin of rare values counts as one value. */
function unseenValues(
  now: FewValues,
  known: readonly { readonly rows: number; readonly values: FewValues }[],
  isFrequent: (value: readonly [unknown, number]) => boolean,
): UnseenValue[] {
  const most = (rowsOf: (values: FewValues) => number): number =>
    Math.max(...known.map(({ rows, values }) => rowsOf(values) / Math.max(rows, 1)));
  const named = [...now.counts]
    .filter(([name]) => known.every(({ values }) => !values.counts.has(name)))
    .filter(isFrequent)
    .map(([name, rows]) => ({ name, rows, before: most((values) => rareRows(values, name)) }));
  const rare = rareBins(now)
    .filter(isFrequent)
    .map(([bin, rows]) => ({ name: rareName, bin, rows, before: most((values) => rowsInBin(values, bin)) }));
  return [...named, ...rare];
}

/** The name of a value that must not be named. */
const rareName = `of fewer than ${namedRows} rows`;

/** Whether a type, as profiles name it, is one of whole numbers. */
export function isWholeType(type: string): boolean {
  return /^u?int\d/.test(type);
}

/** Counts of the values of texts, truths and whole numbers, while they are few. */
function classesOf(profile: ColumnProfile): FewValues | undefined {
  if (profile.kind === "values") {
    return profile.values.kind === "few" ? profile.values : undefined;
  }
  const isWhole = profile.kind === "numbers" && isWholeType(profile.type);
  return isWhole && profile.numbers.values.kind === "few" ? profile.numbers.values : undefined;
}

/** What the spec says of an output's values; absolute. */
export function checkWanted(
  column: string,
  now: ColumnProfile,
  { range, in: names, nulls }: OutputOptions,
): CheckResult[] {
  const found: CheckResult[] = [];
  const common = { column, against: null };
  if (range !== undefined && now.kind === "numbers" && now.numbers.finite > 0) {
    const { min, max } = now.numbers;
    const isLow = min < range[0];
    found.push({
      ...common,
      check: "range",
      level: isLow || max > range[1] ? "hold" : "pass",
      formula: "the smallest and the largest value are within the range",
      measured: isLow ? min : max,
      limit: isLow ? range[0] : range[1],
      numbers: { min, max, from: range[0], to: range[1] },
    });
  }
  if (names !== undefined) {
    const counts = classesOf(now)?.counts;
    const strange = [...(counts?.keys() ?? [])].filter((name) => !names.includes(name)).toSorted();
    found.push({
      ...common,
      check: "in",
      level: counts === undefined || strange.length > 0 ? "hold" : "pass",
      formula: "values that are not in the list; all values are known while they are few",
      measured: counts === undefined ? "too many values" : strange.length,
      limit: 0,
      numbers: Object.fromEntries(strange.slice(0, 20).map((name) => [name, counts?.get(name) ?? 0])),
    });
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
