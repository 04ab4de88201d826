import { isMap, isNode, isScalar, isSeq } from "yaml";
import { didYouMean } from "../util/suggest.js";
import { emptyProblems, faultText, isExpression } from "./params/fault-text.js";
import {
  dateParamOf,
  hourParamOf,
  dateProblems,
  missingProblem,
  paramForms,
  paramProblems,
  takeDefaults,
  textOf,
} from "./params/param-types.js";
import { openStandIns, type StandInAccount, type StandIns, valueInRefusedSpec } from "./params/stand-ins.js";
import type { Problem } from "./problems.js";
import { isSecretKey, secretFile, secretKeys } from "./secrets.js";
import { anyValue, clockParamsIn, fillTemplate } from "./template.js";
import type { YamlDocument } from "./yaml-text.js";

type Path = readonly (string | number)[];

export interface SpecContext {
  /** How the file is named in messages. */
  readonly file: string;
  /** Params given by `--param`, which replace the spec's own. */
  readonly params: Readonly<Record<string, string>>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly nowMs: number;
  /** For rows that come and go through a pipe. */
  readonly pipe?: true | undefined;
  /** For commands that find runs with any values of params: params without a value get a placeholder. */
  readonly standIns?: StandIns | undefined;
  /**
   * For a generated spec: the option that a key's value comes from ("--model"), which messages name instead of a line.
   */
  readonly optionOf?: (path: Path) => string | undefined;
  /**
   * Reads a file that the spec names, relative to it. `place`: the key, as messages name it. Default: there are no files.
   * @throws JobError FILE_MISSING, PERMISSION
   */
  readonly readFile?: (path: string, place: string) => string;
}

/** What became of the `${…}` of a spec. */
export interface Filled {
  readonly problems: readonly Problem[];
  /** Nodes with a value from the environment, and their text before. Messages quote the text: the value may be a secret. */
  readonly templates: ReadonlyMap<unknown, string>;
  /** Names of the environment variables that a node's value was made from. */
  readonly variables: ReadonlyMap<unknown, readonly string[]>;
  /** Keys with a value from the clock ("params.ds"). */
  readonly clock: readonly string[];
  /** The param that is the run's logical date: of type date, or else the first one made from today's date. */
  readonly dateParam: string | undefined;
  /** The param that is made from `${hour}`. */
  readonly hourParam: string | undefined;
  /** `output.parquet.path` with a NUL in the place of each param. */
  readonly outputPattern: string;
}

/** The value of a name. A param is never a secret, not even one whose own value comes from the environment. */
interface Value {
  readonly text: string;
  readonly from: "param" | "clock" | "environment";
}

interface Scope {
  readonly lookup: (name: string) => Value | undefined;
  /** Params of the spec, including those that are not yet known at the position of the text. */
  readonly declared: readonly string[];
  readonly standIns: StandInAccount;
  readonly problems: Problem[];
  readonly templates: Map<unknown, string>;
  readonly variables: Map<unknown, string[]>;
  readonly clock: string[];
}

/** Fills every `${…}` in place, `params` first since the rest refers to them. */
export function fillDocument(document: YamlDocument, context: SpecContext): Filled {
  const known = new Map<string, Value>();
  const scope: Scope = {
    lookup: (name) => known.get(name) ?? environmentValue(context, name),
    declared: paramNames(document),
    standIns: openStandIns(context.standIns),
    problems: [],
    templates: new Map(),
    variables: new Map(),
    clock: [],
  };
  const outputPattern = patternOf(document, scope, ["output"]);
  const dateParam = dateParamOf(document);
  const hourParam = hourParamOf(document);
  const defaults = takeDefaults(document.get("params", true));
  fillNode(document.get("timezone", true), ["timezone"], scope);
  for (const [name, text] of Object.entries(clockParamsIn(document.get("timezone"), context.nowMs))) {
    known.set(name, { text, from: "clock" });
  }
  const params = document.get("params", true);
  for (const { key, value } of isMap(params) ? params.items : []) {
    const name = isScalar(key) ? String(key.value) : "";
    const given = Object.hasOwn(context.params, name) ? context.params[name] : undefined;
    const before = scope.problems.length;
    const text = fillParam(value, { ...defaults, name, given, isDate: name === dateParam }, scope);
    const isRefused = scope.problems.length > before;
    known.set(name, { text: isRefused ? valueInRefusedSpec : text, from: "param" });
  }
  scope.problems.push(...unknownParams(context.params, scope.declared));
  for (const pair of isMap(document.contents) ? document.contents.items : []) {
    const key = isScalar(pair.key) ? String(pair.key.value) : "";
    if (key !== "params" && key !== "timezone" && isNode(pair.value)) {
      fillNode(pair.value, [key], scope);
    }
  }
  return { ...scope, dateParam, hourParam, outputPattern };
}

interface Param extends ReturnType<typeof takeDefaults> {
  readonly name: string;
  /** The value given by `--param`. */
  readonly given: string | undefined;
  /** Whether the param is the run's logical date. */
  readonly isDate: boolean;
}

/** JavaScript loses this key of a mapping. */
const noName = "nothing can have this name; choose another";

