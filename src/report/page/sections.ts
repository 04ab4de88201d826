import { type Measures, modelNames } from "../../checks/agreement.js";
import type { Level } from "../../checks/check.js";
import { type ColumnProfile, emptyShare, quantileOf } from "../../checks/profile/column.js";
import type { RunProfile } from "../../checks/profile/run-profile.js";
import {
  showCount,
  showRate,
  showShortDuration,
  shownValue,
  rangeText,
  percent,
  rounded,
  count,
} from "../../base/shown-numbers.js";
import { agreementLine, comparedRows, differentRows, flipRows } from "../agreement.js";
import type { RunReview, Timeline } from "../attempt-record.js";
import {
  type Distribution,
  type NumberDistribution,
  type PageColumn,
  type ValueCount,
  type ValueDistribution,
  distributionOf,
  levelOfRun,
  middleOf,
  runsBefore,
  usualMiddle,
} from "./columns.js";
import { type Html, breakable, folded, html, nothing, showDay, showNumber, ticksBetween } from "./html.js";

/** The number of outputs that are not folded away. Those with the worst results come first. */
const openCards = 12;

const openFeatures = 4;

/**
 * Renders a card for each output, and before them for the features that did not pass: the distribution of its values, over
 * that of the night that the check found nearest.
 */
export function outputCards(columns: readonly PageColumn[], review: RunReview | undefined): Html {
  const key =
    review === undefined || review.earlier.length === 0
      ? nothing
      : html`<p class="key"><span class="now">this run</span> <span class="was">${review.reference === undefined ? "the nearest earlier night" : `the profile ${review.reference.split("/").at(-1)}`}</span></p>`;
  const outputs = columns.filter(({ role }) => role === "output");
  const features = columns.filter(({ role }) => role === "feature");
  const moved = features.filter(({ level }) => level !== "pass").slice(0, openFeatures);
  const hidden = [
    foldedCards(outputs.slice(openCards), "more output"),
    foldedCards(features.slice(moved.length), moved.length === 0 ? "feature" : "more feature"),
  ];
  const first =
    moved.length === 0
      ? nothing
      : html`<section><h2>Features that ${verbOf(moved)}</h2>
${key}<div class="cards">${moved.map(card)}</div></section>
`;
  return html`${first}<section><h2>Predictions</h2>
${key}${outputs.length === 0 ? html`<p>${review === undefined ? "This attempt made no predictions." : "No predictions."}</p>` : html`<div class="cards">${outputs.slice(0, openCards).map(card)}</div>`}${hidden}</section>
`;
}

function verbOf(columns: readonly PageColumn[]): string {
  const levels = new Set(columns.map(({ level }) => level));
  return [...(levels.has("hold") ? ["failed"] : []), ...(levels.has("warn") ? ["warn"] : [])].join(" or ");
}

function foldedCards(columns: readonly PageColumn[], noun: string): Html {
  const title = `Distributions of ${count(columns.length, noun)}`;
  return columns.length === 0 ? nothing : folded(title, html`<div class="cards">${columns.map(card)}</div>`);
}

function dayOf({ date, runId }: RunProfile): string {
  return date === "" ? runId : showDay(date);
}

function card(column: PageColumn): Html {
  const { name, now, nearest, level } = column;
  const shown = distributionOf(column);
  const chart =
    shown?.kind === "numbers"
      ? histogram(name, shown)
      : shown !== undefined
        ? valueBars(shown)
        : now.kind === "rows"
          ? html`<p>The values of type ${now.type} are not profiled.</p>`
          : nothing; // it has no values: the caption says so
  const of = now.kind === "vectors" ? ` (norm, ${now.dimensions[1]} dimensions)` : "";
  const night = nearest === undefined ? [] : [`outline: ${dayOf(nearest.run)}`];
  return html`<figure class="${level}"><h3>${breakable(name)}${of}</h3>${chart}${emptyBars(emptyShares(now, nearest?.column))}<figcaption>${[caption(now, shown), ...night].join("; ")}</figcaption></figure>`;
}

function shareIn(rows: number, column: ColumnProfile): number {
  return column.rows === 0 ? 0 : rows / column.rows;
}

