import type { NamedColumn } from "../../columnar/types.js";
import { profileLimits } from "../profiles/column-profile.js";
import { blockValues, type NumberProfile } from "../profiles/number-profile.js";
import { profileNumbers } from "../profiles/profile-numbers.js";
import { type Scalar, shown, valueAt } from "../row-values.js";
import type { DifferentRow } from "./different-rows.js";

/** The predictions of two models for one column and the same rows. */
export interface PredictionPair {
  /** The numbers of the rows. Each row comes once. */
  readonly rowNumbers: Float64Array;
  readonly one: NamedColumn;
  readonly other: NamedColumn;
  /** The largest difference of two numbers that count as equal. */
  readonly tolerance: number;
}

/** The limits of the profile of one column. */
export const agreementLimits = profileLimits(1);

/** Profiles numbers. */
export function profileOf(values: Float64Array): NumberProfile {
  let at = 0;
  return profileNumbers((target) => {
    const block = values.subarray(at, at + blockValues);
    target.set(block);
    at += block.length;
    return block.length;
  }, agreementLimits);
}

const longestText = 60;

/** Shows both predictions of a row. */
export function textsAt(
  { one, other }: Pick<PredictionPair, "one" | "other">,
  row: number,
): Pick<DifferentRow, "one" | "other"> {
  const text = ({ type, column }: NamedColumn): string => {
    const value = valueAt(type, column, row);
    const whole = Array.isArray(value)
      ? `[${value.map((element: Scalar) => shown(element)).join(", ")}]`
      : shown(value);
    return whole.length > longestText ? `${whole.slice(0, longestText - 1)}…` : whole;
  };
  return { one: text(one), other: text(other) };
}
