import { didYouMean } from "../util/suggest.js";
import { type SpecIssue, specJsonSchema } from "./job-spec.js";
import { hideCredentials, isSecretKey, isServerPlace } from "./secrets.js";
import { outputName } from "./values.js";

/** One thing that is wrong with a spec, and where. */
export interface Problem {
  readonly path: readonly (string | number)[];
  readonly text: string;
  /** The position is the key's, not its value's. */
  readonly atKey?: boolean;
  /** A position that the path does not give. */
  readonly offset?: number;
}

/** The keys that the schema knows at `path`. */
function keysAt(path: readonly (string | number)[]): string[] {
  let node: unknown = specJsonSchema();
  for (const part of path) {
    const mapping = mappingForm(node);
    node = property(property(mapping, "properties"), String(part)) ?? property(mapping, "additionalProperties");
  }
  return Object.keys(property(mappingForm(node), "properties") ?? {});
}

/** Returns the mapping form of a schema that allows several forms. */
function mappingForm(node: unknown): unknown {
  const forms = property(node, "anyOf");
  return Array.isArray(forms) ? forms.find((form) => property(form, "properties") !== undefined) : node;
}

function property(value: unknown, key: string): object | undefined {
  const found: unknown = typeof value === "object" && value !== null ? Reflect.get(value, key) : undefined;
  return typeof found === "object" && found !== null ? found : undefined;
}

/** The spec that an issue is about. */
interface Described {
  /** The text at a path, before variables were filled in. */
  readonly valueAt: (path: readonly (string | number)[]) => unknown;
  /** Environment variables that the value at a path was made from. */
  readonly variablesOf: (path: readonly (string | number)[]) => readonly string[];
}

/** Turns a schema issue into sentences: what was found, what would be right. */
export function describeIssue(issue: SpecIssue, described: Described): Problem[] {
  const { valueAt, variablesOf } = described;
  const path = issue.path.map((part) => (typeof part === "symbol" ? String(part) : part));
  if (issue.code === "unrecognized_keys") {
    const known = keysAt(path);
    return issue.keys.map((key) => ({
      path: [...path, key],
      atKey: true,
      text: `unknown key${didYouMean(key, known) || `; expected one of ${known.join(", ")}`}`,
    }));
  }
  if (issue.code === "invalid_key") {
    return [{ path, atKey: true, text: issue.issues[0]?.message ?? `expected a name like ${outputName.source}` }];
  }
  if (issue.code === "invalid_union") {
    const meant = issue.errors.find((form) => form.some((inner) => inner.path.length > 0 || isAboutContents(inner)));
    if (meant !== undefined) {
      return meant.flatMap((inner) => describeIssue({ ...inner, path: [...issue.path, ...inner.path] }, described));
    }
  }
  const found = valueAt(path);
  if (found === undefined) {
    return [{ path, text: `missing; ${expectation(issue)}` }];
  }
  if (issue.code === "custom" && issue.params?.["showFound"] !== true) {
    return [{ path, text: issue.message }];
  }
  const variables = variablesOf(path);
  if (isSecretKey(path) && variables.length > 0) {
    const made = `something else, made from ${variables.map((name) => `\${${name}}`).join(" and ")}`;
    return [{ path, text: `found ${made}, ${expectation(issue).replace(adviceOfSecret, "")}` }];
  }
  const shown =
    isSecretKey(path) || (isServerPlace(path) && typeof found === "string") ? "something else" : show(found);
  return [{ path, text: `found ${shown}, ${expectation(issue)}` }];
}

/** Whether an issue is about a mapping's keys or a list's length; the value is then of the right type. */
function isAboutContents(issue: SpecIssue): boolean {
  return (
    issue.code === "unrecognized_keys" ||
    issue.code === "custom" ||
    (issue.code === "too_small" && issue.origin === "array")
  );
}

function expectation(issue: SpecIssue): string {
  if (issue.code === "invalid_type" && !issue.message.startsWith("expected ")) {
    return `expected ${typeNames[issue.expected] ?? `a ${issue.expected}`}`;
  }
  if (issue.code === "invalid_value") {
    return `expected ${issue.values.map(String).join(" or ")}`;
  }
  if (issue.code === "too_small" && issue.origin !== "number" && !issue.message.startsWith("expected ")) {
    return issue.origin === "array" ? "expected at least one entry" : "expected a text that is not empty";
  }
  return issue.message;
}

const typeNames: Readonly<Record<string, string>> = {
  object: "a mapping",
  record: "a mapping",
  array: "a list",
  string: "a text",
  int: "a whole number",
  boolean: "true or false",
};

/** Advice that is left out if the value came from the environment. */
const adviceOfSecret = /, best from the environment: \S+$/;

function show(value: unknown): string {
  const text =
    typeof value === "string" && /^a (mapping|list)$/.test(value)
      ? value
      : Array.isArray(value)
        ? `[${value.join(", ")}]`
        : (JSON.stringify(value) ?? "nothing");
  const shown = hideCredentials(text);
  return shown.length > 60 ? `${shown.slice(0, 57)}…` : shown;
}
