import type { Level } from "../../checks/check.js";
import { shownValue } from "../../util/shown-numbers.js";
import { showCount, showRate } from "../report.js";
import type { Timeline } from "../timeline.js";
import type { NumberDistribution, ValueCount, ValueDistribution } from "./columns.js";
import { html, type Html, nothing } from "./html.js";
import { showNumber, showShare, ticksBetween } from "./numbers.js";

/** The area of a chart in its own units, which are pixels on a card of the usual width. */
const area = { left: 34, right: 316, top: 8, bottom: 104 };
const size = { width: 320, height: 122 };

/** Places a value of [low, high] between two coordinates. */
function scale(low: number, high: number, from: number, to: number): (value: number) => number {
  const width = high - low;
  return (value) => (width > 0 ? from + ((value - low) / width) * (to - from) : from);
}

/** A histogram as bars, over the outline of an earlier run's; shares of the values, in percent. */
export function histogram(column: string, { range, now, before }: NumberDistribution): Html {
  const shares = now.bins.map((count) => count / now.total);
  const sharesBefore = before?.bins.map((count) => count / before.total) ?? [];
  const most = Math.max(...shares, ...sharesBefore);
  const x = scale(0, shares.length, area.left, area.right);
  const y = scale(0, most, area.bottom, area.top);
  const columns = shares.flatMap((share, bin) =>
    share === 0
      ? []
      : [`M${fixed(x(bin) + 0.5)} ${area.bottom}V${fixed(y(share))}h${fixed(x(1) - x(0) - 1)}V${area.bottom}z`],
  );
  const outline = sharesBefore.map(
    (share, bin) => `${bin === 0 ? "M" : "L"}${fixed(x(bin))} ${fixed(y(share))}H${fixed(x(bin + 1))}`,
  );
  const was = outline.length === 0 ? nothing : html`<path class="was" d="${outline.join("")}"/>`;
  const label = `histogram of ${column}${before === undefined ? "" : ", and of the run before"}`;
  return html`<svg viewBox="0 0 ${size.width} ${size.height}" role="img" aria-label="${label}">${shareAxis(most, y)}${valueAxis(range)}<path class="now" d="${columns.join("")}"/>${was}</svg>`;
}

function shareAxis(most: number, y: (share: number) => number): Html[] {
  const ticks = ticksBetween(0, most).filter((_, index, all) => all.length <= 4 || index % 2 === 0);
  return ticks.map((tick) => {
    const at = fixed(y(tick));
    return html`<path class="grid" d="M${area.left} ${at}H${area.right}"/><text x="${area.left - 4}" y="${fixed(y(tick) + 3.5)}" text-anchor="end">${showShare(tick)}</text>`;
  });
}

function valueAxis([low, high]: readonly [number, number]): Html[] {
  const x = scale(low, high, area.left, area.right);
  return ticksWithRoom(low, high).map((tick) => {
    const at = x(tick);
    const anchor = at > area.right - 12 ? "end" : at < area.left + 12 ? "start" : "middle";
    return html`<path class="grid" d="M${fixed(at)} ${area.bottom}v4"/><text x="${fixed(at)}" y="${size.height - 3}" text-anchor="${anchor}">${showNumber(tick)}</text>`;
  });
}

/** The width of a digit below the axis, in units of the view box. */
const digitWidth = 6;

/** Round numbers of the axis, as many as there is room for. */
function ticksWithRoom(low: number, high: number): number[] {
  const ticks = ticksBetween(low, high);
  const longest = Math.max(...ticks.map((tick) => showNumber(tick).length)) + 1;
  const most = Math.max(1, Math.floor((area.right - area.left) / (longest * digitWidth)));
  const every = Math.ceil(ticks.length / most);
  return ticks.filter((_, index) => index % every === 0);
}

/** A share of the rows without a value, now and in an earlier run. */
export interface EmptyShare {
  readonly name: "NULL" | "NaN";
  readonly rows: number;
  readonly share: number;
  /** undefined: there is no earlier run with the column. */
  readonly before: number | undefined;
}

/** A bar for each kind of rows without a value. Its length is its share of all rows. */
export function emptyBars(shares: readonly EmptyShare[]): Html {
  const lines = shares.map(({ name, rows, share, before }) => {
    const mark = before === undefined ? nothing : html`<path class="was" d="M${fixed(before * 100)} 0V10"/>`;
    const was = before === undefined ? nothing : html`, <span class="before">before ${showShare(before)}</span>`;
    return html`<dt>${name}</dt><dd>${showShare(share)}${was}</dd><dd>${showCount(rows)}</dd>${bar(share, mark)}`;
  });
  return lines.length === 0 ? nothing : html`<dl class="values">${lines}</dl>`;
}

