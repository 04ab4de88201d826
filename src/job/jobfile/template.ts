import { isCalendarDate } from "../../run/plan/identity.js";
import { isTimeZone } from "./values.js";

/** One `${name}`, `${name:-default}` or `${name - 7d}`; `$${` stands for a literal `${`. */
const reference = /\$\$\{|\$\{([^}]*)\}?/g;
const referenceBody = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s;

/** @param offset where the reference to the name begins in the text */
type Lookup = (name: string, offset: number) => string | undefined;

/** An undefined name, no reference, no place for a value, `..` inside a path, no date to compute from, or too long. */
export type TemplateFault =
  | { kind: "unset"; name: string }
  | { kind: "malformed"; found: string }
  | { kind: Exclude<SqlPlace, "code">; found: string }
  | { kind: "climbs"; name: string }
  | { kind: "no date" | "out of range"; name: string; found: string }
  | { kind: "long" };

/** The limit of characters of a filled text. It is longer than any path, and too short to fill memory. */
export const filledLimit = 16_384;

/** A placeholder for any value. No path of a spec contains this character. */
export const anyValue = "\0";

const climbs = /(?:^|[/\\])\.\.(?:[/\\]|$)/;

/**
 * A name's own value wins over `:-default`; an empty one counts as unset only with a default. `language`: of the text.
 */
export function fillTemplate(
  text: string,
  lookup: Lookup,
  language: "plain" | "sql" = "plain",
): { text: string } | { fault: TemplateFault } {
  let fault: TemplateFault | undefined;
  const write = language === "sql" ? sqlText : (value: string): string => value;
  let length = text.length;
  const filled = text.replace(reference, (found: string, body: string | undefined, offset: number) => {
    if (found === "$${") {
      return "${";
    }
    const parsed = found.endsWith("}") ? parseReference(body ?? "") : undefined;
    if (parsed === undefined) {
      fault ??= { kind: "malformed", found };
      return "";
    }
    const place = language === "sql" ? sqlPlaceIn(text, offset, offset + found.length) : "code";
    if (place !== "code") {
      fault ??= { kind: place, found };
      return "";
    }
    const { name, fallback, compute } = parsed;
    const given = lookup(name, offset);
    const value = given === undefined ? undefined : compute(given);
    if (typeof value === "object") {
      fault ??= value;
      return "";
    }
    if (fallback !== undefined && (value === undefined || value === "")) {
      return write(fallback);
    }
    if (value === undefined) {
      fault ??= { kind: "unset", name };
      return "";
    }
    // out/dt=${ds} stays below out/; only where a path begins may a value lead elsewhere.
    if (language === "plain" && offset > 0 && climbs.test(value)) {
      fault ??= { kind: "climbs", name };
      return "";
    }
    length += value.length;
    if (length > filledLimit) {
      fault ??= { kind: "long" };
      return "";
    }
    return write(value);
  });
  return fault === undefined ? { text: filled } : { fault };
}

interface Reference {
  readonly name: string;
  readonly fallback?: string | undefined;
  readonly compute: (value: string) => string | TemplateFault;
}

function parseReference(body: string): Reference | undefined {
  const [, name, fallback] = referenceBody.exec(body) ?? [];
  if (name !== undefined) {
    return { name, fallback, compute: (value) => value };
  }
  const date = parseDateExpression(body);
  return date === undefined || date.steps.length === 0
    ? undefined
    : { name: date.name, compute: (value) => dateOrFault(value, date, body) };
}

function dateOrFault(value: string, date: DateExpression, found: string): string | TemplateFault {
  if (value === anyValue) {
    return anyValue;
  }
  const { name } = date;
  return isCalendarDate(value)
    ? (computeDate(value, date) ?? { kind: "out of range", name, found })
    : { kind: "no date", name, found };
}

