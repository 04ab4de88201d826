import type { ColumnProfile } from "../profiles/column-profile.js";
import { binsOfValues, type FewValues, rareBins, rareRows, rowsInBin } from "../profiles/few-values.js";
import { namedRows } from "../profiles/rare-values.js";
import type { ComparedColumn } from "./column-checks.js";
import { isWholeType, type KnownValues, knownValues } from "./known-values.js";
import {
  type CountedRows,
  leastExpected,
  shareOf,
  shareOfAll,
  informativeRuns,
  pooledNumbers,
  pooledText,
} from "./informative-runs.js";
import type { CheckResult, UncountedColumn } from "./verdict.js";

/** A class collapses if at least this many rows are expected and fewer than this share of them occur. */
const leastDue = 20;
const collapse = 0.2;
/**
 * A value is new if no earlier run had it although `leastDue` of its rows were due in all of them together, and if it has at
 * least `leastRows` rows and more than `share` of them.
 */
const unseen = {
  output: { leastRows: 5, share: 0.001 },
  feature: { leastRows: 5, share: 0.02 },
  /** A feature of which each value recurs. */
  recurring: { leastRows: 3, share: 0.01 },
};
/** A value that may be one of those without names of an earlier run is new above so many times their share. */
const growth = 10;

/**
 * Whether a class of an output has all but vanished, by the earlier runs whose values were counted: while they are few, it
 * only warns.
 */
export function checkClasses({ column, now, earlier }: ComparedColumn): CheckResult[] {
  const values = knownValues(now);
  const known = earlier.flatMap(({ runId, profile }) => {
    const of = knownValues(profile);
    return of?.isCounted === true ? [{ runId, rows: profile.rows, counts: of.values.counts }] : [];
  });
  if (values?.isCounted !== true) {
    return [];
  }
  const names = new Set(known.flatMap(({ counts }) => [...counts.keys()]));
  const found: CheckResult[] = [];
  for (const name of [...names].toSorted()) {
    const rare = rarest(
      known.map(({ runId, rows, counts }) => ({ runId, runs: 1, rows: counts.get(name) ?? 0, all: rows })),
    );
    const due = rare === undefined ? 0 : shareOf(rare) * now.rows;
    const rows = values.values.counts.get(name) ?? 0;
    if (rare !== undefined && due >= leastDue) {
      found.push({
        check: "class",
        column,
        ...classLevel(rows < collapse * due, { known: known.length, earlier: earlier.length }),
        formula: classFormula,
        measured: rows / due,
        limit: collapse,
        against: rare.runId,
        numbers: {
          class: name,
          rows_of_class: rows,
          rows: now.rows,
          smallest_share_before: shareOf(rare),
          rows_of_class_before: rare.rows,
          rows_before: rare.all,
          ...pooledNumbers(rare),
        },
      });
    }
  }
  return found;
}

const classFormula = `rows of a class / (its smallest share before · rows), where that is at least ${leastDue}; its share in the runs in which by its share in all of them at least ${leastExpected} of its rows are due; ${pooledText}`;

/** The earlier run in which a class has the smallest share, of those that have enough rows to show it; undefined: none has. */
function rarest(ofClass: readonly CountedRows[]): CountedRows | undefined {
  const share = shareOfAll(ofClass);
  return informativeRuns(ofClass, ({ all }) => share * all >= leastExpected).toSorted(
    (one, other) => shareOf(one) - shareOf(other),
  )[0];
}

function classLevel(
  isGone: boolean,
  { known, earlier }: { readonly known: number; readonly earlier: number },
): Pick<CheckResult, "level" | "lowered"> {
  if (!isGone) {
    return { level: "pass" };
  }
  return known === earlier
    ? { level: "hold" }
    : { level: "warn", lowered: `the values of only ${known} of ${earlier} earlier runs were counted` };
}

