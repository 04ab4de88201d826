import { type ColumnProfile, profileColumn } from "#src/checks/profile/column.js";
import type { RunProfile } from "#src/checks/profile/run-profile.js";
import type { ColumnType } from "#src/columns/types.js";
import { listColumn, textColumn } from "./batches.js";
import { randomOf } from "./random.js";

/** The most bins of a column that is alone. */
const bins = 400;

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
  return profileColumn({ name: "", type }, { kind: "fixed", elementsPerValue: 1, data, valid }, bins);
}

export function textsProfile(counts: Readonly<Record<string, number>>, name = ""): ColumnProfile {
  const texts = Object.entries(counts).flatMap(([text, count]) => Array.from({ length: count }, () => text));
  return profileColumn({ name, type: "utf8" }, textColumn(texts), bins);
}

export function vectorsProfile(vectors: readonly (readonly number[])[]): ColumnProfile {
  return profileColumn({ name: "", type: { kind: "list", element: "float32" } }, listColumn("float32", vectors), bins);
}

export interface Columns {
  readonly outputs?: Readonly<Record<string, ColumnProfile>>;
  readonly features?: Readonly<Record<string, ColumnProfile>>;
}

type About = Partial<Pick<RunProfile, "rows" | "rejected" | "modelSha256" | "repeated" | "isApproved" | "slices">>;

/** A run of November 2026, on a day of that month: the 23rd, a Monday, unless another is given. */
export function runProfile({ outputs = {}, features = {}, ...about }: Columns & About, day = 23): RunProfile {
  const date = new Date(Date.UTC(2026, 10, day)).toISOString().slice(0, 10);
  return {
    runId: `night-${date}`,
    date,
    modelSha256: "a",
    rows: 1000,
    rejected: 0,
    slices: new Map(),
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
