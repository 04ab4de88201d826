import { type Baseline, type CheckOptions, comparedRuns, type RunProfile } from "./run-profile.js";
import type { CheckResult } from "./verdict.js";

const dayMs = 86_400_000;
const weeks = 4;
/** Fewer nights of this weekday say less than the runs before this one. */
const leastWeekdays = 2;
/** The growth of a job is that of the last week's nights, each over the one three weeks before it. Less than 1 % is none. */
const growth = { days: 7, overDays: 21, leastNights: 5, least: 1.01, most: 1.07 };

/** Rows of this run, compared with those that are usual on its weekday. */
export function checkRows(run: RunProfile, baseline: Baseline, { rows }: CheckOptions): CheckResult[] {
  if (baseline.length === 0) {
    return [];
  }
  const ofWeekday = baseline.filter(({ date }) => isWeekdayOf(date, run.date));
  if (ofWeekday.length >= leastWeekdays) {
    return [rowsResult(run, ofWeekday, { rows, compared: "weekday", grown: grownSince(run.date, baseline) })];
  }
  const lately = rowsResult(run, baseline.slice(-comparedRuns), { rows, compared: "last runs" });
  const alone = rowsResult(run, ofWeekday, { rows, compared: "weekday" });
  const isLow = ofWeekday.length > 0 && alone.level === "hold" && alone.limit === rows.min;
  // The smallest recent run may be a Sunday's, so half of a normal Thursday would still pass.
  return isLow && lately.level !== "hold"
    ? [
        {
          ...alone,
          level: "warn",
          formula: oneWeekday(rows.min),
          lowered: `a hold needs ${leastWeekdays} runs of the same weekday in the last ${weeks} weeks`,
        },
      ]
    : [lately];
}

/** The formula when only one earlier run has the same weekday. */
function oneWeekday(min: number): string {
  return `rows / the rows of the only run of the same weekday in the last ${weeks} weeks; a warning below ${min}`;
}

interface Compared {
  readonly rows: CheckOptions["rows"];
  readonly compared: "weekday" | "last runs";
  readonly grown?: Growth | undefined;
}

function rowsResult(run: RunProfile, nights: Baseline, { rows, compared, grown }: Compared): CheckResult {
  const counts = nights.map((before) => before.rows);
  const [lower, most] = compared === "weekday" ? middlesOf(counts) : [Math.min(...counts), Math.max(...counts)];
  // Not more than a night had: after a single rise, the median may be that of the nights since then.
  const least = grown === undefined ? lower : Math.min(lower * grown.factor, Math.max(...counts));
  const isGrown = grown !== undefined && least > lower;
  const few = fewRows(rows.min);
  const isLow = run.rows < few * least;
  const isHeld = run.rows < rows.min * least || run.rows > rows.max * most;
  const usual =
    compared === "weekday"
      ? `the lower or upper median of the same weekday's rows in the last ${weeks} weeks`
      : `the fewest and the most rows of the last ${comparedRuns} runs`;
  return {
    check: "rows",
    column: null,
    level: isHeld ? "hold" : isLow ? "warn" : "pass",
    formula: `rows / ${usual}, from ${rows.min} to ${rows.max}; a warning below ${few}${isGrown ? grownText : ""}`,
    measured: timesUsual(run.rows, isLow ? least : most),
    limit: !isLow ? rows.max : isHeld ? rows.min : few,
    against: null,
    numbers: {
      rows: run.rows,
      ...(run.filtered ? { filtered: run.filtered } : {}),
      least,
      most,
      min: rows.min,
      max: rows.max,
      compared,
      nights: nights.map(({ date, rows: before }) => `${date}: ${before}`).join(", "),
      ...(isGrown ? { lower_median: lower, growth: grown.factor, growth_nights: grown.nights } : {}),
    },
  };
}

/** The growth of a job: what was usual in the last four weeks on average is too little now. */
interface Growth {
  /** The growth in three weeks, such as 1.05. */
  readonly factor: number;
  /** The nights that it comes from, each with its rows and those three weeks before: "2026-11-16: 1200/1100, 2026-11-17: 1250/1160". */
  readonly nights: string;
}

const grownText = `; the lower median is multiplied by growth, up to the most of these rows; growth is the quotient of growth_nights at floor((n - 1) / 3) in ascending order, counted from 0, and at most ${growth.most}`;

/**
 * Returns the growth that five of seven nights of the last week have at least (of five or six, all but one), so that neither
 * chance nor the end of a month is taken for growth. undefined: there is none, or it is not known.
 */
function grownSince(date: string, baseline: Baseline): Growth | undefined {
  const found = baseline
    .filter((night) => daysBetween(night.date, date) <= growth.days)
    .flatMap((night) => {
      const before = baseline.find((other) => daysBetween(other.date, night.date) === growth.overDays);
      return before === undefined || before.rows === 0 ? [] : [{ night, before, factor: night.rows / before.rows }];
    });
  const lower =
    found.map(({ factor }) => factor).toSorted((one, other) => one - other)[Math.floor((found.length - 1) / 3)] ?? 1;
  return found.length < growth.leastNights || lower < growth.least
    ? undefined
    : {
        factor: Math.min(lower, growth.most),
        nights: found.map(({ night, before }) => `${night.date}: ${night.rows}/${before.rows}`).join(", "),
      };
}

/**
 * Fewer rows than this share of the usual ones warn: a third of the way from the limit to the usual number, to a
 * thousandth. 0: the spec allows any number of rows.
 */
function fewRows(min: number): number {
  return min === 0 ? 0 : Math.round((1000 * (1 + 2 * min)) / 3) / 1000;
}

/** A number, or a text where no rows are usual: JSON has no infinite numbers. */
function timesUsual(rows: number, usual: number): number | string {
  return usual > 0 ? rows / usual : rows === 0 ? 1 : "infinitely many";
}

function isWeekdayOf(earlier: string, date: string): boolean {
  const days = daysBetween(earlier, date);
  return days > 0 && days % 7 === 0 && days <= weeks * 7;
}

function daysBetween(earlier: string, date: string): number {
  return Math.round((Date.parse(date) - Date.parse(earlier)) / dayMs);
}

/**
 * Returns the lower and the upper median. If one of two runs was an unusual one, such as at the end of a month, the
 * other is still usual.
 */
function middlesOf(values: readonly number[]): readonly [lower: number, upper: number] {
  const sorted = values.toSorted((one, other) => one - other);
  return [sorted[(sorted.length - 1) >> 1] as number, sorted[sorted.length >> 1] as number];
}

/** Checks the share of rejected rows against its limit; earlier runs do not matter. */
export function checkRejects({ rows, rejected }: RunProfile, { rejects }: CheckOptions): CheckResult[] {
  const share = rejected === 0 ? 0 : rejected / (rows + rejected);
  return [
    {
      check: "rejects",
      column: null,
      level: share > rejects ? "hold" : "pass",
      formula: "rejected / (rows + rejected)",
      measured: share,
      limit: rejects,
      against: null,
      numbers: { rows, rejected },
    },
  ];
}