/** `$${` does not end a dollar quote in the SQL that DuckDB reads. */
function sqlPlaceIn(text: string, start: number, end: number): SqlPlace {
  return sqlPlaceAfter(
    text.slice(0, start).replaceAll("$${", () => "${"),
    text.slice(end),
  );
}

function sqlText(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/**
 * Dates as `yyyy-mm-dd`, the hour from 00 to 23. In UTC if the zone is missing or wrong, which the schema's check
 * names.
 */
export function clockParamsIn(zone: unknown, nowMs: number): Record<string, string> {
  const timeZone = typeof zone === "string" && isTimeZone(zone) ? zone : "UTC";
  const [today = "", hour = ""] =
    timeZone === "UTC" ? new Date(nowMs).toISOString().slice(0, 13).split("T") : hourIn(timeZone, nowMs);
  const [year = 0, month = 1, day = 1] = today.split("-").map(Number);
  // Calendar arithmetic, not minus 24 hours: days around a clock change have 23 or 25.
  const yesterday = new Date(Date.UTC(year, month - 1, day - 1)).toISOString().slice(0, 10);
  return { today, yesterday, hour };
}

/** Takes some 15 ms the first time: Node looks up how dates are written everywhere. */
function hourIn(timeZone: string, ms: number): string[] {
  const digits = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", hourCycle: "h23" } as const;
  return new Intl.DateTimeFormat("en-CA", { timeZone, ...digits }).format(ms).split(", ");
}

/** A date that is computed from a param or from the clock: `ds - 7d`, `start_of_month(today) - 1d`. */
interface DateExpression {
  readonly name: string;
  readonly steps: readonly Step[];
}

type Unit = "d" | "w" | "mo" | "y";
type Step = { readonly add: number; readonly unit: Unit } | { readonly startOf: string };

/** So that the recursion is bounded. */
const longest = 200;
const sum = /^(.*\S)\s+([+-])\s+(\d{1,5})(d|w|mo|y)$/s;
const startOfUnit = /^start_of_(week|month|year)\((.*)\)$/s;
const plainName = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Takes the text between `${` and `}`; a name alone has no steps. undefined: it is not a date expression. */
export function parseDateExpression(body: string): DateExpression | undefined {
  const text = body.trim();
  if (text.length > longest) {
    return undefined;
  }
  const [, before = "", sign, count, unit] = sum.exec(text) ?? [];
  if (unit !== undefined) {
    return withStep(before, { add: sign === "-" ? -Number(count) : Number(count), unit: unit as Unit });
  }
  const [, startOf, inner = ""] = startOfUnit.exec(text) ?? [];
  if (startOf !== undefined) {
    return withStep(inner, { startOf });
  }
  return plainName.test(text) ? { name: text, steps: [] } : undefined;
}

function withStep(inner: string, step: Step): DateExpression | undefined {
  const parsed = parseDateExpression(inner);
  return parsed && { name: parsed.name, steps: [...parsed.steps, step] };
}

/** Weeks start on Monday; 2026-03-31 - 1mo is 2026-02-28, as in Postgres. undefined: outside the years 1 to 9999. */
export function computeDate(date: string, { steps }: DateExpression): string | undefined {
  const [year = 0, month = 1, day = 1] = date.split("-").map(Number);
  const last = steps.reduce(afterStep, utcDay(year, month - 1, day));
  const found = last.getUTCFullYear();
  return found >= 1 && found <= 9999 ? last.toISOString().slice(0, 10) : undefined;
}

function afterStep(date: Date, step: Step): Date {
  const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()];
  if ("startOf" in step) {
    return step.startOf === "year"
      ? utcDay(year, 0, 1)
      : step.startOf === "month"
        ? utcDay(year, month, 1)
        : utcDay(year, month, day - ((date.getUTCDay() + 6) % 7));
  }
  const { add, unit } = step;
  if (unit === "d" || unit === "w") {
    return utcDay(year, month, day + add * (unit === "w" ? 7 : 1));
  }
  const months = month + add * (unit === "y" ? 12 : 1);
  const daysThere = utcDay(year, months + 1, 0).getUTCDate();
  return utcDay(year, months, Math.min(day, daysThere));
}

