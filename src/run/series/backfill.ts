import { computeDate } from "../../job/jobfile/template.js";
import { type ExitCode, JobError } from "../../base/errors.js";
import { isCalendarDate } from "../plan/identity.js";
import type { JobSpec } from "../../job/jobfile/job-spec.js";

/** The time between two values of a range. */
export const rangeSteps = ["hour", "day", "week", "month"] as const;
export type RangeStep = (typeof rangeSteps)[number];

/** `A..B` as given for a param. */
export interface DateRange {
  readonly param: string;
  readonly first: string;
  readonly last: string;
}

interface RangeValue {
  /** The value as reports name it: "2026-11-23", "2026-11", "2026-11-23T05". */
  readonly text: string;
  readonly params: Readonly<Record<string, string>>;
}

/** More runs than a year of hours. */
const mostValues = 10_000;
const hourMs = 3_600_000;
const example = "such as --param ds=2026-01-01..2026-01-31";

/** Whether a param is given as a range of dates. */
export function hasRange(given: readonly string[]): boolean {
  return given.some((text) => /^[^=]+=\d{4}-\d{2}[^/]*\.\.\d{4}-\d{2}/.test(text));
}

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

type Form = "date" | "month" | "hour";

const hourText = /^(\d{4}-\d{2}-\d{2})T([01]\d|2[0-3])((?::00(?::00)?)?Z?)$/;
const stepsOf: Readonly<Record<Form, readonly RangeStep[]>> = {
  date: ["day", "hour", "week", "month"],
  month: ["month"],
  hour: ["hour"],
};

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

/** How the run of a value ended, or that it was not started. */
export const valueStatuses = [
  "complete",
  "already_complete",
  "nothing_new",
  "partial",
  "held",
  "discarded",
  "pruned",
  "failed",
  "no_input",
  "stopped",
  "not_started",
] as const;
export type ValueStatus = (typeof valueStatuses)[number];

export interface ValueEnd {
  readonly status: ValueStatus;
  readonly exitCode: ExitCode;
}

/** How the runs of several values follow each other. Runs start in the order of their values. */
export interface RunOrder {
  readonly parallel: number;
  /** Why there are no more at once than one, if more are asked for. */
  readonly why?: string | undefined;
  /** Whether no further run is started after one that ended so. */
  readonly stopsAfter: (end: ValueEnd) => boolean;
}

interface OrderOptions {
  readonly parallel: number;
  readonly stopOnFailure: boolean;
  readonly allowOlder: boolean;
}

/**
 * Decides how the runs of several dates of a job follow each other.
 *
 * Where a later run overwrites rows of earlier ones (Postgres: upsert, replace), runs go one at a time, and a run that
 * fails or is held ends the backfill: if a later date were published first, this one could be published only over
 * newer rows, which takes `allowOlder`. A value without input has no rows to publish, and a discarded or
 * pruned run publishes none. Runs with checks go one at a time as well, because each is compared with the published runs before
 * it.
 */
export function orderOf(
  { output: { postgres }, checks, engine }: Pick<JobSpec, "output" | "checks" | "engine">,
  { parallel, stopOnFailure, allowOlder }: OrderOptions,
): RunOrder {
  const overwrites = postgres !== undefined && postgres.mode !== "append";
  const isInOrder = overwrites && !allowOlder;
  const why = overwrites
    ? `mode ${postgres.mode}: later dates overwrite earlier ones`
    : checks !== undefined
      ? "the checks compare each run with those before it"
      : engine.providers === "auto" || engine.providers.includes("webgpu")
        ? "a process can use webgpu for one run at a time"
        : undefined;
  return {
    parallel: why === undefined ? parallel : 1,
    why: parallel > 1 ? why : undefined,
    stopsAfter: ({ status }) => (status === "failed" || status === "held") && (stopOnFailure || isInOrder),
  };
}

/**
 * Runs the job for several values, in order, some at once. After an end that stops the others, or once `signal`
 * is aborted, no further run is started; those under way end by themselves.
 * @returns an end for each value; undefined: its run was not started
 */
export async function runValues<V, E extends ValueEnd>(
  values: readonly V[],
  { parallel, stopsAfter, signal }: RunOrder & { readonly signal: AbortSignal },
  runOne: (value: V) => Promise<E>,
): Promise<(E | undefined)[]> {
  const ends: (E | undefined)[] = values.map(() => undefined);
  const pending = values.entries();
  let stopped = false;
  const work = async (): Promise<void> => {
    for (const [index, value] of pending) {
      const end = await runOne(value);
      ends[index] = end;
      stopped ||= stopsAfter(end);
      if (stopped || signal.aborted) {
        return;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(parallel, values.length) }, work));
  return ends;
}

/** Exit codes, the worst first: a bug; errors that a person corrects; decisions of a person; transient errors. */
const worstFirst: readonly ExitCode[] = [1, 64, 66, 65, 67, 75];

/** Returns the end with the worst exit code; undefined: all are 0. */
export function worstOf<E extends ValueEnd>(ends: readonly E[]): E | undefined {
  const failed = ends.filter(({ exitCode }) => exitCode !== 0);
  const rank = ({ exitCode }: E): number => {
    const found = worstFirst.indexOf(exitCode);
    return found < 0 ? worstFirst.length : found;
  };
  return failed.toSorted((one, other) => rank(one) - rank(other))[0];
}
