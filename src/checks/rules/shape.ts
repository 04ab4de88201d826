import { digitsApart, percent, rangeText, shown, shownValue } from "../../util/shown-numbers.js";
import {
  aboutColumn,
  type Check,
  type ComparedColumn,
  type Earlier,
  type Finding,
  levelFor,
  limitFor,
  type Nearness,
  nearness,
  type NightColumn,
} from "../check.js";
import { type ColumnProfile, countedRows, histogramOf, namesOf } from "../profile/column.js";
import { coarsen, type Histogram, mergeHistograms } from "../profile/histogram.js";
import { valueText } from "../profile/shown-values.js";
import { medians } from "./unseen.js";

const least = { usually: 0.15, first: 1 };
/** A column that moves more from night to night only warns: with 14 earlier nights, and with fewer. */
const volatile = { usually: 0.3, first: 0.1 };
/** Of texts, so many values have bins of their own. */
const mostTexts = 50;
const deciles = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/** Rows in bins that all runs share, and logarithms of their shares. */
interface Shares {
  readonly shares: readonly number[];
  readonly logs: readonly number[];
}

/** Puts a histogram into the bins that are made of those of earlier runs. */
interface Bins {
  readonly count: number;
  place(histogram: Histogram): Shares;
}

function binsOf(kind: ColumnProfile["kind"], histograms: readonly Histogram[], now: Histogram): Bins {
  const shift = Math.max(now.shift, ...histograms.map((each) => each.shift));
  const pool = mergeHistograms([...histograms, { shift: now.shift, keys: [], counts: [] }], Number.POSITIVE_INFINITY);
  return kind === "values" ? binsOfTexts(pool, shift) : binsOfNumbers(pool, shift);
}

/** Bins that end at the deciles of earlier runs. What is outside of these counts to the first and the last one. */
function binsOfNumbers({ keys, counts }: Histogram, shift: number): Bins {
  const total = counts.reduce((sum, rows) => sum + rows, 0);
  const edges: number[] = [];
  let below = 0;
  let next = 0;
  for (const [index, key] of keys.entries()) {
    below += counts[index] as number;
    while (next < deciles.length && below > (deciles[next] as number) * total) {
      if (index > 0 && edges.at(-1) !== key) {
        edges.push(key);
      }
      next += 1;
    }
  }
  return {
    count: edges.length + 1,
    place(histogram) {
      const rows = Array.from({ length: edges.length + 1 }, () => 0);
      const { keys: own, counts: ownRows } = coarsen(histogram, shift);
      let bin = 0;
      for (const [index, key] of own.entries()) {
        while (bin < edges.length && key >= (edges[bin] as number)) {
          bin += 1;
        }
        rows[bin] = (rows[bin] as number) + (ownRows[index] as number);
      }
      return sharesOf(rows);
    },
  };
}

/** A bin for each of the most frequent values of earlier runs, one for their others, and one for values that they lack. */
function binsOfTexts({ keys, counts }: Histogram, shift: number): Bins {
  const ranked = [...keys.keys()].toSorted(
    (left, right) => (counts[right] as number) - (counts[left] as number) || left - right,
  );
  const bins = new Map(ranked.map((index, rank) => [keys[index] as number, Math.min(rank, mostTexts)]));
  const count = Math.min(ranked.length, mostTexts) + 2;
  return {
    count,
    place(histogram) {
      const rows = Array.from({ length: count }, () => 0);
      const { keys: own, counts: ownRows } = coarsen(histogram, shift);
      for (const [index, key] of own.entries()) {
        const bin = bins.get(key) ?? count - 1;
        rows[bin] = (rows[bin] as number) + (ownRows[index] as number);
      }
      return sharesOf(rows);
    },
  };
}

/** Half a row more in each bin: none is empty. */
function sharesOf(rows: readonly number[]): Shares {
  const total = rows.reduce((sum, count) => sum + count + 0.5, 0);
  const shares = rows.map((count) => (count + 0.5) / total);
  return { shares, logs: shares.map(Math.log) };
}

/** The population stability index. */
function stability(left: Shares, right: Shares): number {
  let sum = 0;
  for (let bin = 0; bin < left.shares.length; bin += 1) {
    sum +=
      ((left.shares[bin] as number) - (right.shares[bin] as number)) *
      ((left.logs[bin] as number) - (right.logs[bin] as number));
  }
  return sum;
}

export interface ShapeDistance extends Nearness {
  readonly bins: number;
}