function emptyShares(now: ColumnProfile, before: ColumnProfile | undefined): EmptyShare[] {
  const kinds = [
    { name: "NULL" as const, of: ({ nulls }: ColumnProfile) => nulls },
    { name: "NaN" as const, of: (column: ColumnProfile) => (column.kind === "numbers" ? column.nan : 0) },
  ];
  return kinds
    .map(({ name, of }) => ({
      name,
      rows: of(now),
      share: shareIn(of(now), now),
      before: before && shareIn(of(before), before),
    }))
    .filter(({ share, before: earlier = 0 }) => share > 0 || earlier > 0);
}

function caption(now: ColumnProfile, shown: Distribution | undefined): string {
  const numbers = shown?.kind === "numbers" ? shown : undefined;
  const values =
    numbers === undefined
      ? []
      : numbers.now.min === numbers.now.max
        ? [`always ${showNumber(numbers.now.min)}`]
        : [
            `${showNumber(numbers.now.min)} to ${showNumber(numbers.now.max)}`,
            `mean ${showNumber(numbers.now.mean)}`,
            ...(Number.isNaN(numbers.now.deviation) ? [] : [`standard deviation ${showNumber(numbers.now.deviation)}`]),
          ];
  const cut =
    numbers !== undefined && isCut(numbers)
      ? ["the first and the last bar include all values outside of the axis"]
      : [];
  const counted = shown === undefined && now.kind !== "rows" ? "no values" : count(now.rows, "row");
  return [...values, counted, ...cut].join(", ");
}

function isCut({ range: [low, high], now, before }: Extract<Distribution, { kind: "numbers" }>): boolean {
  return Math.min(now.min, before?.min ?? now.min) < low || Math.max(now.max, before?.max ?? now.max) > high;
}

function columnName({ name, role }: Pick<PageColumn, "name" | "role">): Html {
  return html`${breakable(name)}${role === "feature" ? html` <small>feature</small>` : nothing}`;
}

function pair(now: string, before: string | undefined): Html {
  return html`${now} <span class="before">${before ?? "–"}</span>`;
}

const openRows = 12;

/** Renders the columns by how far they are from the nearest earlier night, the farthest first. */
export function driftTable(columns: readonly PageColumn[], review: RunReview): Html {
  const { earlier, reference } = review;
  if (earlier.length === 0) {
    return nothing;
  }
  const ranked = columns.toSorted((left, right) => (right.times ?? -1) - (left.times ?? -1));
  const open = Math.max(openRows, ranked.findLastIndex(({ level }) => level !== "pass") + 1);
  const rest = ranked.slice(open);
  const more = rest.length === 0 ? nothing : folded(count(rest.length, "more column"), driftRows(rest.map(lineOf)));
  const basis =
    reference === undefined ? count(earlier.length, "earlier night") : `the profile ${reference.split("/").at(-1)}`;
  return html`<section><h2>Tonight beside the usual</h2>
<p>How far the values of a column are from those of the nearest night, in percent of what is allowed: above 100% a column is suspicious. <span class="before">Small print</span>: ${basis}.</p>
${driftRows(ranked.slice(0, open).map(lineOf))}${more}</section>
`;
}

function lineOf({ name, role, now, level, times, earlier }: PageColumn): Html {
  const shares = earlier.flatMap((column) => emptyShare(column) ?? []);
  const far = times === undefined ? "–" : `${Number((times * 100).toPrecision(2))}%`;
  return html`<tr class="${level}"><th>${columnName({ name, role })}</th><td>${far}</td><td>${pair(middleOf(now) ?? "–", usualMiddle(earlier))}</td><td>${pair(emptyText(now), shares.length === 0 ? undefined : rangeText(shares, percent))}</td></tr>`;
}

function emptyText(column: ColumnProfile): string {
  const share = emptyShare(column);
  return share === undefined ? "no rows" : percent(share);
}

function driftRows(lines: readonly Html[]): Html {
  return html`<div class="scroll"><table class="drift"><thead><tr><th>column</th><td>how far</td><td>median, or most frequent</td><td>NULL or NaN</td></tr></thead><tbody>${lines}</tbody></table></div>`;
}

const openColumns = 4;
const chartedFeatures = 2;

/**
 * Renders small charts of this run and the published runs before it: rows and the time of scoring, and for each output and the
 * features that failed NULLs and two quantiles.
 */
