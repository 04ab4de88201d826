import type { ColumnProfile } from "../../checks/profiles/column-profile.js";
import { pooledProfile } from "../../checks/verdicts/psi-checks.js";
import type { RunProfile } from "../../checks/verdicts/run-profile.js";
import { count, showCount, showShortDuration } from "../report.js";
import type { RunReview } from "../run-review.js";
import { emptyBars, type EmptyShare, histogram, type Series, sparkline, valueBars } from "./charts.js";
import { type Empty, emptyIn, emptyShare, levelOfRun, type PageColumn, psiBetween, runsBefore } from "./columns.js";
import { type Distribution, distributionOf, medianOf, middleOf } from "./distribution.js";
import { breakable, html, type Html, nothing } from "./html.js";
import { foldedNote } from "./state.js";
import { showDay, showNumber, showPsi, showShare } from "./numbers.js";

/** The number of outputs that are not folded away. Those with the worst results come first. */
const openCards = 12;

/** The number of features that failed or warn and are not folded away. */
const openFeatures = 4;

/**
 * Renders a card for each output, and before them for the features that did not pass: the distribution of its values, over
 * that of the last run that it is compared with.
 */
export function outputCards(columns: readonly PageColumn[], review: RunReview | undefined): Html {
  const last = review?.earlier.at(-1);
  const keyOf = (role: PageColumn["role"]): Html =>
    review === undefined || last === undefined
      ? nothing
      : html`<p class="key"><span class="now">this run</span> <span class="was">${runName(review, last, role)}</span></p>`;
  const outputs = columns.filter(({ role }) => role === "output");
  const features = columns.filter(({ role }) => role === "feature");
  const moved = features.filter(({ level }) => level !== "pass").slice(0, openFeatures);
  const folded = [
    foldedCards(outputs.slice(openCards), "more output"),
    foldedCards(features.slice(moved.length), moved.length === 0 ? "feature" : "more feature"),
  ];
  const first =
    moved.length === 0
      ? nothing
      : html`<section><h2>Features that ${verbOf(moved)}</h2>
${keyOf("feature")}<div class="cards">${moved.map(card)}</div></section>
`;
  return html`${first}<section><h2>Predictions</h2>
${keyOf("output")}${outputs.length === 0 ? html`<p>${review === undefined ? "This attempt made no predictions." : "No predictions."}</p>` : html`<div class="cards">${outputs.slice(0, openCards).map(card)}</div>`}${folded}</section>
`;
}

/** Says why a column has no chart. Nothing for one that has no values: the caption says so. */
function withoutChart(now: ColumnProfile): Html {
  const { rows, nulls, nan } = emptyIn(now);
  if (now.kind === "rows") {
    return html`<p>The values of type ${now.type} are not profiled.</p>`;
  }
  return now.kind === "numbers" && rows > nulls + nan ? html`<p>No value is finite.</p>` : nothing;
}

/** Says what the checks of columns did. */
function verbOf(columns: readonly PageColumn[]): string {
  const levels = new Set(columns.map(({ level }) => level));
  return [...(levels.has("hold") ? ["failed"] : []), ...(levels.has("warn") ? ["warn"] : [])].join(" or ");
}

function foldedCards(columns: readonly PageColumn[], noun: string): Html {
  return columns.length === 0
    ? nothing
    : html`<details><summary>Distributions of ${count(columns.length, noun)}</summary><div class="cards">${columns.map(card)}</div></details>`;
}

function dayOf({ date, runId }: RunProfile): string {
  return date === "" ? runId : showDay(date);
}

/** Names what columns are compared with: an earlier run, its challenger, or a file. */
function runName(review: RunReview, run: RunProfile, role: PageColumn["role"]): string {
  if (review.reference !== undefined) {
    return `the profile ${review.reference.split("/").at(-1)}`;
  }
  const day = `the run of ${dayOf(run)}`;
  const published = review.verdict?.verdict.ofEarlierModel ?? [];
  const others = published.length === 0 ? "" : `; ${published.join(", ")} as published`;
  return role === "output" && wasChallenger(review, run)
    ? `${day}, as predicted by its challenger: this run's model${others}`
    : day;
}

/** Names the same run in a few characters. */
function shortName(review: RunReview, run: RunProfile, { name, role }: Pick<PageColumn, "name" | "role">): string {
  const isPublished = role === "feature" || review.verdict?.verdict.ofEarlierModel?.includes(name) === true;
  return `${dayOf(run)}${!isPublished && wasChallenger(review, run) ? ", challenger" : ""}`;
}