/** `Date.UTC` alone would read the years 0 to 99 as 1900 to 1999. */
function utcDay(year: number, month: number, day: number): Date {
  const date = new Date(0);
  date.setUTCFullYear(year, month, day);
  return date;
}

/** The context of a position in SQL: `code`, where a literal is allowed, or why none is. */
type SqlPlace = "code" | "quoted" | "commented" | "attached";

/** Text that DuckDB would read differently must not count as `code`. */
const tokens: readonly (readonly [kind: "comment" | "literal" | "name" | "other", pattern: RegExp])[] = [
  ["comment", /--[^\n\r]*[\n\r]/y],
  ["literal", /[eE]'(?:[^'\\]|\\.|'')*'/sy],
  ["literal", /'(?:[^']|'')*'/y],
  ["literal", /\$([A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$.*?\$\1\$/sy],
  // A reference that is filled in before this one.
  ["literal", /\$\{[^}]*\}/y],
  ["name", /"(?:[^"]|"")*"/y],
  ["name", /(?![eE]')[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*/y],
  ["other", /\s+/y],
];

/** Starts of what has no end before the place. */
const open = { comment: /--|\/\*/y, quote: /[eE]?'|"|\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$/y };

/** The place right after `before`, the beginning of an expression, when `after` follows it. */
function sqlPlaceAfter(before: string, after: string): SqlPlace {
  let isAfterLiteral = false;
  for (let at = 0; at < before.length; ) {
    const comment = endOfComment(before, at);
    const token = comment === undefined ? tokenAt(before, at) : { kind: "comment" as const, end: comment };
    if (token === undefined) {
      if (matches(open.comment, before, at)) {
        return "commented";
      }
      if (matches(open.quote, before, at)) {
        return "quoted";
      }
    }
    const end = token?.end ?? at + 1;
    // Literals are continued by the next one after blanks and comments, in the way of the first.
    if (token?.kind !== "comment" && before.slice(at, end).trim() !== "") {
      isAfterLiteral = token?.kind === "literal";
    }
    at = end;
  }
  // `e'…'` is another kind of literal than '…', and `'a''b'` is one.
  const isAttached = /[\w$&\u0080-\uffff]$/.test(before) || isLiteralNext(after);
  return isAfterLiteral || isAttached ? "attached" : "code";
}

/** After blanks and comments, in the way of `'a'` newline `'b'`, which is one literal. */
function isLiteralNext(after: string): boolean {
  let at = 0;
  for (;;) {
    const comment = endOfComment(after, at);
    const blank = comment === undefined ? /(?:\s|--[^\n\r]*(?:[\n\r]|$))+/y : undefined;
    if (comment !== undefined) {
      at = comment;
    } else if (blank !== undefined && matches(blank, after, at)) {
      at = blank.lastIndex;
    } else {
      return after.startsWith("'", at);
    }
  }
}

function tokenAt(text: string, at: number): { kind: (typeof tokens)[number][0]; end: number } | undefined {
  for (const [kind, pattern] of tokens) {
    pattern.lastIndex = at;
    if (pattern.test(text)) {
      return { kind, end: pattern.lastIndex };
    }
  }
  return undefined;
}

function matches(pattern: RegExp, text: string, at: number): boolean {
  pattern.lastIndex = at;
  return pattern.test(text);
}

/** Comments of this kind can be nested. */
function endOfComment(text: string, start: number): number | undefined {
  if (!text.startsWith("/*", start)) {
    return undefined;
  }
  let depth = 1;
  for (let at = start + 2; at < text.length; ) {
    const pair = text.slice(at, at + 2);
    if (pair === "/*" || pair === "*/") {
      depth += pair === "/*" ? 1 : -1;
      at += 2;
      if (depth === 0) {
        return at;
      }
    } else {
      at += 1;
    }
  }
  return undefined;
}
