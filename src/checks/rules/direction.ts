import { shown } from "../../util/shown-numbers.js";
import { aboutColumn, type Check, type Finding, levelFor, limitFor, nearness } from "../check.js";
import { type ColumnProfile, countedRows } from "../profile/column.js";

const least = { usually: 0.05, first: 0.3 };
const directionUnit = 2 ** 20;
/** Standard deviations that the mean direction of random vectors has. */
const chance = 4;

/** The mean direction; undefined: the vectors have too little direction in common. */
function directionOf(column: ColumnProfile): readonly number[] | undefined {
  if (column.kind !== "vectors") {
    return undefined;
  }
  const rows = countedRows(column) - column.zero;
  const length = Math.hypot(...column.direction) / directionUnit;
  return length > chance * Math.sqrt(Math.max(1, rows)) ? column.direction : undefined;
}

function distance(left: readonly number[], right: readonly number[]): number {
  const product = left.reduce((sum, value, at) => sum + value * (right[at] ?? 0), 0);
  return 1 - product / (Math.hypot(...left) * Math.hypot(...right));
}

/** Whether vectors point elsewhere than usual: 1 - cosine between their mean directions. */
export const directionCheck: Check = {
  name: "direction",
  isScaled: true,
  judge(night) {
    return night.columns.flatMap((column): Finding[] => {
      const now = directionOf(column.now);
      const nights = column.nights.flatMap(({ run, column: before }) => {
        const of = directionOf(before);
        return of === undefined ? [] : [{ run, of }];
      });
      const found = now && nearness(now, nights, distance);
      if (found === undefined) {
        return [];
      }
      const limit = limitFor(found.usual, least, { factor: column.factor, earlier: night.earlier });
      const level = levelFor({ near: found.near, limit }, night);
      return [
        {
          check: "direction",
          ...aboutColumn(column),
          ...level,
          measured: found.near,
          limit,
          against: found.nearest.runId,
          numbers: { usual: found.usual },
        },
      ];
    });
  },
  say: ({ measured, against }, { dateOf }) =>
    `its vectors point elsewhere: cosine ${shown(1 - Number(measured))} to the nearest night (${dateOf(against ?? "")})`,
};
