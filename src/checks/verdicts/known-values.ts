import type { ColumnProfile } from "../profiles/column-profile.js";
import type { FewValues } from "../profiles/few-values.js";
import type { ValueCounts } from "../profiles/value-counts.js";

/** Whether a type, as profiles name it, is one of whole numbers. */
export function isWholeType(type: string): boolean {
  return /^u?int\d/.test(type);
}

/** How often a column has which values; undefined: it has vectors, or values that are not counted. */
export function countedValues(profile: ColumnProfile): ValueCounts | undefined {
  return profile.kind === "numbers" ? profile.numbers.values : profile.kind === "values" ? profile.values : undefined;
}

/** What is known of the values of a column of texts, truths or whole numbers. */
export interface KnownValues {
  /** Whether they are counted one by one; otherwise only by hash, so that each may be a rare one. */
  readonly isCounted: boolean;
  readonly values: FewValues;
}

/** undefined: the column has values of another type, or so many numbers that nothing is known of them. */
export function knownValues(profile: ColumnProfile): KnownValues | undefined {
  const isWhole = profile.kind === "numbers" && isWholeType(profile.type);
  const values = profile.kind === "values" ? profile.values : isWhole ? profile.numbers.values : undefined;
  if (values?.kind === "few") {
    return { isCounted: true, values };
  }
  return values?.hashed === undefined
    ? undefined
    : { isCounted: false, values: { kind: "few", counts: new Map(), rare: { values: 0, hashed: values.hashed } } };
}
