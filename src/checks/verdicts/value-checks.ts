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

/** Whether a class of an output has all but vanished. */
export function checkClasses({ column, now, earlier }: ComparedColumn): CheckResult[] {
  const counts = classesOf(now)?.counts;
  const before = earlier.map(({ profile }) => ({ rows: profile.rows, counts: classesOf(profile)?.counts }));
  if (counts === undefined) {
    return [];
  }
  const found: CheckResult[] = [];
  for (const name of before[0]?.counts?.keys() ?? []) {
    const shares = before.map((run) => (run.counts?.get(name) ?? 0) / Math.max(run.rows, 1));
    const due = Math.min(...shares) * now.rows;
    const rows = counts.get(name) ?? 0;
    if (due >= leastDue) {
      found.push({
        check: "class",
        column,
        level: rows < collapse * due ? "hold" : "pass",
        formula: `rows of a class / (its smallest share before · rows), where that is at least ${leastDue}`,
        measured: rows / due,
        limit: collapse,
        against: null,
        numbers: { class: name, rows_of_class: rows, rows: now.rows, smallest_share_before: Math.min(...shares) },
      });
    }
  }
  return found;
}

/** Values of an output or categories of a feature that no run before had. */
export function checkUnseen({ column, now, earlier }: ComparedColumn, isOutput: boolean): CheckResult[] {
  const values = classesOf(now);
  const known = earlier.flatMap(({ profile }) => classesOf(profile) ?? []);
  // Whole numbers among features are quantities as a rule.
  if (values === undefined || known.length < earlier.length || (!isOutput && now.kind === "numbers")) {
    return [];
  }
  const limit = isOutput ? unseen.hold : newCategory;
  const found: CheckResult[] = [];
  for (const [name, rows] of unseenValues(values, known)) {
    const share = rows / now.rows;
    if (share > limit && rows >= unseen.leastRows) {
      found.push({
        check: "unseen_value",
        column,
        level: isOutput ? "hold" : "warn",
        formula: `the share of a value that no run before had, of at least ${unseen.leastRows} rows`,
        measured: share,
        limit,
        against: null,
        numbers: { value: name, rows_of_value: rows, rows: now.rows },
      });
    }
  }
  return found;
}

/** The values that none of the `known` has, with their rows. A bin of rare values counts as one value. */
function unseenValues(now: FewValues, known: readonly FewValues[]): (readonly [string, number])[] {
  const named = [...now.counts].filter(([name]) =>
    known.every((values) => !values.counts.has(name) && rareRows(values, name) === 0),
  );
  const rare = rareBins(now).filter(([bin]) => known.every((values) => rowsInBin(values, bin) === 0));
  return [...named, ...rare.map(([, rows]) => [rareName, rows] as const)];
}

/** The name of a value that must not be named. */
const rareName = `of fewer than ${namedRows} rows`;

/** Counts of the values of texts, truths and whole numbers, while they are few. */
function classesOf(profile: ColumnProfile): FewValues | undefined {
  if (profile.kind === "values") {
    return profile.values.kind === "few" ? profile.values : undefined;
  }
  const isWhole = profile.kind === "numbers" && /^u?int\d/.test(profile.type);
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
