import { type ColumnProfile, profileLimits, spanBytes } from "../profiles/column-profile.js";
import type { VectorLimits } from "../profiles/vector-profile.js";

/** Bytes of a span's profiles that are left for the JSON around the columns. */
const restBytes = 1024;

/** Bytes of a span's profiles that outputs may take if features are profiled. */
function outputBytes(outputs: number): number {
  return Math.min(spanBytes, Math.max(20 * 1024, outputs * 2048));
}

/** Returns the bytes of a span's profiles that features may take. */
export function featureBytes(outputs: number): number {
  return Math.max(0, spanBytes - restBytes - outputBytes(outputs));
}

/** Returns the limits that an output has if all share the bytes left to them equally. */
export function equalOutputLimits(outputs: number): VectorLimits {
  return profileLimits(outputs, outputBytes(outputs));
}

/** What the limits of a column depend on. `type`: as profiles name it. */
export interface Measured {
  readonly name: string;
  readonly kind: FeatureKind;
  readonly type: string;
}

/** `number`: an element of each row of a matrix. `vector`: a list of numbers. `text`: a text. */
export type FeatureKind = "number" | "vector" | "text";

/** The column that a profile is of. The profile of a key column has no values, but the limits of its type. */
export function measuredOf([name, { type }]: readonly [string, ColumnProfile]): Measured {
  return { name, type, kind: type === "utf8" ? "text" : type.startsWith("list<") ? "vector" : "number" };
}

const encoder = new TextEncoder();

/** Returns the smallest size of a column's JSON in bytes: its counts, and for numbers three exact sums. */
function fixedOf({ name, kind, type }: Measured): number {
  const fixed = { number: type === "float64" ? 1900 : 750, vector: 2850, text: 250 };
  return fixed[kind] + 2 * encoder.encode(name).length;
}

/** Returns the size of a column's JSON with the coarsest useful histogram, or counts of values. */
export function costOf(column: Measured): number {
  return fixedOf(column) + { number: 512, vector: 2048, text: 1800 }[column.kind];
}

/** Returns the limits of each feature's profile, in order. `all`: the bytes that they share. */
export function featureLimits(columns: readonly Measured[], all: number): VectorLimits[] {
  const costs = columns.reduce((sum, column) => sum + costOf(column), 0);
  const scale = Math.max(1, all / Math.max(costs, 1));
  return columns.map((column) => {
    const bytes = costOf(column) * scale - fixedOf(column);
    const within = (least: number, bytesEach: number, most: number): number =>
      Math.min(Math.max(Math.floor(bytes / bytesEach), least), most);
    return column.kind === "text"
      ? { bins: 16, values: 256, nameBytes: within(128, 1, 16_384), dimensions: 16 }
      : {
          bins: column.kind === "vector" ? 64 : within(16, 16, 1024),
          values: within(8, 32, 256),
          nameBytes: within(128, 2, 8192),
          dimensions: within(16, 12, 1024),
        };
  });
}
