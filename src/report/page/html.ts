import { withDigits } from "../../base/shown-numbers.js";
import { printable } from "../../base/texts.js";

/** Markup. Only `html` makes it, and escapes all text in it, such as names of files, models and specs. */
export interface Html {
  readonly markup: string;
}

/** The name of a column, which a narrow window may break after an underscore. */
export function breakable(name: string): Html {
  const parts = name.split(/(?<=_)(?=[^_])/);
  return html`${parts.map((part, index) => html`${index === 0 ? nothing : { markup: "<wbr>" }}${part}`)}`;
}

type Part = Html | string | number | readonly Html[];

/** A template tag that escapes its values, except those that are markup. */
export function html(texts: TemplateStringsArray, ...parts: readonly Part[]): Html {
  const markup = texts.map((text, index) => {
    const part = parts[index];
    return part === undefined ? text : text + markupOf(part);
  });
  return { markup: markup.join("") };
}

/** Empty markup. */
export const nothing: Html = { markup: "" };

/** Folds away what few readers need. */
export function folded(title: string, body: Html | readonly Html[]): Html {
  return html`<details><summary>${title}</summary>${body}</details>`;
}

function markupOf(part: Part): string {
  if (typeof part === "string" || typeof part === "number") {
    return escapeHtml(String(part));
  }
  return "markup" in part ? part.markup : part.map(({ markup }) => markup).join("");
}

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function escapeHtml(text: string): string {
  return printable(text).replaceAll(/[&<>"']/g, (character) => entities[character] ?? "");
}

const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** From here on, a number has an exponent. float64 has all digits of smaller whole parts. */
const leastExponent = 1e15;

/**
 * A number with at most four significant digits: "0.4123", "1.2e15". A whole part below 10^15 has all its digits, as in
 * `stats` and in the messages of checks, and no separators, since it may be a date or a code: "20260913".
 */
export function showNumber(value: number): string {
  const short = withDigits(value, 4);
  const isLarge = Math.abs(value) >= leastExponent && Number.isFinite(Number(short));
  return (isLarge ? Number(short).toExponential() : short).replace("e+", "e");
}

/** A logical date without its year: "21 Nov"; other texts as they are. */
export function showDay(date: string): string {
  const [, month, day] = /^\d{4}-(\d\d)-(\d\d)$/.exec(date) ?? [];
  const name = months[Number(month) - 1];
  return day === undefined || name === undefined ? date : `${Number(day)} ${name}`;
}

/** Round numbers from `min` to `max`, a few of them, in ascending order. */
export function ticksBetween(min: number, max: number): number[] {
  const rough = (max - min) / 5;
  if (!(rough > 0) || !Number.isFinite(rough)) {
    return [min];
  }
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  const first = Math.ceil(min / step - 1e-9);
  const count = Math.max(0, Math.floor(max / step + 1e-9) - first + 1);
  return Array.from({ length: count }, (_, index) => Number(((first + index) * step).toPrecision(15)));
}
