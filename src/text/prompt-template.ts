/** A text with places for values of columns. */
export interface PromptTemplate {
  /** The text before, between and after the places: one more than `columns`. */
  readonly texts: readonly string[];
  /** The column of each place, as the template names it: a column, or `column.field`. */
  readonly columns: readonly string[];
}

/** A place, `\{{`, which stands for two braces, or two braces that begin no place. */
const token = /\\\{\{|\{\{([^{}\n]*)\}\}|\{\{/g;

/**
 * Parses `{{column}}` in a text. Nothing else has a meaning: values are copied as they are, and no value is a template.
 * Returns what is wrong as `problem`.
 */
export function parseTemplate(text: string): PromptTemplate | { readonly problem: string } {
  const texts: string[] = [];
  const columns: string[] = [];
  let before = "";
  let end = 0;
  for (const { 0: found, 1: name, index } of text.matchAll(token)) {
    before += text.slice(end, index);
    end = index + found.length;
    if (found === "\\{{") {
      before += "{{";
    } else if (name === undefined || name.trim() === "") {
      const shown = text.slice(index, index + 20).replaceAll(/\s+/g, " ");
      return { problem: `\`${shown}\` begins no {{column}}; write \\{{ for two braces` };
    } else if (name.trim() === "__proto__") {
      return { problem: "no column of a prompt can have the name __proto__" };
    } else {
      texts.push(before);
      columns.push(name.trim());
      before = "";
    }
  }
  texts.push(before + text.slice(end));
  return { texts, columns };
}

/** Fills a template with values by column. */
export function fillPrompt({ texts, columns }: PromptTemplate, valueOf: (column: string) => string): string {
  let filled = texts[0] ?? "";
  for (const [index, column] of columns.entries()) {
    filled += valueOf(column) + (texts[index + 1] ?? "");
  }
  return filled;
}

/** The columns of several texts, each once, in the order in which they come. */
export function columnsIn(texts: readonly (string | undefined)[]): string[] {
  const found = texts.flatMap((text) => {
    const parsed = text === undefined ? undefined : parseTemplate(text);
    return parsed === undefined || "problem" in parsed ? [] : parsed.columns;
  });
  return [...new Set(found)];
}
