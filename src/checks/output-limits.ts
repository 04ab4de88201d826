import { costOf, equalOutputLimits, featureBytes, type Measured } from "./features/feature-limits.js";
import { spanBytes } from "./profiles/column-profile.js";
import { assertNever } from "../util/errors.js";
import type { VectorLimits } from "./profiles/vector-profile.js";

/** Bytes of a span's profiles that are left for the JSON around the columns. */
const restBytes = 1024;
/** Bytes of a span's profiles that outputs share if no features are profiled. */
export const allOutputBytes = spanBytes - restBytes;

/** An output column. `type`: as profiles name it. */
export type MeasuredOutput = Pick<Measured, "name" | "type">;

/** Values that checks compare one by one, or what else the limits of a column depend on. */
type OutputKind = "truth" | "integer" | "number" | "double" | "text" | "vector" | "other";

/** The bytes that a column's JSON takes. */
interface Needs {
  /**
   * Bytes that do not depend on the limits: counts, exact sums, and examples of values that are not in the list of a
   * spec, with their cut-off.
   */
  readonly fixed: number;
  /** For the coarsest useful histogram, or for counts by hash. */
  readonly least: number;
  /** For 96 bins of numbers, for 256 values, for 1,024 dimensions. */
  readonly wanted: number;
  /** For all that a profile can use. */
  readonly most: number;
}

const needs: Readonly<Record<OutputKind, Needs>> = {
  truth: { fixed: 400, least: 0, wanted: 0, most: 0 },
  integer: { fixed: 704, least: 512, wanted: 8192, most: 16_384 },
  number: { fixed: 678, least: 512, wanted: 1536, most: 16_384 },
  double: { fixed: 1478, least: 512, wanted: 1536, most: 16_384 },
  text: { fixed: 440, least: 1600, wanted: 16_384, most: 16_384 },
  vector: { fixed: 4500, least: 832, wanted: 13_312, most: 16_384 },
  other: { fixed: 120, least: 0, wanted: 0, most: 0 },
};

/** The bytes of a bin, of a value with its bin, and of a dimension; and bytes of names in 16 bytes of a column. */
const bytesOf = { bin: 16, value: 32, dimension: 13, names: 11 };
/** Bins of the norms of vectors that `needs` has counted already. */
const normBins = 64;

function kindOf(type: string): OutputKind {
  const element = /^list<(.*)>$/.exec(type)?.[1];
  if (element !== undefined) {
    const kind = kindOf(element);
    return kind === "integer" || kind === "number" || kind === "double" ? "vector" : kind === "vector" ? "other" : kind;
  }
  if (type === "utf8") {
    return "text";
  }
  if (type === "bool") {
    return "truth";
  }
  if (type === "float64") {
    return "double";
  }
  if (/^u?int\d/.test(type)) {
    return "integer";
  }
  return /^(float|decimal|date|time)/.test(type) ? "number" : "other";
}

const encoder = new TextEncoder();

function needsOf({ name, type }: MeasuredOutput): Needs {
  const { fixed, ...others } = needs[kindOf(type)];
  return { fixed: fixed + 2 * encoder.encode(name).length, ...others };
}

/** The bytes that features need for more than the coarsest useful histogram: for 96 bins, or for 128 values. */
const featureBytesMore = { number: 1024, vector: 2048, text: 2304 };

/**
 * Returns the bytes of a span's profiles that the outputs share: as many as they want, or as features leave that have a good
 * resolution, but at least those that were left to them when the features were chosen.
 * @param features those that are profiled; undefined: none are
 */
export function planOutputBytes(outputs: readonly MeasuredOutput[], features: readonly Measured[] | undefined): number {
  const least = allOutputBytes - featureBytes(outputs.length);
  if (features === undefined) {
    return allOutputBytes;
  }
  const left = features.reduce(
    (bytes, feature) => bytes - costOf(feature) - featureBytesMore[feature.kind],
    allOutputBytes,
  );
  const sum = (of: "wanted" | "most"): number =>
    outputs.reduce((bytes, output) => bytes + needsOf(output).fixed + needsOf(output)[of], 0);
  const wanted = Math.max(least, Math.min(sum("wanted"), left));
  return Math.min(wanted, sum("most"), allOutputBytes);
}

/** Returns what is left of the bytes of a span's profiles for features. */
export function featureShare(outputBytes: number): number {
  return allOutputBytes - outputBytes;
}

/**
 * Returns the limits of each output's profile, in order: first each has what it needs at least, then all have the same share
 * of what they want, and then of what they can use.
 */
export function divideOutputBytes(outputs: readonly MeasuredOutput[], outputBytes: number): VectorLimits[] {
  const all = outputs.map(needsOf);
  const sum = (bytes: (of: Needs) => number): number => all.reduce((before, of) => before + bytes(of), 0);
  const spare = outputBytes - sum(({ fixed, least }) => fixed + least);
  const wanted = sum((of) => of.wanted - of.least);
  const [ofWanted, ofMost] = [
    share(spare, wanted),
    share(
      spare - wanted,
      sum((of) => of.most - of.wanted),
    ),
  ];
  const equal = equalOutputLimits(outputs.length);
  return outputs.map(({ type }, index) => {
    const of = all[index] as Needs;
    const bytes = of.least + ofWanted * (of.wanted - of.least) + ofMost * (of.most - of.wanted);
    const [kind, limits] = [kindOf(type), limitsIn(kindOf(type), bytes, of)];
    // Vectors may leave little: labels have at least an equal share.
    return kind === "integer" || kind === "text"
      ? {
          ...limits,
          values: Math.max(limits.values, equal.values),
          nameBytes: Math.max(limits.nameBytes, equal.nameBytes),
        }
      : limits;
  });
}

function share(bytes: number, wanted: number): number {
  return Math.min(Math.max(bytes / Math.max(wanted, 1), 0), 1);
}

function limitsIn(kind: OutputKind, bytes: number, { wanted }: Needs): VectorLimits {
  const none = { bins: 2, values: 8, nameBytes: 256, dimensions: 1 } as const;
  switch (kind) {
    case "text":
      return { ...none, values: 256, nameBytes: within(128, bytes, 16_384) };
    case "vector":
      return {
        ...none,
        bins: normBins + within(0, (bytes - wanted) / bytesOf.bin, 192),
        dimensions: within(64, bytes / bytesOf.dimension, 1024),
      };
    case "integer":
    case "number":
    case "double":
      return {
        ...none,
        bins: within(16, bytes / bytesOf.bin, 1024),
        values: within(8, bytes / bytesOf.value, 256),
        nameBytes: within(128, (bytes * bytesOf.names) / 16, 16_384),
      };
    case "truth":
    case "other":
      return none;
    default:
      return assertNever(kind);
  }
}

function within(least: number, many: number, most: number): number {
  return Math.min(Math.max(Math.floor(many), least), most);
}
