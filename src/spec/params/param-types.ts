import { isMap, isScalar, isSeq, Scalar, type YAMLMap } from "yaml";
import { isCalendarDate, isDateText } from "../../plan/identity.js";
import { didYouMean } from "../../util/suggest.js";
import { parseDateExpression } from "./date-arithmetic.js";
import type { Problem } from "../problems.js";
import type { YamlDocument } from "../yaml-text.js";

/** The type of a param. */
export type ParamType =
  | { readonly type: "date" | "integer" }
  | { readonly type: "enum"; readonly values: readonly string[] };

export const paramForms =
  'expected a text, number or date, or { type: date, default: "${today}" }; types are date, integer and enum (with values: [a, b])';

/**
 * Returns the name of the run's logical date: the param of type date, else the first param whose value comes from
 * `${today}` or `${yesterday}`, even if `--param` gives it another value.
 */
export function dateParamOf(document: YamlDocument): string | undefined {
  const params = document.get("params", true);
  const items = isMap(params) ? params.items : [];
  const found =
    items.find(({ value }) => typeOf(value)?.type === "date") ?? items.find(({ value }) => isFromToday(value));
  return isScalar(found?.key) ? String(found.key.value) : undefined;
}

function isFromToday(value: unknown): boolean {
  const [, body = ""] = isScalar(value) ? (/^\$\{([^}]*)\}$/.exec(String(value.value)) ?? []) : [];
  return ["today", "yesterday"].includes(parseDateExpression(body)?.name ?? "");
}

/** Returns the name of the param whose value comes from `${hour}`; undefined: there is none. */
export function hourParamOf(document: YamlDocument): string | undefined {
  const params = document.get("params", true);
  const found = (isMap(params) ? params.items : []).find(({ value }) => {
    const text = isMap(value) ? value.get("default") : isScalar(value) ? value.value : undefined;
    return text === "${hour}";
  });
  return isScalar(found?.key) ? String(found.key.value) : undefined;
}

const keysOf: Readonly<Record<ParamType["type"], readonly string[]>> = {
  date: ["type", "default"],
  integer: ["type", "default"],
  enum: ["type", "values", "default"],
};

/**
 * Reads the type of a param such as `{ type: date, default: ${today} }`; undefined: the value is something else, or has
 * other keys.
 */
function typeOf(value: unknown): ParamType | undefined {
  const type = isMap(value) ? value.get("type") : undefined;
  if (!isMap(value) || (type !== "date" && type !== "integer" && type !== "enum")) {
    return undefined;
  }
  if (!value.items.every(({ key }) => isScalar(key) && keysOf[type].includes(String(key.value)))) {
    return undefined;
  }
  if (type !== "enum") {
    return { type };
  }
  const values = value.get("values");
  return isSeq(values) && values.items.length > 0 && values.items.every((item) => isScalar(item))
    ? { type, values: values.items.map((item) => textOf(item)) }
    : undefined;
}

/** Replaces each param that has a type by its default. Returns the types, and the names of params without a default. */
export function takeDefaults(params: unknown): {
  readonly types: ReadonlyMap<string, ParamType>;
  readonly required: ReadonlySet<string>;
} {
  const types = new Map<string, ParamType>();
  const required = new Set<string>();
  for (const pair of isMap(params) ? params.items : []) {
    const type = typeOf(pair.value);
    if (type === undefined || !isScalar(pair.key)) {
      continue;
    }
    const name = String(pair.key.value);
    const typed = pair.value as YAMLMap;
    types.set(name, type);
    if (!typed.has("default")) {
      required.add(name);
    }
    pair.value = typed.get("default", true) ?? placeOf(typed);
  }
  return { types, required };
}

/** Returns an empty text at the position of a mapping, for messages about it. */
function placeOf({ range }: YAMLMap): Scalar {
  const node = new Scalar("");
  node.range = range ?? null;
  return node;
}

/** Returns the text of a param's value. `007` and `1.0` keep their spelling. */
export function textOf({ value, source }: Scalar): string {
  return typeof value === "string" ? value : (source ?? "");
}

/** Checks the value of a param against its type. */
export function paramProblems(name: string, text: string, type: ParamType): Problem[] {
  const expected = expectedOf(text, type);
  return expected === undefined
    ? []
    : [{ path: ["params", name], text: `found ${text === "" ? "an empty text" : text}, expected ${expected}` }];
}

/** Year, month and day in digits, whether they are a date or not. */
const almostDate = /^(?=\d{8}$|\d+-\d+-)(\d{4})-?(\d{1,2})-?(\d{1,2})$/;

/** A range of dates, as `backfill` takes it. */
function isRange(text: string): boolean {
  const ends = text.split("..");
  return ends.length === 2 && ends.every(isDateText);
}

/** A name of the spec's clock, where only a date can be: nothing ever appears in a folder called dt=yesterday. */
function clockProblem(text: string): string | undefined {
  const [, body = text] = /^\$\{(.*)\}$/s.exec(text) ?? [];
  return /^(today|yesterday|tomorrow|now)$/i.test(parseDateExpression(body)?.name ?? "")
    ? `: --param takes the date itself, and \${${body.trim().toLowerCase()}} is what the spec may say`
    : undefined;
}

const takesRange = "; infer-batch backfill takes a range";

/**
 * Checks the value of an untyped param that is the logical date. A text that looks like a date, but is none as the checks read
 * it, would be compared with no earlier run; one that names a date of the clock stands for none. Any other text is allowed: such runs have no date.
 */
export function dateProblems(name: string, text: string): Problem[] {
  if (isRange(text)) {
    return [{ path: ["params", name], text: `found ${text}, expected one date${takesRange}` }];
  }
  const clock = clockProblem(text);
  if (clock !== undefined) {
    return [{ path: ["params", name], text: `found ${text}, expected a date such as 2026-11-23${clock}` }];
  }
  const [, year = "", month = "", day = ""] = almostDate.exec(text) ?? [];
  if (year === "" || isCalendarDate(text)) {
    return [];
  }
  const padded = `${year}-${month.padStart(2, "0")}-${day.padStart(2, "0")}`;
  const meant = isCalendarDate(padded) ? `write ${padded}` : `there is no such day`;
  return [{ path: ["params", name], text: `found ${text}, expected a date written YYYY-MM-DD: ${meant}` }];
}

/** Makes the problem for a param without a default and without a value. */
export function missingProblem(name: string, type: ParamType): Problem {
  return { path: ["params", name], text: `it has no default; set it with --param ${name}=${exampleOf(type)}` };
}

function expectedOf(text: string, type: ParamType): string | undefined {
  if (type.type === "enum") {
    return type.values.includes(text) ? undefined : `one of ${type.values.join(", ")}${didYouMean(text, type.values)}`;
  }
  if (type.type === "date") {
    return isCalendarDate(text)
      ? undefined
      : `a date such as ${exampleOf(type)}${isRange(text) ? takesRange : (clockProblem(text) ?? "")}`;
  }
  return /^(0|-?[1-9]\d{0,14})$/.test(text) ? undefined : `a whole number such as ${exampleOf(type)}`;
}

function exampleOf(type: ParamType): string {
  return type.type === "enum" ? (type.values[0] ?? "") : type.type === "date" ? "2026-11-23" : "7";
}
