import { type CentroidAngle, centroidAngle } from "../profiles/vector-directions.js";
import type { ComparedColumn } from "./column-checks.js";
import type { CheckResult, Level } from "./verdict.js";

const cosineLimits = { warn: 0.98, hold: 0.9 };

/** Where vectors point as a whole, compared with the run that is most like this one. */
export function checkCentroid({ column, now, earlier }: ComparedColumn): CheckResult[] {
  let nearest: { readonly runId: string; readonly rows: number; readonly angle: CentroidAngle } | undefined;
  for (const { runId, profile } of earlier) {
    const angle =
      now.kind === "vectors" && profile.kind === "vectors" ? centroidAngle(profile.vectors, now.vectors) : undefined;
    if (angle !== undefined && angle.cosine > (nearest?.angle.cosine ?? -2)) {
      nearest = { runId, rows: profile.rows, angle };
    }
  }
  if (nearest === undefined) {
    return [];
  }
  const { runId, rows, angle } = nearest;
  const { cosine, product, lengths } = angle;
  const level: Level = cosine < cosineLimits.hold ? "hold" : cosine < cosineLimits.warn ? "warn" : "pass";
  return [
    {
      check: "centroid",
      column,
      level,
      formula:
        "product / (length before · length): the cosine of the angle between the sums of the directions, which are vectors of length 1",
      measured: cosine,
      limit: level === "hold" ? cosineLimits.hold : cosineLimits.warn,
      against: runId,
      numbers: { rows: now.rows, rows_before: rows, product, length: lengths[1], length_before: lengths[0] },
    },
  ];
}