/** Whether the predictions of a run's challenger, which was this run's model, are compared in place of the published ones. */
function wasChallenger({ verdict }: RunReview, { runId }: RunProfile): boolean {
  return verdict?.verdict.asChallenger?.includes(runId) ?? false;
}

function card({ name, now, earlier, level, failing, coarse }: PageColumn): Html {
  const before = earlier.at(-1);
  const found = distributionOf(now, before, failing);
  const empty = emptyShares(now, before);
  const chart =
    found === undefined ? withoutChart(now) : found.kind === "numbers" ? histogram(name, found) : valueBars(found);
  const of = now.kind === "vectors" ? ` (norm, ${now.vectors.maxDimension} dimensions)` : "";
  return html`<figure class="${level}"><h3>${breakable(name)}${of}</h3>${chart}${emptyBars(empty)}<figcaption>${caption(now, found)}</figcaption>${foldedNote("Coarse PSI", coarse)}</figure>`;
}

/** Returns the shares of NULL and of NaN, if the column has any in this run or the earlier one. */
function emptyShares(now: ColumnProfile, before: ColumnProfile | undefined): EmptyShare[] {
  const [rows, was] = [emptyIn(now), before && emptyIn(before)];
  const kinds = [
    { name: "NULL" as const, of: ({ nulls }: Empty) => nulls },
    { name: "NaN" as const, of: ({ nan }: Empty) => nan },
  ];
  return kinds
    .map(({ name, of }) => ({
      name,
      rows: of(rows),
      share: shareIn(of(rows), rows),
      before: was && shareIn(of(was), was),
    }))
    .filter(({ share, before: earlier = 0 }) => share > 0 || earlier > 0);
}

function shareIn(number: number, { rows }: Empty): number {
  return rows === 0 ? 0 : number / rows;
}

/** Returns the counts below a chart. */
function caption(now: ColumnProfile, found: Distribution | undefined): string {
  const { rows, nulls, nan } = emptyIn(now);
  const numbers = found?.kind === "numbers" ? found : undefined;
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
  const sample = now.rows < rows ? [`the chart shows a sample of ${count(now.rows, "row")}`] : [];
  const counted = rows - nulls - nan === 0 && rows > 0 ? "no values" : count(rows - nulls - nan, "value");
  return [...values, counted, ...sample, ...cut].join(", ");
}

function isCut({ range: [low, high], now, before }: Extract<Distribution, { kind: "numbers" }>): boolean {
  return Math.min(now.min, before?.min ?? now.min) < low || Math.max(now.max, before?.max ?? now.max) > high;
}

/** Renders the name of a column, and says if it is a feature. */
function columnName({ name, role }: Pick<PageColumn, "name" | "role">): Html {
  return html`${breakable(name)}${role === "feature" ? html` <small>feature</small>` : nothing}`;
}

/** Renders a number of this run, with the number of an earlier run in small print. */
function pair(now: string, before: string | undefined): Html {
  return html`${now} <span class="before">${before ?? "–"}</span>`;
}

/** The number of columns whose drift is not folded away, unless more of them fail or warn. */
const openDrifts = 12;

/** An earlier run, or several together, that a column is compared with. */
interface Compared {
  readonly name: string;
  readonly column: ColumnProfile | undefined;
}

/** What the PSI of a column compares with; without a PSI, the last run. undefined: the page lacks the run. */
function comparedWith({ name, role, earlier, drift }: PageColumn, review: RunReview): Compared | undefined {
  if (drift?.runsTogether !== undefined) {
    const known = earlier.filter((column) => column !== undefined).slice(-drift.runsTogether);
    const column = known.length === 0 ? undefined : pooledProfile(known);
    return { name: `${drift.runsTogether} runs together`, column };
  }
  const run = drift === undefined ? review.earlier.at(-1) : drift.closest;
  return run && { name: shortName(review, run, { name, role }), column: earlier[review.earlier.indexOf(run)] };
}

