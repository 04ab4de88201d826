import { assertNever } from "../../util/errors.js";
import type { ColumnProfile } from "../profiles/column-profile.js";
import { type NumberProfile, standardDeviation } from "../profiles/number-profile.js";
import { mostFrequentRows } from "../profiles/rare-values.js";
import type { ValueCounts } from "../profiles/value-counts.js";
import type { VectorProfile } from "../profiles/vector-profile.js";
import { isWholeType } from "./known-values.js";
import type { ComparedColumn } from "./column-checks.js";
import { leastExpected, shareOf, shareOfAll, informativeRuns, pooledNumbers, pooledText } from "./informative-runs.js";
import type { CheckResult } from "./verdict.js";

/** If at least this many rows with other values are expected, and there are none, the check does not pass. */
const leastOthers = 20;

/** A smaller deviation, as a share of the numbers, is mostly the rounding of their squares. */
const leastDeviation = 1e-6;

/** The rows of the most frequent value. */
interface MostFrequent {
  /** If the values are not counted one by one, the most rows that it can have. */
  readonly rows: number;
  /** The least number of different values, if they are not counted one by one. */
  readonly leastValues?: number;
}

/** Checks whether all rows have one value although they had several values in each earlier run. */
export function checkConstant({ column, now, earlier }: ComparedColumn): CheckResult[] {
  const top = mostFrequent(now)?.rows;
  if (top === undefined || now.rows === 0 || (top === now.rows && mayDiffer(now))) {
    return [];
  }
  const before = earlier.map(({ runId, profile }) => {
    const { rows, leastValues } = mostFrequent(profile) ?? { rows: profile.rows };
    return { runId, runs: 1, rows, all: profile.rows, leastValues };
  });
  const others = 1 - shareOfAll(before);
  // The first row of a run is one of its most frequent value.
  const informative = informativeRuns(before, ({ all, runs }) => others * (all - runs) >= leastExpected);
  const [usual] = (informative.length === 0 ? before : informative).toSorted(
    (one, other) => shareOf(other) - shareOf(one),
  );
  // Of whole numbers: a share is rounded.
  const areDue = usual !== undefined && (usual.all - usual.rows) * now.rows >= leastOthers * usual.all;
  if (usual === undefined || (informative.length === 0 && areDue)) {
    return [];
  }
  const level = top === now.rows && areDue ? "hold" : "pass";
  const value = level === "hold" ? onlyValue(now) : undefined;
  const leastValues = before.find(({ runId }) => runId === usual.runId)?.leastValues;
  return [
    {
      check: "constant",
      column,
      level,
      formula: constantFormula,
      measured: top / now.rows,
      limit: 1,
      against: usual.runId,
      numbers: {
        rows: now.rows,
        rows_of_value: top,
        largest_share_before: shareOf(usual),
        rows_of_value_before: usual.rows,
        rows_before: usual.all,
        ...pooledNumbers(usual),
        ...(leastValues === undefined ? {} : { least_values_before: leastValues }),
        ...(value === undefined ? {} : { value }),
      },
    },
  ];
}

const constantFormula = `the share of the most frequent value, or the most that it can be where values are not counted one by one; below 1 where ${leastOthers} other rows are due by its largest share before; before: in the runs in which by its share in all of them at least ${leastExpected} other rows are due besides the first row; ${pooledText}`;
/**
 * Whether values that are one as float64 may differ: integers and decimals of more digits than float64 has. Outputs of integers
 * are counted without rounding; features are not.
 */
function mayDiffer({ type, ...profile }: ColumnProfile): boolean {
  const [, scale = isWholeType(type) ? "0" : undefined] = /^decimal\(\d+,(\d+)\)$/.exec(type) ?? [];
  if (profile.kind !== "numbers" || scale === undefined) {
    return false;
  }
  const { finite, min, max, wide } = profile.numbers;
  return wide === undefined && finite > 0 && Math.max(-min, max) * 10 ** Number(scale) >= 2 ** 53;
}

