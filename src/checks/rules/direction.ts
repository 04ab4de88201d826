import { shown } from "../../util/shown-numbers.js";
import { type Check, compared, nearness } from "../check.js";
import { type ColumnProfile, countedRows, directionUnit } from "../profile/column.js";

const least = { usually: 0.05, first: 0.3 };
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
  judge: (night) =>
    night.columns.flatMap((column) => {
      const now = directionOf(column.now);
      const nights = column.nights.flatMap(({ run, column: before }) => {
        const of = directionOf(before);
        return of === undefined ? [] : [{ run, of }];
      });
      const near = now && nearness(now, nights, distance);
      return near === undefined ? [] : [compared(night, column, { ...near, least, numbers: { usual: near.usual } })];
    }),
  say: ({ measured, against }, { dateOf }) =>
    `its vectors point elsewhere: cosine ${shown(1 - Number(measured))} to the nearest night (${dateOf(against ?? "")})`,
};
