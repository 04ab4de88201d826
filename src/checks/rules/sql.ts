import { shown } from "../../util/shown-numbers.js";
import type { Check, Finding } from "../check.js";

/** Whether the conditions of the spec are true. DuckDB decides them. */
export const sqlCheck: Check = {
  name: "sql",
  judge: () => [],
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
