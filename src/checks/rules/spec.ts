import { count, shown, shownValue } from "../../base/shown-numbers.js";
import type { Check, Finding, Result } from "../check.js";
import { countedValues, histogramOf, keyOfText, valueText } from "../profile/column.js";
import { keyOfNumber, rangeOfBin } from "../profile/histogram.js";

export const rangeCheck: Check = {
  name: "range",
  measuresRow: true,
  isAbsolute: () => true,
  mayBeSpec: () => true,
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

const shownStrangers = 5;

export const inCheck: Check = {
  name: "in",
  implies: ["class"],
  isAbsolute: () => true,
  mayBeSpec: () => true,
  valuesIn: ({ numbers }) => Object.keys(numbers),
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

/** How often the keys of a run's rows repeat. */
export interface KeyCounts {
  /** Rows whose key an earlier row has. */
  readonly repeated: number;
  /** Rows with a NULL in their key: as in a primary key of SQL, it names no row. */
  readonly nulls: number;
  /** A few keys that repeat, as texts. */
  readonly examples: readonly string[];
}

export function checkKeys(columns: readonly string[], { repeated, nulls, examples }: KeyCounts): Finding {
  return {
    check: "unique",
    column: columns.join(", "),
    level: repeated + nulls > 0 ? "hold" : "pass",
    measured: repeated + nulls,
    limit: 0,
    against: null,
    numbers: { repeated, nulls, ...(examples.length === 0 ? {} : { examples: examples.join("; ") }) },
  };
}

/** Whether each row has a key of its own. The target counts them. */
export const uniqueCheck: Check = {
  name: "unique",
  isAbsolute: () => true,
  say({ numbers: { repeated = 0, nulls = 0, examples } }) {
    const such = examples === undefined ? "" : `, such as ${examples}`;
    const texts = [
      repeated === 0 ? "" : `${count(Number(repeated), "row")} ${repeated === 1 ? "repeats" : "repeat"} a key${such}`,
      nulls === 0
        ? ""
        : `${count(Number(nulls), "row")} ${nulls === 1 ? "has a NULL in its key" : "have a NULL in their key"}`,
    ];
    return texts.filter((text) => text !== "").join("; ") || "each key has one row";
  },
};

/** Whether the conditions of the spec are true. DuckDB decides them. */
export const sqlCheck: Check = {
  name: "sql",
  isAbsolute: () => true,
  mayBeSpec: () => true,
  say: ({ measured, limit, numbers }) =>
    [`${String(limit).trim().replaceAll(/\s+/g, " ")} is ${measured}`, ...aggregateTexts(numbers)].join(": "),
};

/** Longer aggregates are shown as `avg(…)`; the condition shows their arguments in full. */
const shortAggregate = 24;

/** "count(*) is 8, avg(…) is 0.31". Empty for a condition without an aggregate. */
function aggregateTexts(numbers: Finding["numbers"]): string[] {
  const known = Object.entries(numbers);
  const names = known.map(([name]) => (name.length > shortAggregate ? name.replace(/\(.*/s, "(…)") : name));
  const texts = known.map(([whole, value], index) => {
    const name = names[index] ?? whole;
    return `${names.indexOf(name) === names.lastIndexOf(name) ? name : whole} is ${shown(value)}`;
  });
  return texts.length === 0 ? [] : [texts.join(", ")];
}
