import { count, showCount, showDuration, showRate } from "../report.js";
import type { ScoringRate } from "./scoring-rate.js";

const longestBar = 30;
const shortestBar = 5;

/** The line of a progress bar: what does not fit into `columns` is left out, the bar first, then the rate. */
export function barText(rate: ScoringRate, total: number, columns: number): string {
  const share = total === 0 ? 1 : Math.min(1, rate.done / total);
  const percent = `${Math.floor(share * 100)}%`;
  const rows = `${showCount(rate.done)}/${count(total, "row")}`;
  const pace = rate.done === 0 ? [] : [showRate(rate.rowsPerSecond)];
  const left = rate.done === 0 ? [] : [`${showDuration(rate.secondsLeft(total))} left`];
  const fits = (parts: readonly string[]): boolean => parts.join(" | ").length < columns;
  const whole = [percent, rows, ...pace, ...left];
  const parts = [whole, [percent, rows, ...left], [percent, ...left]].find(fits) ?? [percent];
  const text = parts.join(" | ");
  const size = Math.min(longestBar, columns - text.length - 2); // a space, and the last column stays free
  if (size < shortestBar) {
    return text;
  }
  const complete = Math.round(share * size);
  return `${"█".repeat(complete)}${"░".repeat(size - complete)} ${text}`;
}
