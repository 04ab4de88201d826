import { type ColumnProfile, profileColumn, profileLimits } from "#src/checks/profiles/column-profile.js";
import type { ValueList } from "#src/checks/profiles/outside-values.js";
import type { VectorLimits } from "#src/checks/profiles/vector-profile.js";
import type { RunProfile } from "#src/checks/verdicts/run-profile.js";
import type { ColumnType } from "#src/columnar/types.js";
import { listColumn, textColumn } from "./batches.js";
import { randomOf } from "./random.js";

/** The limits of an output that is alone. */
export const fullLimits = profileLimits(1);

/** Normally distributed numbers, the same for the same seed. */
export function normals(count: number, { mean = 0, deviation = 1, seed = 1 } = {}): number[] {
  const random = randomOf(seed);
  return Array.from({ length: count }, () => {
    const [one, other] = [random() + 2 ** -33, random()];
    return mean + deviation * Math.sqrt(-2 * Math.log(one)) * Math.cos(2 * Math.PI * other);
  });
}

/** The profile of a column of numbers; null is NULL. */
export function numbersProfile(values: readonly (number | null)[], type: ColumnType = "float64"): ColumnProfile {
  const valid = values.includes(null) ? Uint8Array.from(values, (value) => (value === null ? 0 : 1)) : undefined;
  const data =
    type === "int64"
      ? BigInt64Array.from(values, (value) => BigInt(value ?? 0))
      : Float64Array.from(values, (value) => value ?? 0);
  return profileColumn({ type }, { kind: "fixed", elementsPerValue: 1, data, valid }, fullLimits);
}

export function textsProfile(
  counts: Readonly<Record<string, number>>,
  of: VectorLimits = fullLimits,
  list?: ValueList,
): ColumnProfile {
  const texts = Object.entries(counts).flatMap(([text, count]) => Array.from({ length: count }, () => text));
  return profileColumn({ type: "utf8", list }, textColumn(texts), of);
}

/** The profile of a column of int64. */
export function integersProfile(
  values: readonly bigint[],
  of: VectorLimits = fullLimits,
  list?: ValueList,
): ColumnProfile {
  const data = BigInt64Array.from(values);
  return profileColumn({ type: "int64", list }, { kind: "fixed", elementsPerValue: 1, data, valid: undefined }, of);
}

export function vectorsProfile(vectors: readonly (readonly number[])[], of: VectorLimits = fullLimits): ColumnProfile {
  return profileColumn({ type: { kind: "list", element: "float32" } }, listColumn("float32", vectors), of);
}

export interface Columns {
  readonly outputs?: Readonly<Record<string, ColumnProfile>>;
  readonly features?: Readonly<Record<string, ColumnProfile>>;
}

/** A run of November 2026, on a day of that month: the 23rd, a Monday, unless another is given. */
export function runProfile(
  { outputs = {}, features = {}, ...about }: Columns & Partial<Pick<RunProfile, "rows" | "rejected" | "modelSha256">>,
  day = 23,
): RunProfile {
  const date = new Date(Date.UTC(2026, 10, day)).toISOString().slice(0, 10);
  return {
    runId: `night-${date}`,
    date,
    modelSha256: "a",
    rows: 1000,
    rejected: 0,
    ...about,
    outputs: new Map(Object.entries(outputs)),
    carried: new Map(),
    features: new Map(Object.entries(features)),
    model: { uri: "model.onnx" },
  };
}

/** The runs of the nights before the 23rd, the latest last. */
export function nightsBefore(
  nights: number,
  of: (nightsAgo: number) => Parameters<typeof runProfile>[0],
): RunProfile[] {
  return Array.from({ length: nights }, (_, index) => runProfile(of(nights - index), 23 - nights + index));
}
