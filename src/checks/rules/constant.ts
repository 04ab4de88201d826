import { percent, shownValue } from "../../util/shown-numbers.js";
import { aboutColumn, type Check, levelOf } from "../check.js";
import { type ColumnProfile, countedRows, histogramOf, valueText } from "../profile/column.js";

/** Where one value had so many of the rows before, all rows having one is no surprise: of features, and of outputs. */
const usualShare = { feature: 0.5, output: 0.9 };
const leastRows = 20;
/** With fewer, a feature that is constant may be so often. */
const fewNights = 5;

/** The share of the most frequent value. */
function topShare(column: ColumnProfile): number {
  return Math.max(0, ...histogramOf(column).counts) / Math.max(1, column.rows);
}

/** Whether all values of a column are missing, or the same, and never were. An output without a value holds any run. */
export const constantCheck: Check = {
  name: "constant",
  judge(night) {
    return night.columns.flatMap((column) => {
      const { now, nights, role } = column;
      if ((role !== "feature" && role !== "output") || now.kind === "rows" || now.rows < leastRows) {
        return [];
      }
      const isEmpty = countedRows(now) === 0;
      const { keys, shift } = histogramOf(now);
      const isConstant = keys.length === 1 && shift === 0;
      const before = Math.max(0, ...nights.map((each) => topShare(each.column)));
      const isNew = isEmpty
        ? nights.every((each) => countedRows(each.column) > 0)
        : isConstant && nights.length > 0 && before < usualShare[role];
      const isKnown = isEmpty || role === "output" || night.earlier.isFile || night.earlier.known >= fewNights;
      const value = isConstant ? (valueText(now, keys[0] as number) ?? "") : "";
      return [
        {
          ...aboutColumn(column),
          ...(isNew && isEmpty && role === "output" ? { level: "hold" as const } : levelOf(isNew, night, isKnown)),
          measured: isEmpty ? 0 : topShare(now),
          limit: usualShare[role],
          against: null,
          numbers: { empty: isEmpty ? 1 : 0, before, nights: nights.length, value },
        },
      ];
    });
  },
  say({ numbers: { empty, before = 0, value = "", nights } }) {
    if (empty === 1) {
      return `no row has a value${nights === 0 ? "" : "; that never was"}`;
    }
    return `all rows have ${value === "" ? "one value" : `the value ${shownValue(value)}`}; before, one value had at most ${percent(before)} of the rows`;
  },
};
