import { shown } from "../../base/shown-numbers.js";
import { type Check, compared, nearness, type NightColumn, timesLimit } from "../check.js";
import { mediansText, unitOf } from "../medians.js";
import { type ColumnProfile, countedRows, directionUnit, type NumberColumn, quantileOf } from "../profile/column.js";

const leastFar = { usually: 0.25, first: 2 };

type Range = readonly [low: number, high: number];

function rangeOf(columns: readonly NumberColumn[]): Range {
  return [Math.min(...columns.map(({ min }) => min)), Math.max(...columns.map(({ max }) => max))];
}

/** How far a median is outside of a range, in widths of it. */
function outside(median: number, [low, high]: Range): number {
  const distance = Math.max(low - median, median - high, 0);
  return distance === 0 ? 0 : distance / (high - low);
}

function numbersIn(column: ColumnProfile): NumberColumn[] {
  return column.kind === "numbers" && countedRows(column) > 0 ? [column] : [];
}

/** Numbers as they are; and their logarithms, by which a thousandth is far from what was seen, too. */
const scales = [
  (value: number): number => value,
  (value: number): number => Math.log(Math.max(value, Number.MIN_VALUE)),
];

/** Whether the median is outside of all that was seen. */
export const farCheck: Check = {
  name: "far",
  implies: ["shape", "unseen"],
  judge: (night) =>
    night.columns.flatMap((column) => {
      const nights = column.nights.flatMap(({ run, column: before }) =>
        numbersIn(before).map((of) => ({ run, of, median: quantileOf(of, 0.5) as number })),
      );
      const median = quantileOf(column.now, 0.5);
      const [low, high] = rangeOf(nights.map(({ of }) => of));
      if (column.now.kind !== "numbers" || median === undefined || !(low < high)) {
        return []; // a constant has no width
      }
      const results = scales.slice(0, low > 0 ? 2 : 1).map((scale) => {
        const measure = (value: number, [least, largest]: Range): number =>
          outside(scale(value), [scale(least), scale(largest)]);
        const own = nights
          .filter(({ run }) => run.isApproved !== true)
          .map((each) => measure(each.median, rangeOf(nights.filter((night_) => night_ !== each).map(({ of }) => of))));
        return compared(night, column, {
          near: measure(median, [low, high]),
          usual: Math.max(0, ...own.filter(Number.isFinite)),
          least: leastFar,
          numbers: { median, low, high },
          facts: () => unitOf(column),
        });
      });
      return results.toSorted((left, right) => timesLimit(right) - timesLimit(left)).slice(0, 1);
    }),
  say: ({ numbers }) => mediansText(numbers, "seen") ?? "",
};

/** Earlier runs that tell that a column only grows: with so many, medians that always rise are no chance. */
const risingNights = 6;

/** Whether a column of numbers only grows, as ids and times do: each night begins where the last one ended, or nearly so. */
export function onlyGrows(nights: readonly NightColumn[], now: ColumnProfile): boolean {
  const all = [...nights.map(({ column }) => column), now].flatMap(numbersIn);
  if (all.length <= nights.length || all.length < 3) {
    return false;
  }
  const steps = all.slice(1).map((column, index) => [all[index] as NumberColumn, column] as const);
  const isApart = steps.every(([before, after]) => after.min >= before.max && after.max > before.min);
  const rises = (share: number): boolean =>
    steps.every(([before, after]) => (quantileOf(after, share) as number) > (quantileOf(before, share) as number));
  return isApart || (all.length > risingNights && rises(0.1) && rises(0.5) && rises(0.9));
}

const leastDirection = { usually: 0.05, first: 0.3 };
/** Standard deviations that the mean direction of random vectors has. */
const chance = 4;

/** undefined: the vectors have too little direction in common. */
function directionOf(column: ColumnProfile): readonly number[] | undefined {
  if (column.kind !== "vectors") {
    return undefined;
  }
  const rows = countedRows(column) - column.zero;
  const length = Math.hypot(...column.direction) / directionUnit;
  return length > chance * Math.sqrt(Math.max(1, rows)) ? column.direction : undefined;
}

function cosineDistance(left: readonly number[], right: readonly number[]): number {
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
      const near = now && nearness(now, nights, cosineDistance);
      return near === undefined
        ? []
        : [compared(night, column, { ...near, least: leastDirection, numbers: { usual: near.usual } })];
    }),
  say: ({ measured, against }, { dateOf }) =>
    `its vectors point elsewhere: cosine ${shown(1 - Number(measured))} to the nearest night (${dateOf(against ?? "")})`,
};
