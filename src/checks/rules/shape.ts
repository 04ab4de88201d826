import { percent, shown, shownValue } from "../../base/shown-numbers.js";
import {
  type Check,
  compared,
  type ComparedColumn,
  comparedNights,
  enoughNights,
  type Finding,
  type JudgedNight,
  nearness,
  type NightColumn,
  type Result,
} from "../check.js";
import { mediansOf, mediansText } from "../medians.js";
import { type ColumnProfile, countedRows, histogramOf, namesOf } from "../profile/column.js";
import { coarsen, type Histogram, mergeHistograms, rowsIn } from "../profile/histogram.js";

const least = { usually: 0.15, first: 1 };
/** A column that moves more from night to night only warns: with 14 earlier nights, and with fewer. */
const volatile = { usually: 0.3, first: 0.1 };
/** Of texts, so many values have bins of their own. */
const mostTexts = 50;
const deciles = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/** More times as far says no more: nights that hardly differ make any number. */
const mostTimes = 100;

/** Rows in bins that all runs share, and logarithms of their shares. */
interface Shares {
  readonly shares: readonly number[];
  readonly logs: readonly number[];
}

interface Bins {
  readonly count: number;
  place(column: ColumnProfile): Shares;
}

/** Bins that are made of earlier runs, as fine as all histograms are. */
function binsOf(now: ColumnProfile, earlier: readonly ColumnProfile[]): Bins {
  const pool = mergeHistograms(
    [...earlier.map(histogramOf), { shift: histogramOf(now).shift, keys: [], counts: [] }],
    Number.POSITIVE_INFINITY,
  );
  return now.kind === "values" ? binsOfTexts(pool) : binsOfNumbers(pool);
}

/** Bins that end at the deciles of earlier runs. What is outside of these counts to the first and the last one. */
function binsOfNumbers(pool: Histogram): Bins {
  const { keys, counts, shift } = pool;
  const total = rowsIn(pool);
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
    place(column) {
      const rows = Array.from({ length: edges.length + 1 }, () => 0);
      const { keys: own, counts: ownRows } = coarsen(histogramOf(column), shift);
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
function binsOfTexts({ keys, counts, shift }: Histogram): Bins {
  const ranked = [...keys.keys()].toSorted(
    (left, right) => (counts[right] as number) - (counts[left] as number) || left - right,
  );
  const bins = new Map(ranked.map((index, rank) => [keys[index] as number, Math.min(rank, mostTexts)]));
  const count = Math.min(ranked.length, mostTexts) + 2;
  return {
    count,
    place(column) {
      const rows = Array.from({ length: count }, () => 0);
      const { keys: own, counts: ownRows } = coarsen(histogramOf(column), shift);
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

function stability(left: Shares, right: Shares): number {
  let sum = 0;
  for (let bin = 0; bin < left.shares.length; bin += 1) {
    sum +=
      ((left.shares[bin] as number) - (right.shares[bin] as number)) *
      ((left.logs[bin] as number) - (right.logs[bin] as number));
  }
  return sum;
}

interface ShapeComparison {
  readonly nights: readonly NightColumn[];
  /** By how far these are from each other. */
  readonly mayHold: (usual: number) => boolean;
  readonly facts: () => Finding["numbers"];
}

/** No result: there are no values. */
function comparedShape(
  night: JudgedNight,
  column: ComparedColumn,
  { nights, mayHold, facts }: ShapeComparison,
): Result[] {
  const { now } = column;
  const earlier = nights.filter(({ column: before }) => countedRows(before) > 0);
  if (earlier.length === 0 || countedRows(now) === 0) {
    return [];
  }
  const bins = binsOf(
    now,
    earlier.map(({ column: before }) => before),
  );
  const placed = earlier.map(({ run, column: before }) => ({ run, of: bins.place(before) }));
  const distance = nearness(bins.place(now), placed, stability);
  if (distance === undefined) {
    return [];
  }
  const { usual } = distance;
  const byChance = (2 * (bins.count - 1)) / countedRows(now);
  const about = { least, byChance, mayHold: mayHold(usual), numbers: { usual }, facts };
  return [compared(night, column, { ...distance, ...about })];
}

export const shapeCheck: Check = {
  name: "shape",
  implies: ["class", "drift"],
  judge(night) {
    const { earlier } = night;
    const mostUsual = earlier.isFile
      ? Number.POSITIVE_INFINITY
      : earlier.known < enoughNights
        ? volatile.first
        : volatile.usually;
    return night.columns.flatMap((column) =>
      comparedShape(night, column, {
        nights: column.nights,
        mayHold: (usual) => usual <= mostUsual,
        facts: () => (column.now.kind === "values" ? movedValue(column) : mediansOf(column)),
      }),
    );
  },
  say({ measured, against, numbers }, { dateOf }) {
    const { usual = 0, value, share = 0, share_low: low = 0, share_high: high = 0 } = numbers;
    const shares = [percent(low), percent(high)];
    const what =
      mediansText(numbers, "usually") ??
      (value === undefined
        ? undefined
        : `${shownValue(value)} in ${percent(share)} of the rows, usually ${[...new Set(shares)].join(" to ")}`);
    const nearest = `from the nearest night (${dateOf(against ?? "")})`;
    const times = Number(measured) / Number(usual);
    const far =
      Number(usual) > 0
        ? `${times > mostTimes ? `more than ${mostTimes}` : shown(times, 2)} times as far ${nearest} as earlier nights were from theirs`
        : `far ${nearest}`;
    return `${what === undefined ? "" : `${what}; `}its values are ${far}`;
  },
};

function movedValue({ now, nights }: ComparedColumn): Finding["numbers"] {
  if (histogramOf(now).shift > 0) {
    return {};
  }
  const names = new Map([...nights.flatMap(({ column }) => [...namesOf(column)]), ...namesOf(now)]);
  const moves = [...names].map(([key, value]) => {
    const before = nights.map(({ column }) => shareOf(column, key));
    const [share, low, high] = [shareOf(now, key), Math.min(...before), Math.max(...before)];
    return { by: Math.max(share - high, low - share), moved: { value, share, share_low: low, share_high: high } };
  });
  return moves.toSorted((left, right) => right.by - left.by)[0]?.moved ?? {};
}

function shareOf(column: ColumnProfile, key: number): number {
  const { keys, counts } = histogramOf(column);
  return (counts[keys.indexOf(key)] ?? 0) / Math.max(1, countedRows(column));
}

/** Whether an output has drifted since the four weeks before the last five, too slowly for a night to differ from the last ones. It only warns. */
export const driftCheck: Check = {
  name: "drift",
  judge: (night) =>
    night.columns
      .filter(({ older }) => older.length >= enoughNights)
      .flatMap((column) => {
        const { now, older: nights } = column;
        return comparedShape(night, column, {
          nights,
          mayHold: () => false,
          facts: () => ({ nights: nights.length, ...mediansOf({ now, nights }) }),
        });
      }),
  say({ numbers }) {
    const text = mediansText(numbers, "then");
    return `it has drifted since the ${numbers["nights"]} nights before the last ${comparedNights}${text === undefined ? "" : `: ${text}`}`;
  },
};