/** How far the shape of a column's values is from that of its earlier runs; undefined: it has no values. */
export function shapeDistance(now: ColumnProfile, earlier: readonly NightColumn[]): ShapeDistance | undefined {
  const nights = earlier.filter(({ column }) => countedRows(column) > 0);
  if (nights.length === 0 || countedRows(now) === 0) {
    return undefined;
  }
  const bins = binsOf(
    now.kind,
    nights.map(({ column }) => histogramOf(column)),
    histogramOf(now),
  );
  const placed = nights.map(({ run, column }) => ({ run, of: bins.place(histogramOf(column)) }));
  const found = nearness(bins.place(histogramOf(now)), placed, stability);
  return found && { ...found, bins: bins.count };
}

/** The population stability index of two columns by the bins of the first; NaN: one has no values. */
export function stabilityOf(before: ColumnProfile, now: ColumnProfile): number {
  const [from, to] = [histogramOf(before), histogramOf(now)];
  if (before.kind !== now.kind || from.keys.length === 0 || to.keys.length === 0) {
    return Number.NaN;
  }
  const bins = binsOf(before.kind, [from], to);
  return stability(bins.place(from), bins.place(to));
}

/** The limit of a shape's distance: chance alone makes one in few rows. */
export function shapeLimit({ usual, bins }: ShapeDistance, { now, factor }: ComparedColumn, earlier: Earlier): number {
  return Math.max(limitFor(usual, least, { factor, earlier }), (2 * (bins - 1)) / countedRows(now));
}

/** Whether the values of a column are distributed otherwise than usual. */
export const shapeCheck: Check = {
  name: "shape",
  isScaled: true,
  judge(night) {
    return night.columns.flatMap((column): Finding[] => {
      const found = shapeDistance(column.now, column.nights);
      if (found === undefined) {
        return [];
      }
      const { near, usual, nearest } = found;
      const isFirst = night.earlier.known < 14;
      const limit = shapeLimit(found, column, night.earlier);
      const level = levelFor(
        { near, limit },
        night,
        night.earlier.isFile || usual <= (isFirst ? volatile.first : volatile.usually),
      );
      return [
        {
          check: "shape",
          ...aboutColumn(column),
          ...level,
          measured: near,
          limit,
          against: nearest.runId,
          numbers: { usual, ...(level.level === "pass" ? {} : factsOf(column)) },
        },
      ];
    });
  },
  say: shapeText,
};

function shareOf(column: ColumnProfile, key: number): number {
  const index = histogramOf(column).keys.indexOf(key);
  return index < 0 ? 0 : (histogramOf(column).counts[index] as number) / Math.max(1, countedRows(column));
}

/** What moved, for people: medians of numbers, and the value of texts whose share moved most. */
function factsOf({ now, nights }: ComparedColumn): Record<string, number | string> {
  const middle = medians({ now, nights });
  if (middle["median"] !== undefined) {
    return middle;
  }
  const here = histogramOf(now);
  const names = new Map([...nights.flatMap(({ column }) => [...namesOf(column)]), ...namesOf(now)]);
  const moves =
    here.shift > 0
      ? []
      : [...names.keys()].map((key) => {
          const before = nights.map(({ column }) => shareOf(column, key));
          const [share, low, high] = [shareOf(now, key), Math.min(...before), Math.max(...before)];
          return { key, share, low, high, by: Math.max(share - high, low - share) };
        });
  const [first] = moves.toSorted((left, right) => right.by - left.by);
  return first === undefined
    ? {}
    : {
        value: names.get(first.key) ?? valueText(now, first.key) ?? "",
        share: first.share,
        share_low: first.low,
        share_high: first.high,
      };
}

function shapeText({ measured, against, numbers }: Finding, { dateOf }: Parameters<Check["say"]>[1]): string {
  const {
    usual = 0,
    median,
    low = 0,
    high = 0,
    value,
    share = 0,
    share_low: least_ = 0,
    share_high: most = 0,
    unit,
  } = numbers;
  const named = unit === undefined ? "" : ` (${unit})`;
  const digits = digitsApart(median ?? 0, Number(median) > Number(high) ? high : low);
  const what =
    median !== undefined
      ? `median ${shown(median, digits)}${named}, usually ${rangeText(low, high, digits)}; `
      : value !== undefined
        ? `${shownValue(value)} in ${percent(share)} of the rows, usually ${percent(least_) === percent(most) ? percent(most) : `${percent(least_)} to ${percent(most)}`}; `
        : "";
  const times =
    Number(usual) > 0
      ? `${shown(Number(measured) / Number(usual), 2)} times as far from the nearest night (${dateOf(against ?? "")}) as earlier nights were from theirs`
      : `far from the nearest night (${dateOf(against ?? "")})`;
  return `${what}its values are ${times}`;
}
