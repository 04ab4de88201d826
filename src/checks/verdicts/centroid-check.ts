import { type CentroidAngle, centroidAngle } from "../profiles/vector-directions.js";
import type { ComparedColumn } from "./column-checks.js";
import type { CheckResult, UncountedColumn } from "./verdict.js";

const cosineLimits = { warn: 0.98, hold: 0.9 };
/** So many times the variance that a mean direction has by chance is allowed for. docs/decisions/checks.md: how it was found. */
const chance = 6;
/** If chance alone can cause a smaller cosine, the vectors are too few to have a mean direction. */
const leastLimit = 0.1;
/** An earlier run counts if its limit is at least this part of the largest one, or of that of two runs like this one. */
const certainPart = 0.5;

interface EarlierAngle {
  readonly runId: string;
  readonly rows: number;
  /** The vectors that have a direction. */
  readonly vectors: number;
  readonly angle: CentroidAngle;
}

/** The angles to the earlier runs. */
function anglesTo({ now, earlier }: ComparedColumn): EarlierAngle[] {
  return earlier.flatMap(({ runId, profile }) => {
    if (now.kind !== "vectors" || profile.kind !== "vectors") {
      return [];
    }
    const angle = centroidAngle(profile.vectors.directions, now.vectors.directions);
    return [{ runId, rows: profile.rows, vectors: profile.vectors.norms.finite, angle }];
  });
}

/**
 * The variance of the directions about their mean, divided by the square of the mean's length. The sum of n directions, whose
 * mean has the length l, has the squared length n² l² + n (1 - l²) on average. Infinity: there is no mean direction.
 */
function relativeVariance(known: readonly EarlierAngle[]): number {
  let [excess, pairs] = [0, 0];
  for (const { vectors, angle } of known) {
    excess += angle.lengths[0] ** 2 - vectors;
    pairs += vectors * (vectors - 1);
  }
  const squared = Math.min(excess / pairs, 1);
  return squared > 0 ? (1 - squared) / squared : Number.POSITIVE_INFINITY;
}

/** The least cosine that two samples of so many vectors have by chance. */
function cosineByChance(variance: number, [one, other]: readonly [number, number]): number {
  return 1 / Math.sqrt((1 + (chance * variance) / one) * (1 + (chance * variance) / other));
}

/** The angle to a run, and the least cosine that chance makes. */
interface NearestAngle extends EarlierAngle {
  readonly variance: number;
  readonly byChance: number;
}

/**
 * The earlier run whose mean direction is nearest. Few vectors point anywhere, and so are often the nearest: a run counts only
 * if its direction is about as certain as this run's own, or as the most certain one. undefined: none is certain enough.
 */
function nearestOf(known: readonly EarlierAngle[], vectors: number): NearestAngle | undefined {
  const variance = relativeVariance(known);
  const limitOf = (one: EarlierAngle): number => cosineByChance(variance, [vectors, one.vectors]);
  const angles = known.filter(hasCosine);
  const own = cosineByChance(variance, [vectors, vectors]);
  const least = Math.max(leastLimit, certainPart * Math.min(own, Math.max(...angles.map(limitOf))));
  const [nearest] = angles
    .filter((one) => limitOf(one) >= least)
    .toSorted((one, other) => other.angle.cosine - one.angle.cosine);
  return nearest === undefined ? undefined : { ...nearest, variance, byChance: limitOf(nearest) };
}

function hasCosine({ angle }: EarlierAngle): boolean {
  return !Number.isNaN(angle.cosine);
}

/** Whether no earlier run can be compared: no mean direction is certain enough. */
export function incomparableVectors(compared: ComparedColumn): UncountedColumn | undefined {
  const { column, now } = compared;
  if (now.kind !== "vectors") {
    return undefined;
  }
  const known = anglesTo(compared);
  const isUncertain = known.some(hasCosine) && nearestOf(known, now.vectors.norms.finite) === undefined;
  return isUncertain ? { column, checks: ["centroid"], run: "this" } : undefined;
}

/** Where vectors point as a whole, compared with the run that is most like this one. */
export function checkCentroid(compared: ComparedColumn): CheckResult[] {
  const { column, now } = compared;
  if (now.kind !== "vectors") {
    return [];
  }
  const known = anglesTo(compared);
  const vectors = now.vectors.norms.finite;
  const nearest = nearestOf(known, vectors);
  if (nearest === undefined) {
    return [];
  }
  const { runId, rows, angle, variance, byChance } = nearest;
  const { cosine, product, lengths } = angle;
  const limits = { warn: Math.min(cosineLimits.warn, byChance), hold: Math.min(cosineLimits.hold, byChance) };
  const isFar = cosine < limits.hold;
  return [
    {
      check: "centroid",
      column,
      level: isFar ? "hold" : cosine < limits.warn ? "warn" : "pass",
      formula: centroidFormula,
      measured: cosine,
      limit: isFar ? limits.hold : limits.warn,
      against: runId,
      numbers: {
        rows: now.rows,
        rows_before: rows,
        product,
        length: lengths[1],
        length_before: lengths[0],
        vectors,
        vectors_before: nearest.vectors,
        variance,
      },
    },
  ];
}

const centroidFormula = `product / (length before · length): the cosine of the angle between the sums of the directions, which are vectors of length 1; the limit is at most 1 / sqrt((1 + ${chance} v / n) (1 + ${chance} v / m)), where n and m are the vectors of the two runs, and v is the variance of the directions divided by the square of their mean's length, in the earlier runs`;
