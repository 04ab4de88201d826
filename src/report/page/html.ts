import { printable } from "../../util/texts.js";

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