export function historyCharts(columns: readonly PageColumn[], review: RunReview): Html {
  const { profile, seconds } = review;
  const runs = [...runsBefore(review), profile];
  if (runs.length < 2) {
    return nothing;
  }
  const features = columns
    .filter(({ role, level }) => role === "feature" && level === "hold")
    .slice(0, chartedFeatures);
  const outputs = columns.filter(({ role }) => role === "output");
  const shown = [...features, ...outputs].map(columnHistory);
  const rest = shown.slice(openColumns);
  const more = rest.length === 0 ? nothing : folded(count(rest.length, "more column"), rest);
  const charts = [
    small(runs, "rows", (run) => run.rows, showCount, { upTo: 1, level: levelOfRun(review, "rows") }),
    small(runs, "rejected", (run) => run.rejected, showCount, { upTo: 1, level: levelOfRun(review, "rejects") }),
    small(runs, "duration", ({ runId }) => seconds?.get(runId), showShortDuration, { upTo: 1 }),
  ];
  return html`<section><h2>The last ${runs.length} runs</h2>
<p>From ${dayOf(runs[0] ?? profile)} to ${dayOf(profile)}; the mark is this run: a dot, or a triangle if a check warns and a diamond if one failed.</p>
<div class="history"><h3>all rows</h3>${charts}</div>${shown.slice(0, openColumns)}${more}</section>
`;
}

function columnHistory({ name, role, now, history, level }: PageColumn): Html {
  const profiles = [...history, now];
  const charts = [
    small(profiles, "NULL/NaN", (column) => column && emptyShare(column), percent, { upTo: 0.05 }),
    small(profiles, "median", (column) => column && quantileOf(column, 0.5), showNumber, { level }),
    small(profiles, "p90", (column) => column && quantileOf(column, 0.9), showNumber),
  ];
  return html`<div class="history"><h3>${columnName({ name, role })}</h3>${charts}</div>`;
}

/** @param runs the latest last @param valueOf the number of a run; undefined: not known */
function small<T>(
  runs: readonly T[],
  title: string,
  valueOf: (run: T) => number | undefined,
  show: (value: number) => string,
  { upTo, level = "pass" }: Scale = {},
): Html {
  const values = runs.map(valueOf);
  const known = values.filter((value) => value !== undefined);
  if (known.length === 0) {
    return html`<div></div>`; // keeps its place in the grid
  }
  const last = values.at(-1);
  const said = level === "pass" ? nothing : html` <b class="${level}">${level === "hold" ? "failed" : "warns"}</b>`;
  return html`<figure><figcaption>${title} <b>${last === undefined ? "–" : show(last)}</b>${said}</figcaption>${sparkline(title, values, { upTo, level })}<small>${rangeText(known, show)}</small></figure>`;
}

/** How a second model agrees with the predictions; nothing if the run has none. */
export function comparisonSection(review: RunReview | undefined): Html {
  const result = review?.comparison;
  if (result === undefined) {
    return nothing;
  }
  const { model, place, columns, apart, tolerance } = result;
  const outputs = columns.map(([name, measures]) => output(name, measures, tolerance));
  const rest = apart.map(({ name, reason }) => html`<p>${name}: not compared, ${reason}.</p>`);
  return html`<section><h2>The ${modelNames[1]}</h2>
<p>${model}: ${comparedRows(result)}. Its predictions are not published; they are in ${place}.</p>
${outputs}${rest}</section>
`;
}

function output(name: string, measures: Measures, tolerance: number): Html {
  const flips = flipRows(measures);
  const pairs = flips.length === 0 ? nothing : htmlTable([...modelNames, "rows"], flips);
  const { title, head, rows } = differentRows(measures, modelNames);
  const different = rows.length === 0 ? nothing : folded(`${title}: ${rows.length}`, htmlTable(head, rows));
  return html`<div class="compared"><h3>${name}</h3>
<p>${agreementLine(measures, tolerance)}.</p>${pairs}${different}</div>
`;
}

export function htmlTable([first = "", ...heads]: readonly string[], rows: readonly (readonly string[])[]): Html {
  const lines = rows.map(
    ([name = "", ...cells]) => html`<tr><th>${name}</th>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`,
  );
  return html`<div class="scroll"><table class="rows"><thead><tr><th>${first}</th>${heads.map((head) => html`<td>${head}</td>`)}</tr></thead><tbody>${lines}</tbody></table></div>`;
}

/** The area of a chart in its own units, which are pixels on a card of the usual width. */
const area = { left: 34, right: 316, top: 8, bottom: 104 };
const size = { width: 320, height: 122 };

function scale(low: number, high: number, from: number, to: number): (value: number) => number {
  const width = high - low;
  return (value) => (width > 0 ? from + ((value - low) / width) * (to - from) : from);
}

