import type { Measures } from "../../checks/agreement.js";
import { agreementLine, figure } from "../agreement/tables.js";
import { comparedRows } from "../agreement/comparison-text.js";
import { modelNames } from "../agreement/fields.js";
import { count, showCount } from "../report.js";
import type { RunReview } from "../run-review.js";
import { html, type Html, nothing } from "./html.js";

/** How a second model agrees with the predictions; nothing if the run has none. */
export function comparisonSection(review: RunReview | undefined): Html {
  const result = review?.comparison;
  if (result === undefined) {
    return nothing;
  }
  const { model, place, columns, apart, tolerance } = result;
  const outputs = columns.map(([name, found]) => output(name, found, tolerance));
  const rest = apart.map(({ name, reason }) => html`<p>${name}: not compared, ${reason}.</p>`);
  return html`<section><h2>The ${modelNames[1]}</h2>
<p>${model}: ${comparedRows(result)}. Its predictions are not published; they are in ${place}.</p>
${outputs}${rest}</section>
`;
}

function output(name: string, found: Measures, tolerance: number): Html {
  return html`<div class="compared"><h3>${name}</h3>
<p>${agreementLine(found, tolerance)}.</p>${flips(found)}${different(found)}</div>
`;
}

/** The number of pairs of labels that are shown. */
const shownFlips = 10;

function flips(found: Measures): Html {
  if (found.kind !== "labels" || found.flips.length === 0) {
    return nothing;
  }
  const lines = found.flips
    .slice(0, shownFlips)
    .map(({ one, other, rows }) => html`<tr><th>${one}</th><td>${other}</td><td>${showCount(rows)}</td></tr>`);
  return html`<div class="scroll"><table class="rows"><thead><tr><th>${modelNames[0]}</th><td>${modelNames[1]}</td><td>rows</td></tr></thead><tbody>${lines}</tbody></table></div>`;
}

function different({ kind, most }: Measures): Html {
  const [first] = most;
  if (first === undefined) {
    return nothing;
  }
  const keys = Object.keys(first.keys ?? {});
  const title = `${count(most.length, "row")} that ${most.length === 1 ? "differs" : "differ"}${kind === "labels" ? "" : " most"}`;
  const heads = keys.length === 0 ? ["row"] : keys;
  const lines = most.map(({ row, keys: values = {}, one, other, distance }) => {
    const named = keys.length === 0 ? [String(row)] : keys.map((key) => values[key] ?? "NULL");
    const cells = [...named.slice(1), one, other, ...(kind === "labels" ? [] : [figure(distance)])];
    return html`<tr><th>${named[0] ?? ""}</th>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`;
  });
  const rest = [...heads.slice(1), ...modelNames, ...(kind === "labels" ? [] : ["difference"])];
  return html`<details><summary>${title}</summary><div class="scroll"><table class="rows"><thead><tr><th>${heads[0] ?? ""}</th>${rest.map((head) => html`<td>${head}</td>`)}</tr></thead><tbody>${lines}</tbody></table></div></details>`;
}
