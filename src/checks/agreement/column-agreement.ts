import type { ColumnType } from "../../columnar/types.js";
import { scaleOf } from "../../columnar/decimals.js";
import { isElementType } from "../../columnar/values.js";
import { assertNever } from "../../util/errors.js";
import { type ColumnProfile, mergeColumns, type NumberColumn, profileColumn } from "../profile/column.js";
import { shown, valueAt } from "../row-values.js";
import { createDifferentRows, type DifferentRow, mostDifferent } from "./different-rows.js";
import { compareDecimals } from "./decimal-agreement.js";
import { type AgreementOptions, numberAt, type PredictionPair, textsAt } from "./prediction-pair.js";
import { compareFloats } from "./float-agreement.js";
import { mergeSamples, type RankSample } from "./rank-sample.js";
import { sameLabels } from "./same-labels.js";
import { compareTimes, timeFamily, type TimeAgreement } from "./time-agreement.js";
import { compareVectors, type VectorAgreement } from "./vector-agreement.js";

/**
 * How two models' predictions of one column agree, without the predictions themselves. The result depends neither on
 * how the rows were divided nor on the order of merging.
 */
export type ColumnAgreement = { readonly rows: number; readonly most: readonly DifferentRow[] } & (
  | NumberAgreement
  | LabelAgreement
  | VectorAgreement
  | TimeAgreement
);

export interface NumberAgreement {
  readonly kind: "numbers";
  /** Absolute differences of the rows for which both predictions are finite. */
  readonly differences: NumberColumn;
  /**
   * The number of rows that differ by more than the tolerance, or where a prediction is not finite and the other one
   * differs.
   */
  readonly beyond: number;
  /** The distributions of both. */
  readonly one: ColumnProfile;
  readonly other: ColumnProfile;
  readonly sample: RankSample;
}

/** Rows by pair of labels; undefined: there are too many pairs. */
export type LabelFlips = ReadonlyMap<string, number> | undefined;

export interface LabelAgreement {
  readonly kind: "labels";
  readonly equal: number;
  /** How often each pair of different labels occurs; a name is the JSON of both. */
  readonly flips: LabelFlips;
  readonly one: ColumnProfile;
  readonly other: ColumnProfile;
}

/** Returns how two columns are compared; undefined: their types cannot be compared. */
export function comparableKind(one: ColumnType, other: ColumnType): ColumnAgreement["kind"] | undefined {
  const family = familyOf(one);
  if (family === undefined || family !== familyOf(other)) {
    return undefined;
  }
  if (timeFamily(one) !== undefined) {
    return "times";
  }
  return family === "numbers" ? "numbers" : family === "list of numbers" ? "vectors" : "labels";
}

function familyOf(type: ColumnType): string | undefined {
  if (scaleOf(type) !== undefined) {
    return "numbers";
  }
  if (typeof type === "object") {
    const isComparable =
      type.kind === "list" && typeof type.element === "string" && timeFamily(type.element) === undefined;
    const element = isComparable ? familyOf(type.element) : undefined;
    return element === undefined ? undefined : `list of ${element}`;
  }
  if (type === "float32" || type === "float64") {
    return "numbers";
  }
  return isElementType(type) ? "integers" : type === "utf8" || type === "bool" ? type : timeFamily(type);
}

/** Compares two columns whose types are comparable. */
export function compareColumns(pair: PredictionPair): ColumnAgreement {
  const kind = comparableKind(pair.one.type, pair.other.type);
  switch (kind) {
    case "numbers":
      return compareNumbers(pair);
    case "labels":
      return compareLabels(pair);
    case "vectors":
      return { rows: pair.rowNumbers.length, ...compareVectors(pair) };
    case "times":
      return { rows: pair.rowNumbers.length, ...compareTimes(pair) };
    case undefined:
      throw new RangeError(`column ${pair.one.name} has types that cannot be compared`);
    default:
      return assertNever(kind);
  }
}