/** Renders the columns by PSI against the closest earlier run, the largest PSI first. */
export function driftTable(columns: readonly PageColumn[], review: RunReview): Html {
  const { earlier, reference } = review;
  if (earlier.length === 0) {
    return nothing;
  }
  const ranked = columns.toSorted((one, other) => (other.drift?.psi ?? -1) - (one.drift?.psi ?? -1));
  const lineOf = (column: PageColumn): Html => {
    const { name, role, now, level, drift } = column;
    const compared = comparedWith(column, review);
    const then = compared?.column;
    const psi = drift === undefined ? "–" : showPsi(drift.psi);
    return html`<tr class="${level}"><th>${columnName({ name, role })}</th><td>${reference === undefined ? pair(psi, compared?.name) : psi}</td><td>${pair(middleOf(now) ?? "–", then && (middleOf(then) ?? "–"))}</td><td>${pair(emptyText(now), then && emptyText(then))}</td></tr>`;
  };
  const open = Math.max(openDrifts, ranked.findLastIndex(({ level }) => level !== "pass") + 1);
  const rest = ranked.slice(open);
  const folded =
    rest.length === 0
      ? nothing
      : html`<details><summary>${count(rest.length, "more column")}</summary>${driftRows(rest.map(lineOf))}</details>`;
  const basis =
    reference === undefined
      ? html`the closest earlier run. <span class="before">Small print</span>: the date, median and share of NULL and NaN of that run, or of several runs that the PSI is against together; without a PSI, of the last run.`
      : html`${reference}. <span class="before">Small print</span> shows the median and the share of NULL and NaN there.`;
  return html`<section><h2>Drift by column</h2>
<p>PSI compares the values with those of ${basis}</p>
${driftRows(ranked.slice(0, open).map(lineOf))}${folded}</section>
`;
}

/** The share of NULL and NaN in a column, as a text. */
function emptyText(column: ColumnProfile): string {
  const share = emptyShare(column);
  return share === undefined ? "no rows" : showShare(share);
}

function driftRows(lines: readonly Html[]): Html {
  return html`<div class="scroll"><table class="drift"><thead><tr><th>column</th><td>PSI</td><td>median, or most frequent</td><td>NULL or NaN</td></tr></thead><tbody>${lines}</tbody></table></div>`;
}

/** The number of columns whose charts are not folded away. */
const openColumns = 4;
/** The number of features that failed and have charts. */
const chartedFeatures = 2;

/**
 * Renders small charts of this run and the published runs before it: rows and the time of scoring, and for each output and the
 * features that failed NULLs, the median and the PSI.
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
  const folded =
    rest.length === 0
      ? nothing
      : html`<details><summary>${count(rest.length, "more column")}</summary>${rest}</details>`;
  const counts = { show: showCount, upTo: 1 };
  const rows = small({
    title: "rows",
    values: runs.map((run) => run.rows),
    ...counts,
    level: levelOfRun(review, "rows"),
  });
  const rejected = small({
    title: "rejected",
    values: runs.map((run) => run.rejected),
    ...counts,
    level: levelOfRun(review, "rejects"),
  });
  const times = runs.map(({ runId }) => seconds?.get(runId));
  const duration = small({ title: "duration", values: times, show: showShortDuration, upTo: 1 });
  return html`<section><h2>The last ${runs.length} runs</h2>
<p>From ${dayOf(runs[0] ?? profile)} to ${dayOf(profile)}; the mark is this run: a dot, or a triangle if a check warns and a diamond if one failed. A PSI compares each run with the one before; that of this run is the one of its check.</p>
<div class="history"><h3>all rows</h3>${rows}${rejected}${duration}</div>${shown.slice(0, openColumns)}${folded}</section>
`;
}

function columnHistory({ name, role, now, history, levels, drift }: PageColumn): Html {
  const profiles = [...history, now];
  const each = (of: (column: ColumnProfile) => number | undefined): (number | undefined)[] =>
    profiles.map((column) => (column === undefined ? undefined : of(column)));
  const between = history.map((column, run) => (run === 0 ? undefined : psiBetween(history[run - 1], column)));
  // The number that the mark is about, which the table of drifts has, too.
  const psis = [...between, drift?.psi ?? psiBetween(history.at(-1), now)];
  const charts = [
    small({ title: "NULL/NaN", values: each(emptyShare), show: showShare, upTo: 0.05, level: levels.empty }),
    small({ title: "median", values: each(medianOf), show: showNumber, level: levels.median }),
    small({ title: "PSI", values: psis, show: showPsi, upTo: 0.1, level: levels.psi }),
  ];
  return html`<div class="history"><h3>${columnName({ name, role })}</h3>${charts}</div>`;
}

function small(series: Series): Html {
  const { title, values, show } = series;
  const known = values.filter((value) => value !== undefined);
  if (known.length === 0) {
    return html`<div></div>`; // keeps its place in the grid
  }
  const last = values.at(-1);
  const [low, high] = [show(Math.min(...known)), show(Math.max(...known))];
  const range = low === high ? `always ${low}` : `${low} to ${high}`;
  const { level = "pass" } = series;
  const said = level === "pass" ? nothing : html` <b class="${level}">${level === "hold" ? "failed" : "warns"}</b>`;
  return html`<figure><figcaption>${title} <b>${last === undefined ? "–" : show(last)}</b>${said}</figcaption>${sparkline(series)}<small>${range}</small></figure>`;
}
