import { parseJson } from "../../plan/parse-plan.js";

/** The key of an object that represents a number. No part of a parsed expression has such a key. */
const numberKey = "#number";

const tokens = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;
const numberObjects = new RegExp(`\\{"${numberKey}":"([^"]*)"\\}`, "g");

/**
 * Parses JSON; undefined when the text is not JSON. A number that float64 would change, or that JavaScript would write
 * in another way, becomes an object, from which `exactJson` writes the same number again.
 */
export function parseExactJson(text: string): unknown {
  return parseJson(
    text.replaceAll(tokens, (token) =>
      token.startsWith('"') || String(Number(token)) === token ? token : `{"${numberKey}":"${token}"}`,
    ),
  );
}

/** JSON of what `parseExactJson` returned, with its numbers as they were. */
export function exactJson(value: unknown): string {
  return JSON.stringify(value).replaceAll(numberObjects, "$1");
}
