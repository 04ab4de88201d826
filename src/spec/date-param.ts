import { isMap, isScalar } from "yaml";
import { isCalendarDate } from "../plan/series.js";
import type { Problem } from "./problems.js";
import type { YamlDocument } from "./yaml-text.js";

/**
 * The param of type date; else the first one that is `${today}` or `${yesterday}`. `--param` may give it another value:
 * it is the same param then.
 */
export function dateParamOf(document: YamlDocument): string | undefined {
  const params = document.get("params", true);
  const items = isMap(params) ? params.items : [];
  const found =
    items.find(({ value }) => isTypedDate(value)) ??
    items.find(({ value }) => isScalar(value) && /^\$\{(today|yesterday)\}$/.test(String(value.value)));
  return isScalar(found?.key) ? String(found.key.value) : undefined;
}

/** `{ type: date, default: ${today} }` */
function isTypedDate(value: unknown): boolean {
  return isMap(value) && value.get("type") === "date" && value.items.every(({ key }) => isDateKey(key));
}

function isDateKey(key: unknown): boolean {
  return isScalar(key) && (key.value === "type" || key.value === "default");
}

/** Puts the default of each param of type date in its place. Returns the names of these params. */
export function takeDefaults(params: unknown): ReadonlySet<string> {
  const typed = new Set<string>();
  for (const pair of isMap(params) ? params.items : []) {
    if (isTypedDate(pair.value) && isMap(pair.value) && isScalar(pair.key)) {
      typed.add(String(pair.key.value));
      pair.value = pair.value.get("default", true);
    }
  }
  return typed;
}

/** What is wrong with the value of a param of type date. */
export function dateProblems(name: string, text: string): Problem[] {
  return isCalendarDate(text)
    ? []
    : [{ path: ["params", name], text: `found ${text}, expected a date such as 2026-11-23` }];
}
