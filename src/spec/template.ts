import { isCalendarDate } from "../plan/identity.js";
import { computeDate, type DateExpression, parseDateExpression } from "./params/date-arithmetic.js";
import { type SqlPlace, sqlPlaceAfter } from "./sql-text.js";

/** One `${name}`, `${name:-default}` or `${name - 7d}`; `$${` stands for a literal `${`. */
const reference = /\$\$\{|\$\{([^}]*)\}?/g;
const referenceBody = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s;

export type Lookup = (name: string) => string | undefined;

/**
 * A fault of a template: an undefined name, text that is not a reference, a place where no value may be, a value with
 * `..` inside a path, a date expression over a value that is not a date, or a result that is too long.
 */
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
 * Fills the references of one string. A name's own value wins over `:-default`; an empty value counts as
 * unset only where a default is given, as in a POSIX shell. `language`: how a value is written in the text.
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
    const given = lookup(name);
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
  /** Computes the text that replaces the reference from the value of the name. */
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

/**
 * Returns the kind of place of the reference [start, end) in the SQL that DuckDB reads, where `$${` does not end a
 * dollar quote.
 */
function sqlPlaceIn(text: string, start: number, end: number): SqlPlace {
  return sqlPlaceAfter(
    text.slice(0, start).replaceAll("$${", () => "${"),
    text.slice(end),
  );
}

/** Returns a value as a text literal of SQL, which cannot end early. */
function sqlText(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/**
 * Returns the values that a spec may use from the clock: calendar dates as `yyyy-mm-dd`, and the hour from 00 to 23, in
 * `timeZone`.
 */
function clockParams(nowMs: number, timeZone: string): { today: string; yesterday: string; hour: string } {
  const [today = "", hour = ""] = timeZone === "UTC" ? isoHour(nowMs) : hourIn(timeZone, nowMs);
  const [year = 0, month = 1, day = 1] = today.split("-").map(Number);
  // Calendar arithmetic, not minus 24 hours: days around a clock change have 23 or 25.
  const yesterday = new Date(Date.UTC(year, month - 1, day - 1)).toISOString().slice(0, 10);
  return { today, yesterday, hour };
}

/** The params from the clock in the time zone of a spec; in UTC if it has none, or a wrong one, which the check of the schema names. */
export function clockParamsIn(zone: unknown, nowMs: number): Record<string, string> {
  try {
    return clockParams(nowMs, typeof zone === "string" ? zone : "UTC");
  } catch {
    return clockParams(nowMs, "UTC");
  }
}

function isoHour(ms: number): string[] {
  return new Date(ms).toISOString().slice(0, 13).split("T");
}

/** Takes some 15 ms the first time: Node looks up how dates are written everywhere. */
function hourIn(timeZone: string, ms: number): string[] {
  const digits = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", hourCycle: "h23" } as const;
  return new Intl.DateTimeFormat("en-CA", { timeZone, ...digits }).format(ms).split(", ");
}
