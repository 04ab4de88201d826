/** A date that is computed from a param or from the clock: `ds - 7d`, `start_of_month(today) - 1d`. */
export interface DateExpression {
  /** The name of the param, or `today`, `yesterday`. */
  readonly name: string;
  /** Steps in the order in which they apply. */
  readonly steps: readonly Step[];
}

type Unit = "d" | "w" | "mo" | "y";
type Step = { readonly add: number; readonly unit: Unit } | { readonly startOf: string };

/** The limit of characters of an expression, so that the recursion is bounded. */
const longest = 200;
const sum = /^(.*\S)\s+([+-])\s+(\d{1,5})(d|w|mo|y)$/s;
const start = /^start_of_(week|month|year)\((.*)\)$/s;
const plainName = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * Parses the text between `${` and `}`; undefined: it is not a date expression. A name alone is an expression without
 * steps.
 */
export function parseDateExpression(body: string): DateExpression | undefined {
  const text = body.trim();
  if (text.length > longest) {
    return undefined;
  }
  const [, before = "", sign, count, unit] = sum.exec(text) ?? [];
  if (unit !== undefined) {
    return withStep(before, { add: sign === "-" ? -Number(count) : Number(count), unit: unit as Unit });
  }
  const [, startOf, inner = ""] = start.exec(text) ?? [];
  if (startOf !== undefined) {
    return withStep(inner, { startOf });
  }
  return plainName.test(text) ? { name: text, steps: [] } : undefined;
}

function withStep(inner: string, step: Step): DateExpression | undefined {
  const parsed = parseDateExpression(inner);
  return parsed && { name: parsed.name, steps: [...parsed.steps, step] };
}

/**
 * Applies the steps to a calendar date such as "2026-11-23". Weeks start on Monday. Months and years keep the day of
 * the month, or use the last day of a shorter month: 2026-03-31 - 1mo is 2026-02-28, as in Postgres. undefined: the
 * result is outside the years 1 to 9999.
 */
export function computeDate(date: string, { steps }: DateExpression): string | undefined {
  const [year = 0, month = 1, day = 1] = date.split("-").map(Number);
  const last = steps.reduce(after, utcDay(year, month - 1, day));
  const found = last.getUTCFullYear();
  return found >= 1 && found <= 9999 ? last.toISOString().slice(0, 10) : undefined;
}

function after(date: Date, step: Step): Date {
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

/** Returns a day in UTC. `Date.UTC` alone would read the years 0 to 99 as 1900 to 1999. */
function utcDay(year: number, month: number, day: number): Date {
  const date = new Date(0);
  date.setUTCFullYear(year, month, day);
  return date;
}
