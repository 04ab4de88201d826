import { html, type Html } from "./html.js";
import { showCount, showRate } from "./report.js";
import type { ScoreSummary } from "./score-sketch.js";
import type { Timeline } from "./timeline.js";

const width = 640;
const height = 120;

/** Rows a second, step by step. */
export function throughputChart({ rows, widthMs }: Timeline): Html {
  const rates = rows.map((count) => (count * 1000) / widthMs);
  const most = Math.max(...rates, 1);
  const seconds = (rows.length * widthMs) / 1000;
  return html`<figure><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="rows a second over time">${columns(rates, most)}</svg>
<figcaption>0 to ${tidy(seconds)} s; the highest step is ${showRate(most)}</figcaption></figure>`;
}

function columns(values: readonly number[], most: number): Html[] {
  const step = width / Math.max(values.length, 1);
  return values.map((value, index) => {
    const tall = (value / most) * (height - 2);
    const [x, y] = [(index * step).toFixed(2), (height - tall).toFixed(2)];
    return html`<rect x="${x}" y="${y}" width="${Math.max(step - 0.5, 0.5).toFixed(2)}" height="${tall.toFixed(2)}"/>`;
  });
}

/** How a column's predictions are distributed. */
export function scoreChart(summary: ScoreSummary): Html {
  const { column, values, sampled } = summary;
  const of = `${showCount(values)} values${sampled < values ? `, ${showCount(sampled)} of them looked at` : ""}`;
  if (summary.kind === "values") {
    const { counts, others } = summary;
    const rows = counts.map(({ value, count }) => ({ name: value, value: count }));
    return html`<h3>${column}</h3><p>${of}</p>${bars(others === 0 ? rows : [...rows, { name: "(others)", value: others }])}`;
  }
  const { min, max, mean, bins } = summary;
  return html`<h3>${column}</h3><figure><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="histogram of ${column}">${columns(bins, Math.max(...bins, 1))}</svg>
<figcaption>${tidy(min)} to ${tidy(max)}, mean ${tidy(mean)}; ${of}</figcaption></figure>`;
}

/** Numbers by name, as lying bars. */
export function bars(rows: readonly { readonly name: string; readonly value: number }[], unit = ""): Html {
  const most = Math.max(...rows.map(({ value }) => value), Number.MIN_VALUE);
  const lines = rows.map(({ name, value }) => {
    const share = ((value / most) * 100).toFixed(1);
    const shown = `${value.toLocaleString("en-US", { maximumFractionDigits: 3 })}${unit}`;
    return html`<tr><th>${name}</th><td>${shown}</td><td class="bar"><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect x="0" y="0" width="${share}" height="8"/></svg></td></tr>`;
  });
  return html`<table>${lines}</table>`;
}

/** Four digits that count. */
function tidy(value: number): string {
  return String(Number(value.toPrecision(4)));
}
