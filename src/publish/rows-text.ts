import type { CheckResult } from "../checks/verdicts/verdict.js";
import { digitsApart, percent, shown, withSeparators } from "./shown-numbers.js";

/**
 * What the check `rows` has found, with the limit as the spec has it: "4,426 rows, 57.1% of 7,751, the fewest of the last 8
 * runs (rows.min: 60%)". Of too few rows, it says how many are filtered out: that may be the cause.
 */
export function rowsFinding({ measured, limit, numbers }: CheckResult): string {
  const { rows = "?", least = "?", most = "?", max, filtered } = numbers;
  const isMany = typeof measured !== "number" || (measured >= 1 && limit === max);
  const usual = isMany ? most : least;
  const whose = usualText(numbers, isMany);
  const end = ` (${limitText(limit, numbers, isMany)})`;
  if (typeof measured !== "number") {
    return `${rowsText(rows)}, ${whose} had ${usualNumber(usual)}${end}`;
  }
  const share = percent(measured, digitsApart(measured, limit, percent));
  const left = isMany || filtered === undefined ? "" : ` (${withSeparators(filtered)} filtered out by input.where)`;
  return `${rowsText(rows)}${left}, ${share} of ${usualNumber(usual)}, ${whose}${end}`;
}

/** "4,426 rows", "1 row". */
export function rowsText(rows: number | string): string {
  return `${withSeparators(rows)} ${rows === 1 ? "row" : "rows"}`;
}

/** Fewer rows are shown with a fraction: with growth, the usual number is no whole one. */
const manyRows = 100;

function usualNumber(usual: number | string): string {
  return typeof usual === "number" && usual < manyRows
    ? shown(usual)
    : withSeparators(typeof usual === "number" ? Math.round(usual) : usual);
}

/** Says what the usual number of rows is: "the fewest of the last 8 runs", "the median of 3 Mondays". */
function usualText(
  { compared, nights, lower_median: lower, ...numbers }: CheckResult["numbers"],
  isMany: boolean,
): string {
  const { least, most } = numbers;
  const before = String(nights ?? "").split(", ");
  const runs = before.length;
  if (compared === "weekday") {
    if (runs === 1) {
      return `those of ${before[0]?.slice(0, 10)}, the only ${weekdayOf(before[0])} of the last 4 weeks`;
    }
    const half = (lower ?? least) === most ? "" : isMany ? "upper " : "lower ";
    const grown =
      lower === undefined || isMany
        ? ""
        : ` (${withSeparators(lower)}) plus ${percent(Number(least) / Number(lower) - 1)} growth`;
    return `the ${half}median of ${runs} ${weekdayOf(before[0])}s${grown}`;
  }
  return runs === 1 ? "the last run" : `the ${isMany ? "most" : "fewest"} of the last ${runs} runs`;
}

const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/** The weekday of a night such as "2026-11-23: 1000". */
function weekdayOf(night = ""): string {
  return weekdays[new Date(night.slice(0, 10)).getUTCDay()] ?? "night";
}

/** The limit by its key in the spec. */
function limitText(limit: number | string, { min = "?", max = "?" }: CheckResult["numbers"], isMany: boolean): string {
  return isMany
    ? `rows.max: ${percent(max)}`
    : `${limit === min ? "" : `a warning below ${percent(limit)}; `}rows.min: ${percent(min)}`;
}
