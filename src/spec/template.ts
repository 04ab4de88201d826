import { type SqlPlace, sqlPlaceAfter } from "./sql-text.js";

/** One `${name}` or `${name:-default}`; `$${` stands for a literal `${`. */
const reference = /\$\$\{|\$\{([^}]*)\}?/g;
const referenceBody = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s;

export type Lookup = (name: string) => string | undefined;

/**
 * What is wrong with a template: a name that nothing defines, text that is no reference, no place for a value, a
 * value with `..` in the middle of a path, or values that make a small file large.
 */
export type TemplateFault =
  | { kind: "unset"; name: string }
  | { kind: "malformed"; found: string }
  | { kind: Exclude<SqlPlace, "code">; found: string }
  | { kind: "climbs"; name: string }
  | { kind: "long" };

/** Characters that a filled text may have: longer than any path, and nothing that could fill memory. */
export const filledLimit = 16_384;

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
    const parts = found.endsWith("}") ? referenceBody.exec(body ?? "") : null;
    if (parts === null) {
      fault ??= { kind: "malformed", found };
      return "";
    }
    const place = language === "sql" ? sqlPlaceIn(text, offset, offset + found.length) : "code";
    if (place !== "code") {
      fault ??= { kind: place, found };
      return "";
    }
    const [, name = "", fallback] = parts;
    const value = lookup(name);
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

/** Of the reference [start, end), in the text as DuckDB will read it: `$${` is no end of a dollar quote there. */
function sqlPlaceIn(text: string, start: number, end: number): SqlPlace {
  return sqlPlaceAfter(
    text.slice(0, start).replaceAll("$${", () => "${"),
    text.slice(end),
  );
}

/** A text literal: whatever a value holds, it stays a value. */
function sqlText(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/** The calendar dates that a spec may name, as `yyyy-mm-dd` in `timeZone`. */
export function clockParams(nowMs: number, timeZone: string): { today: string; yesterday: string } {
  const today = timeZone === "UTC" ? isoDate(nowMs) : dateIn(timeZone, nowMs);
  const [year = 0, month = 1, day = 1] = today.split("-").map(Number);
  // Calendar arithmetic, not minus 24 hours: days around a clock change have 23 or 25.
  return { today, yesterday: isoDate(Date.UTC(year, month - 1, day - 1)) };
}

function isoDate(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}

/** Takes some 15 ms the first time: Node looks up how dates are written everywhere. */
function dateIn(timeZone: string, ms: number): string {
  return new Intl.DateTimeFormat("en-CA", { timeZone, year: "numeric", month: "2-digit", day: "2-digit" }).format(ms);
}