/** The value that all rows of a column have. undefined: it has no name. */
function onlyValue(profile: ColumnProfile): string | number | undefined {
  if (profile.nulls === profile.rows) {
    return "NULL";
  }
  const numbers = profile.kind === "numbers" ? profile.numbers : undefined;
  if (numbers?.nan === profile.rows) {
    return "NaN";
  }
  if (profile.kind === "vectors") {
    return "one vector";
  }
  const values = profile.kind === "values" ? profile.values : numbers?.values;
  const [name] = values?.kind === "few" ? values.counts.keys() : [];
  return name ?? numbers?.min;
}

/** Finds the most frequent value, NULL and NaN being values. undefined: nothing is known of the values. */
function mostFrequent(profile: ColumnProfile): MostFrequent | undefined {
  const { nulls } = profile;
  switch (profile.kind) {
    case "numbers":
      return mostOf(Math.max(nulls, profile.numbers.nan), mostFrequentNumber(profile.numbers));
    case "values":
      return mostOf(nulls, mostFrequentText(profile.values, profile.rows - nulls));
    case "rows":
      return { rows: nulls };
    case "vectors":
      return mostOf(nulls, mostFrequentVector(profile.vectors));
    default:
      return assertNever(profile);
  }
}

/** @param missing rows of NULL or of NaN */
function mostOf(missing: number, most: MostFrequent): MostFrequent {
  return most.rows < missing ? { rows: missing } : most;
}

function mostFrequentText(values: ValueCounts, rows: number): MostFrequent {
  if (values.kind === "few") {
    return { rows: mostFrequentRows(values) };
  }
  const bins = values.hashed ?? Float64Array.of(rows);
  return { rows: Math.min(largest(bins), rows - 1), leastValues: Math.max(filled(bins), 2) };
}

/**
 * Many different numbers are not counted one by one. Of these, a value has at most the rows of the largest bin of the
 * histogram. If a share s is one value, the variance is at most (1 - s) · (max - min)², which says more where most
 * numbers are in one bin, such as points in time.
 */
function mostFrequentNumber(numbers: NumberProfile): MostFrequent {
  const { finite, min, max, values, histogram, wide = numbers } = numbers;
  if (wide.min === wide.max) {
    return { rows: finite };
  }
  if (values.kind === "few") {
    return { rows: mostFrequentRows(values) };
  }
  const deviation = standardDeviation(numbers);
  const isExact = deviation > leastDeviation * Math.max(Math.abs(min), Math.abs(max));
  const others = isExact ? Math.floor(finite * (deviation / (max - min)) ** 2) : 1;
  return {
    rows: Math.min(largest(histogram.counts), finite - Math.max(others, 1)),
    leastValues: Math.max(filled(histogram.counts), 2),
  };
}

/** Vectors are counted by hash, so that a vector has at most the rows of the largest bin. */
function mostFrequentVector(vectors: VectorProfile): MostFrequent {
  const { hashed } = vectors;
  const rows = hashed.reduce((sum, count) => sum + count, 0);
  return rows === 0 || areEqual(vectors, rows)
    ? { rows }
    : { rows: Math.min(largest(hashed), rows - 1), leastValues: Math.max(filled(hashed), 2) };
}

/**
 * Whether all vectors are one: they share a bin, a dimension and a norm, and each sum of their directions, which are whole
 * numbers, is a multiple of their number. Vectors that differ have all of this in one of billions of cases.
 */
function areEqual({ hashed, zero, notFinite, norms, directions, ...of }: VectorProfile, rows: number): boolean {
  const haveOneBin = filled(hashed) === 1 && of.minDimension === of.maxDimension && notFinite === 0;
  const haveOneNorm = zero === rows || (norms.finite === rows && norms.min === norms.max);
  return haveOneBin && haveOneNorm && directions.sums.every((sum) => sum % rows === 0);
}

function largest(counts: Float64Array): number {
  return counts.reduce((most, count) => Math.max(most, count), 0);
}

function filled(counts: Float64Array): number {
  return counts.reduce((bins, count) => bins + (count > 0 ? 1 : 0), 0);
}