/** Fills in the value of a param, and returns it. "": it has none, which is reported as a problem. */
function fillParam(node: unknown, { name, given, isDate, types, required }: Param, scope: Scope): string {
  const path = ["params", name];
  if (name === "__proto__") {
    scope.problems.push({ path, atKey: true, text: noName });
  }
  if (!isScalar(node)) {
    scope.problems.push({ path, text: paramForms });
    return "";
  }
  const type = types.get(name);
  if (given === undefined && type !== undefined && required.has(name)) {
    const standIn = scope.standIns.take(name, type);
    scope.problems.push(...(standIn === undefined ? [missingProblem(name, type)] : []));
    node.value = standIn ?? "";
    return standIn ?? "";
  }
  node.value = given ?? textOf(node);
  const before = scope.problems.length;
  if (given === undefined) {
    fillNode(node, path, scope);
  }
  const text = String(node.value);
  scope.problems.push(...scope.standIns.check(name, text));
  if (isDate && given === "") {
    scope.problems.push({ path, text: "--param sets it to an empty text, but it is the date of the run" });
  } else if (scope.problems.length === before) {
    scope.problems.push(...(type === undefined ? [] : paramProblems(name, text, type)));
    scope.problems.push(...(type === undefined && isDate ? dateProblems(name, text) : []));
  }
  return text;
}

const clockNames: ReadonlySet<string> = new Set(["today", "yesterday", "hour"]);

/** Where the runs of this job with other params write. `output`: the key of the target. */
function patternOf(document: YamlDocument, { lookup, declared }: Scope, output: readonly string[]): string {
  const template: unknown = document.getIn([...output, "parquet", "path"]);
  const isParam = (name: string): boolean => declared.includes(name) || clockNames.has(name);
  const filled =
    typeof template === "string"
      ? fillTemplate(template, (name) => (isParam(name) ? anyValue : lookup(name)?.text))
      : { text: "" };
  return "text" in filled ? filled.text : "";
}

function environmentValue({ env }: SpecContext, name: string): Value | undefined {
  const text = Object.hasOwn(env, name) ? env[name] : undefined;
  return text === undefined ? undefined : { text, from: "environment" };
}

function paramNames(document: YamlDocument): string[] {
  const params = document.get("params", true);
  return isMap(params) ? params.items.map(({ key }) => (isScalar(key) ? String(key.value) : "")) : [];
}

function unknownParams(given: Readonly<Record<string, string>>, declared: readonly string[]): Problem[] {
  return Object.keys(given)
    .filter((name) => !declared.includes(name))
    .map((name) => ({
      path: ["params"],
      text: `--param ${name}: the spec declares ${declared.length === 0 ? "no params" : `only ${declared.join(", ")}`}${didYouMean(name, declared)}`,
    }));
}

function fillNode(node: unknown, path: Path, scope: Scope): void {
  if (isMap(node)) {
    for (const pair of node.items) {
      const inner = [...path, isScalar(pair.key) ? String(pair.key.value) : ""];
      if (inner.at(-1) === "__proto__") {
        scope.problems.push({ path: inner, atKey: true, text: noName });
      }
      fillNode(pair.value, inner, scope);
    }
  } else if (isSeq(node)) {
    for (const [index, item] of node.items.entries()) {
      fillNode(item, [...path, index], scope);
    }
  } else if (isScalar(node) && typeof node.value === "string") {
    const template = node.value;
    if (template.includes("${file:") && !template.includes("$${file:")) {
      scope.problems.push(...fileProblems(template, path));
      return; // read when the value is needed, and never into a plan
    }
    const inSql = isExpression(path);
    const lookup = (name: string): string | undefined => {
      const value = scope.lookup(name);
      if (value === undefined || (inSql && value.from === "environment")) {
        return undefined;
      }
      if (value.from === "environment") {
        scope.templates.set(node, template);
        scope.variables.set(node, [...(scope.variables.get(node) ?? []), name]);
      } else if (value.from === "clock") {
        scope.clock.push(path.join("."));
      } else {
        scope.problems.push(...scope.standIns.use(name, path));
      }
      return value.text;
    };
    scope.problems.push(...bareNames(template, path, scope.declared));
    const filled = fillTemplate(template, lookup, inSql ? "sql" : "plain");
    if ("text" in filled) {
      node.value = filled.text;
      const variables = filled.text === "" && !template.includes(":-") ? (scope.variables.get(node) ?? []) : [];
      scope.problems.push(...emptyProblems(path, variables));
    } else {
      scope.problems.push({ path, text: faultText(filled.fault, path, scope.declared) });
    }
  }
}

/** Finds `{ds}` in the name of a place, where `${ds}` is meant: every run would have the same. */
function bareNames(template: string, path: Path, declared: readonly string[]): Problem[] {
  const isPlace = /(^|\.)(path|ready|table)(\.\d+)?$/.test(path.join("."));
  const [found, name = ""] = (isPlace && /(?<!\$)\{(\w+)\}/.exec(template)) || [];
  return found !== undefined && (declared.includes(name) || clockNames.has(name))
    ? [{ path, text: `found ${found} without a $; the value of ${name} is written \${${name}}` }]
    : [];
}

function fileProblems(template: string, path: Path): Problem[] {
  if (!isSecretKey(path)) {
    const text = `found \${file:…}, which only keys that hold a secret take: ${[...secretKeys].join(", ")}`;
    return [{ path, text }];
  }
  return secretFile(template) === undefined
    ? [{ path, text: "found ${file:…} inside a text; it stands for a whole value, as ${file:/run/secrets/name}" }]
    : [];
}
