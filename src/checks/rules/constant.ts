import { percent, shownValue } from "../../util/shown-numbers.js";
import { aboutColumn, type Check, type ComparedColumn, type Finding } from "../check.js";
import { type ColumnProfile, countedRows, histogramOf } from "../profile/column.js";
import { valueText } from "../profile/shown-values.js";

/** Where one value had so many of the rows before, all rows having one is no surprise: of features, and of outputs. */
const usualShare = { feature: 0.5, output: 0.9 };
const leastRows = 20;
/** With fewer, a feature that is constant may be so often. */
const fewNights = 5;

/** The share of the most frequent value. */
function topShare(column: ColumnProfile): number {
  return Math.max(0, ...histogramOf(column).counts) / Math.max(1, column.rows);
}

/** Whether all values of a column are missing, or the same, and never were. */
export const constantCheck: Check = {
  name: "constant",
  isScaled: false,
  judge({ columns, earlier }) {
    const judged = columns.filter(
      ({ role, now }) => (role === "feature" || role === "output") && now.kind !== "rows" && now.rows >= leastRows,
    );
    return judged.flatMap((column): Finding[] => {
      const { now, nights } = column;
      const isEmpty = countedRows(now) === 0;
      const isConstant = histogramOf(now).keys.length === 1 && histogramOf(now).shift === 0;
      const before = Math.max(0, ...nights.map((night) => topShare(night.column)));
      const wasEmpty = nights.some((night) => countedRows(night.column) === 0);
      const isNew = isEmpty
        ? !wasEmpty
        : isConstant && nights.length > 0 && before < usualShare[column.role as "feature" | "output"];
      const mayHold =
        column.role === "output" || earlier.isFile || (isEmpty ? earlier.known > 1 : earlier.known >= fewNights);
      return [
        {
          check: "constant",
          ...aboutColumn(column),
          level: !isNew ? "pass" : mayHold ? "hold" : "warn",
          measured: isEmpty ? 0 : topShare(now),
          limit: usualShare[column.role as "feature" | "output"],
          against: null,
          numbers: { empty: isEmpty ? 1 : 0, before, nights: nights.length, value: isConstant ? oneValue(column) : "" },
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

function oneValue({ now }: ComparedColumn): string {
  return valueText(now, histogramOf(now).keys[0] as number) ?? "";
}