function compareNumbers(pair: PredictionPair): ColumnAgreement {
  const rows = pair.rowNumbers.length;
  // Two decimals are compared exactly; a decimal and a float as the floats that they are or round to.
  const areDecimals = scaleOf(pair.one.type) !== undefined && scaleOf(pair.other.type) !== undefined;
  const compared = areDecimals ? compareDecimals(pair) : compareFloats(pair);
  return { rows, kind: "numbers", ...compared, ...distributions(pair, pair.options) };
}

function compareLabels({ rowNumbers, one, other, options }: PredictionPair): ColumnAgreement {
  const rows = rowNumbers.length;
  const flips = new Map<string, number>();
  const most = createDifferentRows();
  const isSame = sameLabels(one, other);
  let equal = 0;
  for (let row = 0; row < rows; row += 1) {
    if (isSame(row)) {
      equal += 1;
      continue;
    }
    if (flips.size <= options.flips.pairs) {
      const [a, b] = [valueAt(one.type, one.column, row), valueAt(other.type, other.column, row)];
      const name = JSON.stringify([shown(a), shown(b)]);
      flips.set(name, (flips.get(name) ?? 0) + 1);
    } // of more pairs nothing is kept but that they are many
    const number = numberAt(rowNumbers, row);
    if (most.takes(number, 1)) {
      most.add({ row: number, distance: 1, ...textsAt({ one, other }, row) });
    }
  }
  const limited = limitFlips(flips, options.flips);
  return { rows, kind: "labels", equal, flips: limited, ...distributions({ one, other }, options), most: most.rows };
}

function distributions(
  { one, other }: Pick<PredictionPair, "one" | "other">,
  { bins }: AgreementOptions,
): {
  readonly one: ColumnProfile;
  readonly other: ColumnProfile;
} {
  return {
    one: profileColumn({ name: one.name, type: one.type }, one.column, bins),
    other: profileColumn({ name: one.name, type: other.type }, other.column, bins),
  };
}

function limitFlips(flips: ReadonlyMap<string, number>, { pairs, nameBytes }: AgreementOptions["flips"]): LabelFlips {
  const bytes = [...flips.keys()].reduce((sum, name) => sum + Buffer.byteLength(name), 0);
  return flips.size > pairs || bytes > nameBytes ? undefined : flips;
}

function mergeFlips(first: LabelFlips, second: LabelFlips, limits: AgreementOptions["flips"]): LabelFlips {
  const merged = new Map(first);
  for (const [name, rows] of second ?? []) {
    merged.set(name, (merged.get(name) ?? 0) + rows);
  }
  return first === undefined || second === undefined ? undefined : limitFlips(merged, limits);
}

/** Merges the agreement of different rows of one column. */
export function mergeColumnAgreements(
  first: ColumnAgreement,
  second: ColumnAgreement,
  { bins, flips }: AgreementOptions,
): ColumnAgreement {
  const rows = first.rows + second.rows;
  const most = mostDifferent([...first.most, ...second.most]);
  if (first.kind === "numbers" && second.kind === "numbers") {
    return {
      rows,
      kind: "numbers",
      differences: mergeColumns(first.differences, second.differences, bins) as NumberColumn,
      beyond: first.beyond + second.beyond,
      one: mergeColumns(first.one, second.one, bins),
      other: mergeColumns(first.other, second.other, bins),
      sample: mergeSamples(first.sample, second.sample),
      most,
    };
  }
  if (first.kind === "labels" && second.kind === "labels") {
    return {
      rows,
      kind: "labels",
      equal: first.equal + second.equal,
      flips: mergeFlips(first.flips, second.flips, flips),
      one: mergeColumns(first.one, second.one, bins),
      other: mergeColumns(first.other, second.other, bins),
      most,
    };
  }
  if (first.kind === "vectors" && second.kind === "vectors") {
    return {
      rows,
      kind: "vectors",
      cosines: mergeColumns(first.cosines, second.cosines, bins) as NumberColumn,
      without: first.without + second.without,
      most,
    };
  }
  if (first.kind === "times" && second.kind === "times") {
    const largestShift = Math.max(first.largestShift, second.largestShift);
    return { rows, kind: "times", equal: first.equal + second.equal, largestShift, most };
  }
  throw new RangeError("two columns of different kinds cannot be merged");
}
