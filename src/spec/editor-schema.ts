import { specJsonSchema } from "./job-spec.js";

/** The pattern of a text that contains `${…}`. */
const template = String.raw`\$\{.+\}`;

/** Keywords of JSON Schema whose value is a schema, a list of schemas or a mapping to schemas that values must match. */
const nested = new Set(["properties", "additionalProperties", "items", "prefixItems", "anyOf", "oneOf", "allOf"]);

/**
 * Returns the JSON Schema (draft 2020-12) for editors. An editor sees a spec before `${…}` is filled in, so the schema
 * also allows a text with `${…}` where a pattern or an enumeration restricts a value. Keys must not contain `${…}`.
 */
export function editorSchema(): object {
  return withTemplates(specJsonSchema()) as object;
}

function withTemplates(node: unknown): unknown {
  if (typeof node !== "object" || node === null) {
    return node;
  }
  if (Array.isArray(node)) {
    return node.map(withTemplates);
  }
  const inner = Object.entries(node).map(([keyword, value]: [string, unknown]): [string, unknown] => [
    keyword,
    keyword === "properties" ? eachValue(value) : nested.has(keyword) ? withTemplates(value) : value,
  ]);
  const { enum: names, ...rest } = Object.fromEntries(inner);
  if (rest["type"] !== "string") {
    return Object.fromEntries(inner);
  }
  if (names !== undefined) {
    return { ...rest, anyOf: [{ enum: names }, { pattern: template }] };
  }
  return typeof rest["pattern"] === "string" ? { ...rest, pattern: `${rest["pattern"]}|${template}` } : rest;
}

/** Adds templates to the schema of each property. A property may have the name of a keyword, such as `enum`. */
function eachValue(properties: unknown): unknown {
  return typeof properties !== "object" || properties === null
    ? properties
    : Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, withTemplates(value)]));
}
