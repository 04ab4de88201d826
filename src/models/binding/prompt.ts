import { assertNever } from "../../base/errors.js";

/** A text with places for values of columns. */
export interface PromptTemplate {
  /** The text before, between and after the places: one more than `columns`. */
  readonly texts: readonly string[];
  /** The column of each place, as the template names it: a column, or `column.field`. */
  readonly columns: readonly string[];
}

/** A place, `\{{`, which stands for two braces, or two braces that begin no place. */
const token = /\\\{\{|\{\{([^{}\n]*)\}\}|\{\{/g;

/** Parses `{{column}}` in a text; nothing else has a meaning, and no value is a template. `problem`: what is wrong. */
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

/** A column that answers fill. */
export interface ResponseColumn {
  readonly type: "string" | "number" | "integer" | "boolean";
  /** string: the values that an answer may have. */
  readonly enum?: readonly string[] | undefined;
  /** number, integer: the smallest and the largest value. */
  readonly minimum?: number | undefined;
  readonly maximum?: number | undefined;
  /** string: the most characters. */
  readonly max_length?: number | undefined;
  readonly description?: string | undefined;
}

/** The columns of answers by name; undefined: the whole answer is one text. */
export type ResponseColumns = Readonly<Record<string, ResponseColumn>>;

/** The name of the column that has the whole answer. */
export const wholeAnswer = "response";

export type ResponseValue = string | number | boolean;

/** `problem` never quotes the answer. */
type ReadAnswer =
  | { readonly values: ReadonlyMap<string, ResponseValue> }
  | { readonly problem: string; readonly column: string | undefined };

/** The JSON Schema of answers: an object with each column, and nothing else. */
export function responseSchema(columns: ResponseColumns): object {
  const properties = Object.entries(columns).map(([name, { max_length: maxLength, ...column }]) => [
    name,
    { ...column, ...(maxLength === undefined ? {} : { maxLength }) },
  ]);
  return {
    type: "object",
    properties: Object.fromEntries(properties),
    required: Object.keys(columns),
    additionalProperties: false,
  };
}

/** Reads an answer in JSON, which may be in a Markdown code fence. Other keys than the columns are left out. */
export function readAnswer(answer: string, columns: ResponseColumns | undefined): ReadAnswer {
  if (columns === undefined) {
    return answer.isWellFormed()
      ? { values: new Map([[wholeAnswer, answer]]) }
      : { problem: `the answer ${halfCharacter}`, column: undefined };
  }
  const found = objectIn(answer);
  if (found === undefined) {
    return { problem: "the answer is no object in JSON", column: undefined };
  }
  const values = new Map<string, ResponseValue>();
  for (const [name, column] of Object.entries(columns)) {
    const value = Object.hasOwn(found, name) ? found[name] : undefined;
    const problem = problemOf(value, column);
    if (problem !== undefined) {
      return { problem: `the answer's \`${name}\` ${problem}`, column: name };
    }
    values.set(name, value as ResponseValue);
  }
  return { values };
}

/** `\ud83d` without the other half: what is written in UTF-8 would have U+FFFD in its place. */
const halfCharacter = "has half of a character, which no text can hold";

function objectIn(answer: string): Readonly<Record<string, unknown>> | undefined {
  const text = answer.trim();
  // An expression for both fences takes hours for the blank lines that some models write: the last one is cut off.
  const [fence = ""] = text.endsWith("```") ? (/^```(?:json)?\s*\n/.exec(text) ?? []) : [];
  try {
    const value: unknown = JSON.parse(fence === "" ? text : text.slice(fence.length, -3));
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Readonly<Record<string, unknown>>) : undefined;
  } catch {
    return undefined;
  }
}

function problemOf(value: unknown, column: ResponseColumn): string | undefined {
  if (value === undefined) {
    return "is missing";
  }
  switch (column.type) {
    case "string":
      return textProblem(value, column);
    case "number":
      return typeof value === "number" ? rangeProblem(value, column) : `is ${kindOf(value)}, expected a number`;
    case "integer":
      return Number.isSafeInteger(value)
        ? rangeProblem(value as number, column)
        : `is ${typeof value === "number" ? "not a whole number" : kindOf(value)}, expected an integer`;
    case "boolean":
      return typeof value === "boolean" ? undefined : `is ${kindOf(value)}, expected true or false`;
    default:
      return assertNever(column.type);
  }
}

function textProblem(value: unknown, { enum: allowed, max_length: most }: ResponseColumn): string | undefined {
  if (typeof value !== "string") {
    return `is ${kindOf(value)}, expected a text`;
  }
  if (!value.isWellFormed()) {
    return halfCharacter;
  }
  if (allowed !== undefined && !allowed.includes(value)) {
    return `is not one of ${allowed.join(", ")}`;
  }
  return most !== undefined && Array.from(value).length > most ? `has more than ${most} characters` : undefined;
}

function rangeProblem(value: number, { minimum, maximum }: ResponseColumn): string | undefined {
  if (minimum !== undefined && value < minimum) {
    return `is less than ${minimum}`;
  }
  return maximum !== undefined && value > maximum ? `is more than ${maximum}` : undefined;
}

function kindOf(value: unknown): string {
  return value === null
    ? "null"
    : Array.isArray(value)
      ? "a list"
      : typeof value === "object"
        ? "an object"
        : `a ${typeof value}`;
}
