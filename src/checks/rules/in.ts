import { count, shownValue } from "../../util/shown-numbers.js";
import type { Check, Result } from "../check.js";
import { countedValues, histogramOf, keyOfText, valueText } from "../profile/column.js";
import { keyOfNumber } from "../profile/histogram.js";

const shownStrangers = 5;

/** Whether an output has values that are not in the list of the spec. */
export const inCheck: Check = {
  name: "in",
  judge({ run, limits }) {
    return [...run.outputs].flatMap(([column, now]): Result[] => {
      const list = limits.outputs.get(column)?.in;
      if (list === undefined || (now.kind !== "values" && now.kind !== "numbers")) {
        return [];
      }
      const allowed = new Set(
        list.map((value) => (now.kind === "numbers" ? keyOfNumber(Number(value)) : keyOfText(column, value))),
      );
      const values = countedValues(now);
      const strange = (values ?? [])
        .filter(({ key }) => !allowed.has(key))
        .toSorted((left, right) => right.rows - left.rows);
      // More values than are counted are more than a list has, as far as its length goes.
      const many = values === undefined ? Math.max(1, histogramOf(now).keys.length - list.length) : 0;
      const named = strange
        .slice(0, shownStrangers)
        .map(({ key, rows }) => [valueText(now, key) ?? "a value without a name", rows] as const);
      return [
        {
          column,
          level: strange.length + many > 0 ? "hold" : "pass",
          measured: strange.length + many,
          limit: 0,
          against: null,
          numbers: Object.fromEntries(named),
        },
      ];
    });
  },
  say({ measured, numbers }) {
    const values = Object.entries(numbers).map(
      ([value, rows]) => `${shownValue(value)} (${count(Number(rows), "row")})`,
    );
    return `values that are not in the list: ${values.join(", ") || `at least ${measured}`}`;
  },
};
