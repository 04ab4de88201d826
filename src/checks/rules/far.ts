import { digitsApart, shown } from "../../util/shown-numbers.js";
import { aboutColumn, type Check, type Finding, levelFor, limitFor, type NightColumn } from "../check.js";
import { type ColumnProfile, countedRows, type NumberColumn, quantileOf } from "../profile/column.js";

const least = { usually: 0.25, first: 2 };

type Range = readonly [low: number, high: number];

function rangeOf(columns: readonly NumberColumn[]): Range {
  return [Math.min(...columns.map(({ min }) => min)), Math.max(...columns.map(({ max }) => max))];
}

/** How far a median is outside of a range, in widths of it. */
function outside(median: number, [low, high]: Range): number {
  const distance = Math.max(low - median, median - high, 0);
  return distance === 0 ? 0 : distance / (high - low);
}

/** Whether the median is outside of all that was seen. */
export const farCheck: Check = {
  name: "far",
  isScaled: true,
  judge(night) {
    return night.columns.flatMap((column): Finding[] => {
      const { now, nights: all, factor } = column;
      const nights = all.flatMap(({ run, column: before }) =>
        before.kind === "numbers" && countedRows(before) > 0 ? [{ run, column: before }] : [],
      );
      const median = quantileOf(now, 0.5);
      if (now.kind !== "numbers" || median === undefined || nights.length === 0) {
        return [];
      }
      const range = rangeOf(nights.map((each) => each.column));
      if (range[0] === range[1]) {
        return []; // a constant has no width
      }
      const near = outside(median, range);
      const usual = Math.max(
        0,
        ...nights.map((each, index) => {
          const others = nights.filter((_, at) => at !== index).map((night_) => night_.column);
          const found =
            each.run.isApproved === true || others.length === 0
              ? 0
              : outside(quantileOf(each.column, 0.5) as number, rangeOf(others));
          return Number.isFinite(found) ? found : 0;
        }),
      );
      const limit = limitFor(usual, least, { factor, earlier: night.earlier });
      return [
        {
          check: "far",
          ...aboutColumn(column),
          ...levelFor({ near, limit }, night),
          measured: near,
          limit,
          against: null,
          numbers: { median, low: range[0], high: range[1] },
        },
      ];
    });
  },
  say({ numbers: { median = 0, low = 0, high = 0, unit } }) {
    const digits = digitsApart(median, median > high ? high : low);
    return `median ${shown(median, digits)}, seen ${shown(low, digits)} to ${shown(high, digits)}${unit === undefined ? "" : ` (${unit})`}`;
  },
};

/** Earlier runs that tell that a column only grows: with so many, medians that always rise are no chance. */
const risingNights = 6;

/** Whether a column of numbers only grows, as ids and times do: each night begins where the last one ended, or nearly so. */
export function onlyGrows(nights: readonly NightColumn[], now: ColumnProfile): boolean {
  const all = [...nights.map(({ column }) => column), now].flatMap((column) =>
    column.kind === "numbers" && countedRows(column) > 0 ? [column] : [],
  );
  if (all.length <= nights.length || all.length < 3) {
    return false;
  }
  const steps = all.slice(1).map((column, index) => [all[index] as NumberColumn, column] as const);
  const isApart = steps.every(([before, after]) => after.min >= before.max && after.max > before.min);
  const rises = (share: number): boolean =>
    steps.every(([before, after]) => (quantileOf(after, share) as number) > (quantileOf(before, share) as number));
  return isApart || (all.length > risingNights && rises(0.1) && rises(0.5) && rises(0.9));
}
