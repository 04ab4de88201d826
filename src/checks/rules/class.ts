import { percent, shownValue } from "../../util/shown-numbers.js";
import { type Check, type ComparedColumn, compared, type JudgedNight, nearness, type Result } from "../check.js";
import {
  areClasses,
  type ColumnProfile,
  countedRows,
  countedValues,
  histogramOf,
  valueText,
} from "../profile/column.js";

const least = { usually: 1.2, first: 2 };
/** Rows that a class has, or is due: fewer come and go by chance. */
const leastRows = 20;
const mostClasses = 50;

interface ClassRows {
  readonly rows: number;
  readonly all: number;
}

/** Whether a class of an output is far more or far less frequent than usual: a class of 0.1 % may be gone without another sign. */
export const classCheck: Check = {
  name: "class",
  judge(night) {
    const classed = night.columns.filter(
      ({ role, now, nights }) =>
        role === "output" && areClasses(now) && nights.every(({ column }) => countedValues(column) !== undefined),
    );
    return classed.flatMap((column) => classKeys(column).flatMap((key) => judgeClass(night, column, key)));
  },
  say: ({ numbers: { value = "", share = 0, nearest = 0 }, against }, { dateOf }) =>
    `${value === "" ? "a class" : `class ${shownValue(value)}`} has ${percent(share)} of the rows; ${percent(nearest)} on the nearest night (${dateOf(against ?? "")})`,
};

/** The most frequent classes of all runs. */
function classKeys({ now, nights }: ComparedColumn): number[] {
  const rows = new Map<number, number>();
  for (const column of [now, ...nights.map((each) => each.column)]) {
    for (const [index, key] of histogramOf(column).keys.entries()) {
      rows.set(key, (rows.get(key) ?? 0) + (histogramOf(column).counts[index] as number));
    }
  }
  const ranked = [...rows].toSorted(([, left], [, right]) => right - left);
  return ranked.slice(0, mostClasses).map(([key]) => key);
}

function judgeClass(night: JudgedNight, column: ComparedColumn, key: number): Result[] {
  const now = rowsOf(column.now, key);
  const nights = column.nights.map(({ run, column: before }) => ({ run, of: rowsOf(before, key) }));
  const distance = nearness(now, nights, (left, right) => Math.abs(logOdds(left) - logOdds(right)));
  const before = nights.find(({ run }) => run === distance?.nearest)?.of;
  if (distance === undefined || before === undefined) {
    return [];
  }
  const due = shareOf(before) * now.all;
  const texts = [column.now, ...column.nights.map((each) => each.column)].map((each) => valueText(each, key));
  const value = texts.find((text) => text !== undefined) ?? "";
  const numbers = { value, rows: now.rows, share: shareOf(now), nearest: shareOf(before) };
  const near = Math.max(due, now.rows) < leastRows ? 0 : distance.near;
  return [compared(night, column, { ...distance, near, least, numbers })];
}

function rowsOf(column: ColumnProfile, key: number): ClassRows {
  const { keys, counts } = histogramOf(column);
  return { rows: counts[keys.indexOf(key)] ?? 0, all: countedRows(column) };
}

function shareOf({ rows, all }: ClassRows): number {
  return rows / Math.max(1, all);
}

function logOdds({ rows, all }: ClassRows): number {
  return Math.log((rows + 0.5) / (all - rows + 0.5));
}
