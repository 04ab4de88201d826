import { isCalendarDate } from "../plan/series.js";
import { computeDate } from "../spec/template.js";
import { JobError } from "../util/errors.js";

/** The time between two values of a range. */
export const rangeSteps = ["hour", "day", "week", "month"] as const;
export type RangeStep = (typeof rangeSteps)[number];

/** `A..B` as given for a param. */
export interface DateRange {
  /** The name of the param. */
  readonly param: string;
  readonly first: string;
  readonly last: string;
}

/** One value of a range. */
export interface RangeValue {
  /** The value as reports name it: "2026-11-23", "2026-11", "2026-11-23T05". */
  readonly text: string;
  /** The params that it sets. */
  readonly params: Readonly<Record<string, string>>;
}

/** More runs than a year of hours. */
const mostValues = 10_000;
const hourMs = 3_600_000;
const example = "such as --param ds=2026-01-01..2026-01-31";

/**
 * Finds the param that is given as a range.
 * @param given `name=value` each, as on the command line
 * @throws JobError USAGE if there is none, or more than one
 */
export function findRange(given: readonly string[]): { readonly range: DateRange; readonly others: readonly string[] } {
  const found = given.flatMap((text) => {
    const [, param, first, last] = /^([^=]+)=([^/]*[^./])\.\.([^./][^/]*)$/.exec(text) ?? [];
    return param === undefined || first === undefined || last === undefined ? [] : [{ text, param, first, last }];
  });
  const [one, other] = found;
  if (one === undefined) {
    throw new JobError("USAGE", "reading --param: no param is given a range of dates", { hint: example });
  }
  if (other !== undefined) {
    throw new JobError("USAGE", `reading --param: both ${one.param} and ${other.param} are given a range`, {
      hint: "give one param a range; run the command once for each value of the other",
    });
  }
  const { text, ...range } = one;
  return { range, others: given.filter((param) => param !== text) };
}

/** How the values of a range are written. */
type Form = "date" | "month" | "hour";

const hourText = /^(\d{4}-\d{2}-\d{2})T([01]\d|2[0-3])((?::00(?::00)?)?Z?)$/;
const stepsOf: Readonly<Record<Form, readonly RangeStep[]>> = {
  date: ["day", "hour", "week", "month"],
  month: ["month"],
  hour: ["hour"],
};

/** Returns how both ends of a range are written. @throws JobError USAGE for a range that is not one of dates */
function readForm({ param, first, last }: DateRange): Form {
  const [form, other] = [formOf(first), formOf(last)];
  if (form === undefined || other === undefined) {
    const wrong = form === undefined ? first : last;
    throw new JobError("USAGE", `reading --param ${param}=${first}..${last}: ${wrong} is not a date`, {
      hint: `${example}, ${param}=2026-01..2026-12 or ${param}=2026-01-01T00..2026-01-01T23`,
    });
  }
  if (form !== other || (form === "hour" && hourText.exec(first)?.[3] !== hourText.exec(last)?.[3])) {
    throw new JobError("USAGE", `reading --param ${param}=${first}..${last}: its ends are written differently`, {
      hint: "write both as dates, both as months or both as hours",
    });
  }
  return form;
}

function formOf(text: string): Form | undefined {
  const [, date] = hourText.exec(text) ?? [];
  return isCalendarDate(text)
    ? "date"
    : isCalendarDate(`${text}-01`)
      ? "month"
      : date !== undefined && isCalendarDate(date)
        ? "hour"
        : undefined;
}

/** Returns the step of a range. @throws JobError USAGE if the range cannot have the step that is asked for */
export function stepOf(range: DateRange, asked: RangeStep | undefined): RangeStep {
  const [usual = "day", ...more] = stepsOf[readForm(range)];
  if (asked !== undefined && ![usual, ...more].includes(asked)) {
    throw new JobError("USAGE", `reading --step ${asked}: the values of ${range.param} are ${usual}s`, {
      hint: `leave --step out, or give whole dates, ${example}`,
    });
  }
  return asked ?? usual;
}

/**
 * Lists the values of a range from its first to its last, in order. Each is the first value plus so many steps; a month
 * after January 31 is the last day of February. Hours are those of UTC: each day has 24.
 * @param hourParam the param that takes the hour, "00" to "23", in addition to a date; undefined: the range's own param takes
 * date and hour
 * @throws JobError USAGE for a range that is empty, too long or not one of dates
 */
export function rangeValues(range: DateRange, step: RangeStep, hourParam?: string): RangeValue[] {
  const { param, first, last } = range;
  const texts = step === "hour" ? hoursOf(range) : datesOf(range, step);
  if (texts.length === 0) {
    throw new JobError("USAGE", `reading --param ${param}=${first}..${last}: it ends before it begins`, {
      hint: "write the earlier value first",
    });
  }
  return texts.map((text) => {
    const [date = "", hour = ""] = text.split("T");
    const isApart = step === "hour" && hourParam !== undefined && hourParam !== param;
    return { text, params: isApart ? { [param]: date, [hourParam]: hour } : { [param]: text } };
  });
}

function datesOf(range: DateRange, step: Exclude<RangeStep, "hour">): string[] {
  const isMonths = readForm(range) === "month";
  const [first, last] = isMonths ? [`${range.first}-01`, `${range.last}-01`] : [range.first, range.last];
  const unit = { day: "d", week: "w", month: "mo" } as const;
  const texts: string[] = [];
  for (let add = 0; ; add += 1) {
    const date = computeDate(first, { name: "", steps: [{ add, unit: unit[step] }] });
    if (date === undefined || date > last) {
      return texts;
    }
    refuseTooMany(range, texts.push(isMonths ? date.slice(0, 7) : date));
  }
}

function hoursOf(range: DateRange): string[] {
  const [, , , suffix = ""] = hourText.exec(range.first) ?? [];
  const isDates = readForm(range) === "date";
  const from = hourMsOf(isDates ? `${range.first}T00` : range.first);
  const to = hourMsOf(isDates ? `${range.last}T23` : range.last);
  const texts: string[] = [];
  for (let ms = from; ms <= to; ms += hourMs) {
    refuseTooMany(range, texts.push(`${new Date(ms).toISOString().slice(0, 13)}${suffix}`));
  }
  return texts;
}

function hourMsOf(text: string): number {
  return Date.parse(`${text.slice(0, 13)}:00:00Z`);
}

function refuseTooMany({ param, first, last }: DateRange, values: number): void {
  if (values > mostValues) {
    throw new JobError("USAGE", `reading --param ${param}=${first}..${last}: it has more than ${mostValues} values`, {
      hint: "give a shorter range, or a longer --step",
    });
  }
}
