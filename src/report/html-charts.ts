import { html, type Html } from "./html.js";
import { showCount, showRate } from "./report.js";
import type { ScoreSummary } from "./score-summary.js";
import type { Timeline } from "./timeline.js";

const width = 640;
const height = 120;

/** A chart of rows per second over time. */
export function throughputChart({ rows, widthMs }: Timeline): Html {
  const rates = rows.map((count) => (count * 1000) / widthMs);
  const highest = Math.max(...rates, 1);
  const seconds = (rows.length * widthMs) / 1000;
  return html`<figure><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="rows a second over time">${columns(rates, highest)}</svg>
<figcaption>0 to ${showNumber(seconds)} s; the highest step is ${showRate(highest)}</figcaption></figure>`;
}

function columns(values: readonly number[], highest: number): Html[] {
  const step = width / Math.max(values.length, 1);
  return values.map((value, index) => {
    const tall = (value / highest) * (height - 2);
    const [x, y] = [(index * step).toFixed(2), (height - tall).toFixed(2)];
    return html`<rect x="${x}" y="${y}" width="${Math.max(step - 0.5, 0.5).toFixed(2)}" height="${tall.toFixed(2)}"/>`;
  });
}

/** A chart of the distribution of a column's predictions. */
export function scoreChart(summary: ScoreSummary): Html {
  const { column, values } = summary;
  const total = `${showCount(values)} values`;
  if (summary.kind === "values") {
    const { counts, others } = summary;
    const rows = counts.map(({ value, count }) => ({ name: value, value: count }));
    return html`<h3>${column}</h3><p>${total}</p>${bars(others === 0 ? rows : [...rows, { name: "(others)", value: others }])}`;
  }
  const { of, min, max, mean, deviation, bins } = summary;
  const title = of === undefined ? column : `${column} (${of})`;
  return html`<h3>${title}</h3><figure><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="histogram of ${column}">${columns(bins, Math.max(...bins, 1))}</svg>
<figcaption>${showNumber(min)} to ${showNumber(max)}, mean ${showNumber(mean)}, standard deviation ${showNumber(deviation)}; ${total}</figcaption></figure>`;
}

/** A table of numbers with horizontal bars. */
export function bars(rows: readonly { readonly name: string; readonly value: number }[], unit = ""): Html {
  const highest = Math.max(...rows.map(({ value }) => value), Number.MIN_VALUE);
  const lines = rows.map(({ name, value }) => {
    const share = ((value / highest) * 100).toFixed(1);
    const shown = `${value.toLocaleString("en-US", { maximumFractionDigits: 3 })}${unit}`;
    return html`<tr><th>${name}</th><td>${shown}</td><td class="bar"><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect x="0" y="0" width="${share}" height="8"/></svg></td></tr>`;
  });
  return html`<table>${lines}</table>`;
}

/** A number with four significant digits. */
function showNumber(value: number): string {
  return String(Number(value.toPrecision(4)));
}
