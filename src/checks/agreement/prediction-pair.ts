import type { NamedColumn } from "../../columnar/types.js";
import { type NumberColumn, profileNumbers } from "../profile/column.js";
import { blockValues } from "../profile/profile-loops.js";
import { exactText } from "../../columnar/json-text.js";
import { type Scalar, shown, valueAt } from "../row-values.js";
import type { DifferentRow } from "./different-rows.js";

/** The numbers of some rows: each by itself, or those of rows that follow on each other. */
export type RowNumbers = Float64Array | { readonly first: number; readonly length: number };

/** The number of a row, by its index among the rows. */
export function numberAt(numbers: RowNumbers, index: number): number {
  return numbers instanceof Float64Array ? (numbers[index] as number) : numbers.first + index;
}

/** The predictions of two models for one column and the same rows. */
export interface PredictionPair {
  /** The numbers of the rows. Each row comes once. */
  readonly rowNumbers: RowNumbers;
  readonly one: NamedColumn;
  readonly other: NamedColumn;
  /** The largest difference of two numbers that count as equal. */
  readonly tolerance: number;
  readonly options: AgreementOptions;
}

/** What is stored of an agreement. Agreements that are merged have the same options. */
export interface AgreementOptions {
  /** The most bins of each profile. */
  readonly bins: number;
  /** The limits of the pairs of different labels that are counted. */
  readonly flips: { readonly pairs: number; readonly nameBytes: number };
  /** The level of the sample for the rank correlation, see `RankSample`; it is raised where rows are many. */
  readonly level: number;
}

/** The options of an agreement that is held in memory only. */
export const unboundOptions: AgreementOptions = { bins: 1024, flips: { pairs: 256, nameBytes: 16_384 }, level: 0 };

/** Profiles numbers. */
export function profileOf(values: Float64Array, bins: number): NumberColumn {
  let at = 0;
  return profileNumbers((target) => {
    const block = values.subarray(at, at + blockValues);
    target.set(block);
    at += block.length;
    return block.length;
  }, bins);
}

const longestText = 60;

/** Shows both predictions of a row. */
export function textsAt(
  { one, other }: Pick<PredictionPair, "one" | "other">,
  row: number,
): Pick<DifferentRow, "one" | "other"> {
  const text = ({ type, column }: NamedColumn): string => {
    const exact = exactText(type, column, row);
    if (exact !== undefined) {
      return exact;
    }
    const value = valueAt(type, column, row);
    const whole = Array.isArray(value)
      ? `[${value.map((element: Scalar) => shown(element)).join(", ")}]`
      : shown(value);
    return whole.length > longestText ? `${whole.slice(0, longestText - 1)}…` : whole;
  };
  return { one: text(one), other: text(other) };
}
