import { type CentroidAngle, centroidAngle } from "../profiles/vector-directions.js";
import type { ComparedColumn } from "./column-checks.js";
import type { CheckResult, UncountedColumn } from "./verdict.js";

const cosineLimits = { warn: 0.98, hold: 0.9 };

interface EarlierAngle {
  readonly runId: string;
  readonly rows: number;
  readonly angle: CentroidAngle;
}

/** The angles to the earlier runs that can be compared. */
function anglesTo({ now, earlier }: ComparedColumn): EarlierAngle[] {
  return earlier.flatMap(({ runId, profile }) => {
    const angle =
      now.kind === "vectors" && profile.kind === "vectors" ? centroidAngle(profile.vectors, now.vectors) : undefined;
    return angle === undefined ? [] : [{ runId, rows: profile.rows, angle }];
  });
}

/** Whether no earlier run can be compared: an older version of this program left out other dimensions. */
export function incomparableVectors(compared: ComparedColumn): UncountedColumn | undefined {
  return compared.now.kind === "vectors" && anglesTo(compared).length === 0
    ? { column: compared.column, checks: ["centroid"], run: "earlier" }
    : undefined;
}

/** Where vectors point as a whole, compared with the run that is most like this one. */
export function checkCentroid(compared: ComparedColumn): CheckResult[] {
  const { column, now, earlier } = compared;
  const known = anglesTo(compared);
  let nearest: EarlierAngle | undefined;
  for (const one of known) {
    if (one.angle.cosine > (nearest?.angle.cosine ?? -2)) {
      nearest = one;
    }
  }
  if (nearest === undefined) {
    return [];
  }
  const { runId, rows, angle } = nearest;
  const { cosine, product, lengths } = angle;
  const isFar = cosine < cosineLimits.hold;
  // A night like this one may be among those that cannot be compared.
  const holds = isFar && known.length === earlier.length;
  return [
    {
      check: "centroid",
      column,
      level: holds ? "hold" : cosine < cosineLimits.warn ? "warn" : "pass",
      ...(isFar && !holds && { lowered: `only ${known.length} of ${earlier.length} earlier runs can be compared` }),
      formula:
        "product / (length before · length): the cosine of the angle between the sums of the directions, which are vectors of length 1",
      measured: cosine,
      limit: isFar ? cosineLimits.hold : cosineLimits.warn,
      against: runId,
      numbers: { rows: now.rows, rows_before: rows, product, length: lengths[1], length_before: lengths[0] },
    },
  ];
}