/** Values of an output or categories of a feature that no run before had. */
export function checkUnseen({ column, now, earlier }: ComparedColumn, isOutput: boolean): CheckResult[] {
  const counted = knownValues(now);
  const known = earlier.flatMap(({ profile }) => {
    const of = knownValues(profile);
    return of === undefined ? [] : [{ rows: profile.rows, ...of }];
  });
  // Whole numbers among features are quantities as a rule.
  if (counted?.isCounted !== true || known.length < earlier.length || (!isOutput && now.kind === "numbers")) {
    return [];
  }
  const { values } = counted;
  const [file] = earlier.map((before) => before.file);
  const isRecurring = !isOutput && valuesRecur(known);
  const { leastRows, share: limit } = unseen[isOutput ? "output" : isRecurring ? "recurring" : "feature"];
  const all = known.reduce((sum, { rows }) => sum + rows, 0);
  const isFrequent = ([, rows]: readonly [unknown, number]): boolean =>
    rows / now.rows > limit && rows >= leastRows && (rows / now.rows) * all >= leastDue;
  return unseenValues(values, known, isFrequent)
    .filter(({ rows, before }) => rows / now.rows > growth * before)
    .map(({ name, bin, rows, before }) => ({
      check: "unseen_value",
      column,
      level: isOutput ? "hold" : "warn",
      formula: `the share of a value that ${file === undefined ? "no run before had" : `${file} does not have`}, of at least ${leastRows} rows${isRecurring ? recurringText : ""}, where that share of the rows before is at least ${leastDue}${before === 0 ? "" : mayBeKnown}`,
      measured: rows / now.rows,
      limit,
      against: null,
      numbers: {
        value: name,
        ...(bin === undefined ? {} : { bin }),
        rows_of_value: rows,
        rows: now.rows,
        rows_before: all,
        ...(before === 0 ? {} : { largest_share_before: before }),
      },
    }));
}

const recurringText = " (each value before occurs in several runs)";

/**
 * Whether each value occurs in at least two of the runs, so that it is unlikely that a new value is one of many rare ones: by
 * Good and Turing, values that occur once have the share of those that never did. Runs are counted, and not rows, because
 * rows of one run may belong together.
 */
function valuesRecur(runs: readonly KnownValues[]): boolean {
  const runsOfBin = new Map<number, number>();
  for (const bin of runs.flatMap(({ values }) => [...binsOfValues(values)])) {
    runsOfBin.set(bin, (runsOfBin.get(bin) ?? 0) + 1);
  }
  const isKnown = runsOfBin.size > 0 && runs.every(({ isCounted }) => isCounted);
  return isKnown && [...runsOfBin.values()].every((count) => count > 1);
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

/** The frequent values that none of the `known` names, in the order of their names. A bin of rare values counts as one value. */
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
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, rows]) => ({ name, rows, before: most((values) => rareRows(values, name)) }));
  const rare = rareBins(now)
    .filter(isFrequent)
    .map(([bin, rows]) => ({ name: rareName, bin, rows, before: most((values) => rowsInBin(values, bin)) }));
  return [...named, ...rare];
}

/** The name of a value that must not be named. */
const rareName = `of fewer than ${namedRows} rows`;

/**
 * Names the checks that do not compare the values of an output because there are more than are counted, in this run or in
 * earlier ones. undefined: they do, or the values are obviously no labels.
 */
export function uncountedValues(compared: ComparedColumn): UncountedColumn | undefined {
  const { column, now, earlier } = compared;
  const before = earlier.map(({ profile }) => knownValues(profile));
  if (knownValues(now)?.isCounted !== true) {
    return mayBeLabel(now) ? { column, checks: ["class", "unseen_value"], run: "this" } : undefined;
  }
  const checks = [
    ...(before.some((of) => of?.isCounted === true) ? [] : (["class"] as const)),
    ...(before.every((of) => of !== undefined) ? [] : (["unseen_value"] as const)),
  ];
  return checks.length === 0 ? undefined : { column, checks, run: "earlier" };
}

/** Whether a column with more values than are counted may be a label: on average, a value has the rows of a class that is checked. */
function mayBeLabel(profile: ColumnProfile): boolean {
  if (profile.kind === "values") {
    return profile.values.kind === "many" && rowsOfValue(profile.values.hashed ?? new Float64Array(0)) >= leastDue;
  }
  if (profile.kind !== "numbers" || !isWholeType(profile.type)) {
    return false;
  }
  const { min, max, finite } = profile.numbers;
  return (max - min + 1) * leastDue <= finite;
}

/**
 * About the average rows of the value that a row has, by the index of dispersion of the values' hashes: 1 if all values are
 * different, n if each occurs n times.
 */
function rowsOfValue(hashed: Float64Array): number {
  const average = hashed.reduce((sum, rows) => sum + rows, 0) / hashed.length;
  const squares = hashed.reduce((sum, rows) => sum + (rows - average) ** 2, 0);
  return squares / (hashed.length - 1) / average;
}
