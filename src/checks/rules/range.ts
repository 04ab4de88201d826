import { count, shown } from "../../util/shown-numbers.js";
import type { Check, Result } from "../check.js";
import { rangeOfBin } from "../profile/histogram.js";

/** Whether an output has finite numbers outside of the range of the spec. */
export const rangeCheck: Check = {
  name: "range",
  judge({ run, limits }) {
    return [...run.outputs].flatMap(([column, now]): Result[] => {
      const range = limits.outputs.get(column)?.range;
      if (range === undefined || now.kind !== "numbers") {
        return [];
      }
      const [low, high] = range;
      const isOutside = now.values.keys.length > 0 && (now.min < low || now.max > high);
      const isLow = now.min < low && low - now.min >= now.max - high;
      let [least, most] = [0, 0];
      for (const [index, key] of now.values.keys.entries()) {
        const [from, to] = rangeOfBin(key, now.values.shift);
        const rows = now.values.counts[index] as number;
        least += to < low || from > high ? rows : 0;
        most += from < low || to > high ? rows : 0;
      }
      return [
        {
          column,
          level: isOutside ? "hold" : "pass",
          measured: isLow ? now.min : now.max,
          limit: isLow ? low : high,
          against: null,
          numbers: isOutside ? { least: Math.max(1, least), most: Math.max(1, most) } : {},
        },
      ];
    });
  },
  say({ measured, limit, numbers: { least = 0, most = 0 } }) {
    const rows = `${least === most ? "" : `at least ${least} and at most `}${count(Number(most), "row")}`;
    return `${rows} ${most === 1 ? "is" : "are"} out of range, ${Number(measured) < Number(limit) ? "down" : "up"} to ${shown(measured, 6)} (limit ${shown(limit, 6)})`;
  },
};