/** A bar for each value, with its share and count; a mark shows its share in an earlier run. */
export function valueBars({ values, others, total, totalBefore }: ValueDistribution): Html {
  const all = others === undefined ? values : [...values, others];
  const nowOf = ({ now }: ValueCount): number => (total === 0 ? 0 : now / total);
  const beforeOf = ({ before }: ValueCount): number => (totalBefore === 0 ? 0 : before / totalBefore);
  const most = Math.max(...all.map((value) => Math.max(nowOf(value), beforeOf(value))), Number.MIN_VALUE);
  const lines = all.map((value) => {
    const mark =
      totalBefore === 0 ? nothing : html`<path class="was" d="M${fixed((beforeOf(value) / most) * 100)} 0V10"/>`;
    const was = totalBefore === 0 ? nothing : html` <span class="before">${showShare(beforeOf(value))}</span>`;
    return html`<dt>${nameOf(value.name)}</dt><dd>${showShare(nowOf(value))}${was}</dd><dd>${showCount(value.now)}</dd>${bar(nowOf(value) / most, mark)}`;
  });
  return html`<dl class="values">${lines}</dl>`;
}

function bar(length: number, mark = nothing): Html {
  return html`<dd class="bar"><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><path class="now" d="M0 2h${fixed(length * 100)}v6H0z"/>${mark}</svg></dd>`;
}

/** Returns the name of a value. A fraction is rounded, because the float64 text of a float32 has many digits. */
function nameOf(name: string): string {
  const value = Number(name);
  if (name.trim() === "") {
    return name === "" ? "(empty text)" : "(white space)";
  }
  return Number.isFinite(value) && !Number.isInteger(value) ? showNumber(value) : shownValue(name);
}

/** A small chart of one number in several runs. */
export interface Series {
  readonly title: string;
  /** The number in each run, the latest last; undefined: not known. */
  readonly values: readonly (number | undefined)[];
  readonly show: (value: number) => string;
  /** The chart shows 0 to at least this value. Default: the smallest to the largest value. */
  readonly upTo?: number;
  /** The level of the check of this number, which says how the latest run is marked. Default: "pass". */
  readonly level?: Level;
}

/** The marks of a run that did not pass: a triangle and a diamond, which need no colour to be told from the dot and each other. */
const marks = { warn: "m0-4.5 4.5 8h-9z", hold: "m0-5 5 5-5 5-5-5z" };

/** Draws a line through the values of several runs, with a mark for the latest and a gap for a run without the value. */
export function sparkline({ title, values, upTo, level = "pass" }: Series): Html {
  const known = values.filter((value) => value !== undefined);
  const [low, high] = upTo === undefined ? [Math.min(...known), Math.max(...known)] : [0, Math.max(upTo, ...known)];
  const x = scale(0, Math.max(values.length - 1, 1), 4, 116);
  // If all values are equal, the line is in the middle.
  const y = low === high ? (): number => 16 : scale(low, high, 28, 4);
  let isOpen = false;
  const line = values.map((value, run) => {
    const step = value === undefined ? "" : `${isOpen ? "L" : "M"}${fixed(x(run))} ${fixed(y(value))}`;
    isOpen = value !== undefined;
    return step;
  });
  const last = values.at(-1);
  const mark = last === undefined ? nothing : markAt(level, fixed(x(values.length - 1)), fixed(y(last)));
  return html`<svg viewBox="0 0 120 32" role="img" aria-label="${title}"><path class="line" d="${line.join("")}"/>${mark}</svg>`;
}

function markAt(level: Level, x: string, y: string): Html {
  return level === "pass"
    ? html`<circle cx="${x}" cy="${y}" r="3"/>`
    : html`<path class="mark ${level}" d="M${x} ${y}${marks[level]}"/>`;
}

/** Rows per second over time. */
export function throughputChart({ rows, widthMs }: Timeline): Html {
  const rates = rows.map((count) => (count * 1000) / widthMs);
  const highest = Math.max(...rates, 1);
  const x = scale(0, rates.length, 0, 640);
  const y = scale(0, highest, 80, 2);
  const columns = rates.map((rate, step) => `M${fixed(x(step))} 80V${fixed(y(rate))}H${fixed(x(step + 1))}V80z`);
  const seconds = (rows.length * widthMs) / 1000;
  return html`<figure><svg viewBox="0 0 640 80" preserveAspectRatio="none" class="wide" role="img" aria-label="rows a second over time"><path class="now" d="${columns.join("")}"/></svg>
<figcaption>0 to ${showNumber(seconds)} s; the highest step is ${showRate(highest)}</figcaption></figure>`;
}

/** A list of numbers with horizontal bars. */
export function bars(rows: readonly { readonly name: string; readonly value: number }[], unit = ""): Html {
  const highest = Math.max(...rows.map(({ value }) => value), Number.MIN_VALUE);
  const lines = rows.map(({ name, value }) => {
    const shown = `${value.toLocaleString("en-US", { maximumFractionDigits: 3 })}${unit}`;
    return html`<dt>${name}</dt><dd></dd><dd>${shown}</dd>${bar(value / highest)}`;
  });
  return html`<dl class="values">${lines}</dl>`;
}

/** A coordinate with one decimal, as short as it can be. */
function fixed(value: number): string {
  return String(Math.round(value * 10) / 10);
}
