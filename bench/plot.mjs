// A bar for each contender's rate, as an SVG that reads well on light and dark pages alike.

const width = 760;
const labelWidth = 300;
const valueWidth = 90;
const rowHeight = 30;
const barHeight = 18;
const top = 52;
const bottom = 14;
const longestBar = width - labelWidth - valueWidth;

/** Colours of a page in daylight, and where it says that it is dark. Nothing is drawn behind: the page shows through. */
const style = `
    text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
    .title { font-weight: 600; font-size: 15px; }
    .quiet { fill: #59636e; font-size: 12px; }
    .own { font-weight: 600; }
    rect { fill: #8c959f; }
    rect.own { fill: #0969da; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .quiet { fill: #9198a1; }
      rect { fill: #656c76; }
      rect.own { fill: #4493f8; }
    }`;

/**
 * @typedef {object} Bar
 * @property {string} name
 * @property {number} rate rows a second
 * @property {boolean} own
 */

/**
 * @param {{ title: string, subtitle: string, bars: readonly Bar[] }} plot
 * @returns {string} an SVG document
 */
export function formatPlot({ title, subtitle, bars }) {
  const ordered = bars.toSorted((a, b) => b.rate - a.rate);
  const most = ordered[0]?.rate ?? 1;
  const height = top + ordered.length * rowHeight + bottom;
  const described = ordered.map(({ name, rate }) => `${name} ${short(rate)}`).join(", ");
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title desc">`,
    `  <title id="title">${escaped(title)}</title>`,
    `  <desc id="desc">Rows a second: ${escaped(described)}.</desc>`,
    `  <style>${style}`,
    "  </style>",
    `  <text class="title" x="0" y="18">${escaped(title)}</text>`,
    `  <text class="quiet" x="0" y="36">${escaped(subtitle)}</text>`,
    ...ordered.map((bar, index) => formatBar(bar, top + index * rowHeight, (bar.rate / most) * longestBar)),
    "</svg>",
    "",
  ].join("\n");
}

function formatBar({ name, rate, own }, y, length) {
  const baseline = y + barHeight / 2 + 5;
  const marked = own ? ' class="own"' : "";
  const shown = Math.max(length, 2);
  return [
    `  <text${marked} x="${labelWidth - 10}" y="${baseline}" text-anchor="end">${escaped(name)}</text>`,
    `  <rect${marked} x="${labelWidth}" y="${y}" width="${shown.toFixed(1)}" height="${barHeight}" rx="2"/>`,
    `  <text${marked} x="${(labelWidth + shown + 8).toFixed(1)}" y="${baseline}">${short(rate)}</text>`,
  ].join("\n");
}

/** 1,234,567 -> 1.23 M; 14,247 -> 14 k. */
function short(rate) {
  return rate >= 1e6 ? `${(rate / 1e6).toFixed(2)} M` : `${Math.round(rate / 1e3)} k`;
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