/** Shares of the values, in percent. */
function histogram(column: string, { range, now, before }: NumberDistribution): Html {
  const shares = now.bins.map((rows) => rows / now.total);
  const sharesBefore = before?.bins.map((rows) => rows / before.total) ?? [];
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
    return html`<path class="grid" d="M${area.left} ${at}H${area.right}"/><text x="${area.left - 4}" y="${fixed(y(tick) + 3.5)}" text-anchor="end">${percent(tick)}</text>`;
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

const digitWidth = 6;

function ticksWithRoom(low: number, high: number): number[] {
  const ticks = ticksBetween(low, high);
  const longest = Math.max(...ticks.map((tick) => showNumber(tick).length)) + 1;
  const most = Math.max(1, Math.floor((area.right - area.left) / (longest * digitWidth)));
  const every = Math.ceil(ticks.length / most);
  return ticks.filter((_, index) => index % every === 0);
}

interface EmptyShare {
  readonly name: "NULL" | "NaN";
  readonly rows: number;
  readonly share: number;
  /** undefined: there is no earlier run with the column. */
  readonly before: number | undefined;
}

function emptyBars(shares: readonly EmptyShare[]): Html {
  const lines = shares.map(({ name, rows, share, before }) => {
    const mark = before === undefined ? nothing : html`<path class="was" d="M${fixed(before * 100)} 0V10"/>`;
    const was = before === undefined ? nothing : html`, <span class="before">before ${percent(before)}</span>`;
    return html`<dt>${name}</dt><dd>${percent(share)}${was}</dd><dd>${showCount(rows)}</dd>${bar(share, mark)}`;
  });
  return lines.length === 0 ? nothing : html`<dl class="values">${lines}</dl>`;
}

/** A bar for each value, with its share and count; a mark shows its share in an earlier run. @public so that tests reach it */
export function valueBars({ values, others, total, totalBefore }: ValueDistribution): Html {
  const all = others === undefined ? values : [...values, others];
  const nowOf = ({ now }: ValueCount): number => (total === 0 ? 0 : now / total);
  const beforeOf = ({ before }: ValueCount): number => (totalBefore === 0 ? 0 : before / totalBefore);
  const most = Math.max(...all.map((value) => Math.max(nowOf(value), beforeOf(value))), Number.MIN_VALUE);
  const lines = all.map((value) => {
    const mark =
      totalBefore === 0 ? nothing : html`<path class="was" d="M${fixed((beforeOf(value) / most) * 100)} 0V10"/>`;
    const was = totalBefore === 0 ? nothing : html` <span class="before">${percent(beforeOf(value))}</span>`;
    return html`<dt>${nameOf(value.name)}</dt><dd>${percent(nowOf(value))}${was}</dd><dd>${showCount(value.now)}</dd>${bar(nowOf(value) / most, mark)}`;
  });
  return html`<dl class="values">${lines}</dl>`;
}

function bar(length: number, mark = nothing): Html {
  return html`<dd class="bar"><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><path class="now" d="M0 2h${fixed(length * 100)}v6H0z"/>${mark}</svg></dd>`;
}

/** A fraction is rounded, because the float64 text of a float32 has many digits. */
function nameOf(name: string): string {
  const value = Number(name);
  if (name.trim() === "") {
    return name === "" ? "(empty text)" : "(white space)";
  }
  return Number.isFinite(value) && !Number.isInteger(value) ? showNumber(value) : shownValue(name);
}

interface Scale {
  /** The chart shows 0 to at least this value. Default: the smallest to the largest value. */
  readonly upTo?: number | undefined;
  /** The level of the check of this number, which says how the latest run is marked. Default: "pass". */
  readonly level?: Level;
}

/** The marks of a run that did not pass: a triangle and a diamond, which need no colour to be told from the dot and each other. */
const marks = { warn: "m0-4.5 4.5 8h-9z", hold: "m0-5 5 5-5 5-5-5z" };

/** A mark for the latest run, and a gap for a run without the value. */
function sparkline(title: string, values: readonly (number | undefined)[], { upTo, level = "pass" }: Scale): Html {
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
  const rates = rows.map((done) => (done * 1000) / widthMs);
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
    return html`<dt>${name}</dt><dd></dd><dd>${showCount(rounded(value))}${unit}</dd>${bar(value / highest)}`;
  });
  return html`<dl class="values">${lines}</dl>`;
}

function fixed(value: number): string {
  return String(Math.round(value * 10) / 10);
}
