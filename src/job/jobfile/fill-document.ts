import { Scalar, type YAMLMap, isMap, isNode, isScalar, isSeq, type parseDocument } from "yaml";
import { assertNever } from "../../base/errors.js";
import { didYouMean } from "../../base/suggest.js";
import { isSecretKey } from "./job-spec.js";
import { hideCredentials, secretFile } from "./secrets.js";
import {
  type TemplateFault,
  anyValue,
  clockParamsIn,
  fillTemplate,
  filledLimit,
  parseDateExpression,
} from "./template.js";
import { isCalendarDate, isDateText } from "../../run/plan/identity.js";

type Path = readonly (string | number)[];

export type YamlDocument = ReturnType<typeof parseDocument>;

/** One thing that is wrong with a spec, and where. */
export interface Problem {
  readonly path: readonly (string | number)[];
  readonly text: string;
  /** The position is the key's, not its value's. */
  readonly atKey?: boolean;
  /** A position that the path does not give. */
  readonly offset?: number;
}

export interface SpecContext {
  readonly file: string;
  readonly params: Readonly<Record<string, string>>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly nowMs: number;
  /** For rows that come and go through a pipe. */
  readonly pipe?: true | undefined;
  /** For commands that find runs with any values of params: params without a value get a placeholder. */
  readonly standIns?: StandIns | undefined;
  /** The option that a key of a generated spec comes from ("--model"), which messages name instead of a line. */
  readonly optionOf?: (path: Path) => string | undefined;
  /** `place`: the key, as messages name it. Default: there are no files. @throws JobError FILE_MISSING, PERMISSION */
  readonly readFile?: (path: string, place: string) => string;
}

/** What became of the `${…}` of a spec. */
export interface Filled {
  readonly problems: readonly Problem[];
  readonly templates: ReadonlyMap<unknown, string>;
  /** Names of the environment variables that a node's value was made from. */
  readonly variables: ReadonlyMap<unknown, readonly string[]>;
  /** Keys with a value from the clock ("params.ds"). */
  readonly clock: readonly string[];
  /** The param that is the run's logical date: of type date, or else the first one made from today's date. */
  readonly dateParam: string | undefined;
  /** The param that is made from `${hour}`. */
  readonly hourParam: string | undefined;
  readonly outputPattern: OutputPattern;
}

/** The path of files or of a table as `output` has it, with `anyValue` in the place of what differs between runs. */
export interface OutputPattern {
  /** Where runs of the job with any params write. */
  readonly job: string;
  /** Where runs of the series write: their params differ in dates only. */
  readonly series: string;
}

/** A param is never a secret, not even one whose own value comes from the environment. */
interface Value {
  readonly text: string;
  readonly from: "param" | "clock" | "environment";
}

interface Scope {
  readonly lookup: (name: string) => Value | undefined;
  /** Params of the spec, including those that are not yet known at the position of the text. */
  readonly declared: readonly string[];
  readonly standIns: ReturnType<typeof openStandIns>;
  readonly problems: Problem[];
  readonly templates: Map<unknown, string>;
  readonly variables: Map<unknown, string[]>;
  readonly clock: string[];
}

/** Fills every `${…}` in place, `params` first since the rest refers to them. */
export function fillDocument(document: YamlDocument, context: SpecContext): Filled {
  const params = readParams(document);
  const known = new Map<string, Value>();
  const scope: Scope = {
    lookup: (name) => known.get(name) ?? environmentValue(context, name),
    declared: params.map(({ name }) => name),
    standIns: openStandIns(context.standIns),
    problems: [],
    templates: new Map(),
    variables: new Map(),
    clock: [],
  };
  const outputPath = outputPathKeys.map((key) => document.getIn(key)).find((path) => path !== undefined);
  const dateParam = (
    params.find(({ type }) => type?.type === "date") ??
    params.find(({ type, node }) => type === undefined && isFromToday(node))
  )?.name;
  const hourParam = params.find(({ node }) => isScalar(node) && node.value === "${hour}")?.name;
  fillNode(document.get("timezone", true), ["timezone"], scope);
  for (const [name, text] of Object.entries(clockParamsIn(document.get("timezone"), context.nowMs))) {
    known.set(name, { text, from: "clock" });
  }
  for (const param of params) {
    const { name } = param;
    const given = Object.hasOwn(context.params, name) ? context.params[name] : undefined;
    const before = scope.problems.length;
    const text = fillParam(param, given, name === dateParam, scope);
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
  return { ...scope, dateParam, hourParam, outputPattern: patternOf(outputPath, scope) };
}

interface Param {
  readonly name: string;
  /** Its value; of a param that has a type its default, or an empty text in its place. */
  readonly node: unknown;
  readonly type: ParamType | undefined;
  /** It has a type, and no default. */
  readonly isRequired: boolean;
}

/** Reads the params of a spec, and replaces each that has a type by its default. */
function readParams(document: YamlDocument): readonly Param[] {
  const params = document.get("params", true);
  return (isMap(params) ? params.items : []).map((pair) => {
    const name = isScalar(pair.key) ? String(pair.key.value) : "";
    const type = typeOf(pair.value);
    if (type === undefined) {
      return { name, node: pair.value, type, isRequired: false };
    }
    const typed = pair.value as YAMLMap;
    pair.value = typed.get("default", true) ?? placeOf(typed);
    return { name, node: pair.value, type, isRequired: !typed.has("default") };
  });
}

/** JavaScript loses this key of a mapping. */
const noName = "nothing can have this name; choose another";

/** Returns "" for a param without a value, which is reported as a problem. */
function fillParam(
  { name, node, type, isRequired }: Param,
  given: string | undefined,
  isDate: boolean,
  scope: Scope,
): string {
  const path = ["params", name];
  if (name === "__proto__") {
    scope.problems.push({ path, atKey: true, text: noName });
  }
  if (!isScalar(node)) {
    scope.problems.push({ path, text: paramForms });
    return "";
  }
  if (given === undefined && type !== undefined && isRequired) {
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
    scope.problems.push(...valueProblems(name, text, type, isDate));
  }
  return text;
}

const clockNames: ReadonlySet<string> = new Set(["today", "yesterday", "hour"]);

const outputPathKeys = ["parquet", "delta"].map((target) => ["output", target, "path"]);

function patternOf(template: unknown, { lookup }: Scope): OutputPattern {
  const fill = (ofParam: (text: string) => string): string => {
    const filled = fillTemplate(typeof template === "string" ? template : "", (name, offset) => {
      const value = lookup(name);
      const isPlace = offset === 0 && value?.text.includes("/") === true; // as a folder that the spec itself names
      return value === undefined || value.from === "environment" || isPlace
        ? value?.text
        : value.from === "clock"
          ? anyValue
          : ofParam(value.text);
    });
    return "text" in filled ? filled.text : "";
  };
  return { job: fill(() => anyValue), series: fill((text) => (isDateText(text) ? anyValue : text)) };
}

function environmentValue({ env }: SpecContext, name: string): Value | undefined {
  const text = Object.hasOwn(env, name) ? env[name] : undefined;
  return text === undefined ? undefined : { text, from: "environment" };
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
    const isOutputPath = outputPathKeys.some((key) => key.join() === path.join());
    const lookup = (name: string, offset: number): string | undefined => {
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
        if (isOutputPath && offset > 0 && value.text.includes("/")) {
          const text = `the value of \${${name}}, ${value.text}, contains /, so other runs would not find its folders; write another character, or a param for each folder`;
          scope.problems.push({ path, text });
        }
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
    const text =
      "found ${file:…}, which only keys that hold a secret take, such as output.postgres.url, model.server.token and report.on_failure";
    return [{ path, text }];
  }
  return secretFile(template) === undefined
    ? [{ path, text: "found ${file:…} inside a text; it stands for a whole value, as ${file:/run/secrets/name}" }]
    : [];
}

type ParamType = { readonly type: "date" | "integer" } | { readonly type: "enum"; readonly values: readonly string[] };

const paramForms =
  'expected a text, number or date, or { type: date, default: "${today}" }; types are date, integer and enum (with values: [a, b])';

function isFromToday(value: unknown): boolean {
  const [, body = ""] = isScalar(value) ? (/^\$\{([^}]*)\}$/.exec(String(value.value)) ?? []) : [];
  return ["today", "yesterday"].includes(parseDateExpression(body)?.name ?? "");
}

const keysOf: Readonly<Record<ParamType["type"], readonly string[]>> = {
  date: ["type", "default"],
  integer: ["type", "default"],
  enum: ["type", "values", "default"],
};

/** Of one such as `{ type: date, default: ${today} }`; undefined: the value is something else, or has other keys. */
function typeOf(value: unknown): ParamType | undefined {
  const type = isMap(value) ? value.get("type") : undefined;
  if (!isMap(value) || (type !== "date" && type !== "integer" && type !== "enum")) {
    return undefined;
  }
  if (!value.items.every(({ key }) => isScalar(key) && keysOf[type].includes(String(key.value)))) {
    return undefined;
  }
  if (type !== "enum") {
    return { type };
  }
  const values = value.get("values");
  return isSeq(values) && values.items.length > 0 && values.items.every((item) => isScalar(item))
    ? { type, values: values.items.map((item) => textOf(item)) }
    : undefined;
}

function placeOf({ range }: YAMLMap): Scalar {
  const node = new Scalar("");
  node.range = range ?? null;
  return node;
}

/** `007` and `1.0` keep their spelling. */
function textOf({ value, source }: Scalar): string {
  return typeof value === "string" ? value : (source ?? "");
}

/** @param isDate whether it is the logical date, which may have no type */
function valueProblems(name: string, text: string, type: ParamType | undefined, isDate: boolean): Problem[] {
  const expected = type !== undefined ? expectedOf(text, type) : isDate ? expectedDate(text) : undefined;
  return expected === undefined
    ? []
    : [{ path: ["params", name], text: `found ${text === "" ? "an empty text" : text}, expected ${expected}` }];
}

/** Year, month and day in digits, whether they are a date or not. */
const almostDate = /^(?=\d{8}$|\d+-\d+-)(\d{4})-?(\d{1,2})-?(\d{1,2})$/;

function isRange(text: string): boolean {
  const ends = text.split("..");
  return ends.length === 2 && ends.every(isDateText);
}

/** A name of the spec's clock, where only a date can be: nothing ever appears in a folder called dt=yesterday. */
function clockProblem(text: string): string | undefined {
  const [, body = text] = /^\$\{(.*)\}$/s.exec(text) ?? [];
  return /^(today|yesterday|tomorrow|now)$/i.test(parseDateExpression(body)?.name ?? "")
    ? `: --param takes the date itself, and \${${body.trim().toLowerCase()}} is what the spec may say`
    : undefined;
}

const takesRange = "; infer-batch backfill takes a range";

/** Text like a date that checks do not read would be compared with no earlier run; any other text means no date. */
function expectedDate(text: string): string | undefined {
  if (isRange(text)) {
    return `one date${takesRange}`;
  }
  const clock = clockProblem(text);
  if (clock !== undefined) {
    return `a date such as 2026-11-23${clock}`;
  }
  const [, year = "", month = "", day = ""] = almostDate.exec(text) ?? [];
  const padded = `${year}-${month.padStart(2, "0")}-${day.padStart(2, "0")}`;
  return year === "" || isCalendarDate(text)
    ? undefined
    : `a date written YYYY-MM-DD: ${isCalendarDate(padded) ? `write ${padded}` : "there is no such day"}`;
}

function missingProblem(name: string, type: ParamType): Problem {
  return { path: ["params", name], text: `it has no default; set it with --param ${name}=${exampleOf(type)}` };
}

function expectedOf(text: string, type: ParamType): string | undefined {
  if (type.type === "enum") {
    return type.values.includes(text) ? undefined : `one of ${type.values.join(", ")}${didYouMean(text, type.values)}`;
  }
  if (type.type === "date") {
    return isCalendarDate(text)
      ? undefined
      : `a date such as ${exampleOf(type)}${isRange(text) ? takesRange : (clockProblem(text) ?? "")}`;
  }
  return /^(0|-?[1-9]\d{0,14})$/.test(text) ? undefined : `a whole number such as ${exampleOf(type)}`;
}

function exampleOf(type: ParamType): string {
  return type.type === "enum" ? (type.values[0] ?? "") : type.type === "date" ? "2026-11-23" : "7";
}

/**
 * Which params without a value get a placeholder. `dates`: only those of type date, in which a series' runs may differ.
 */
type StandIns = "all" | "dates";

/** A date that no job runs for. Dates are computed from it in both directions. */
const someDate = "1970-01-01";

/** The value of a param that has none, or a wrong one. What is wrong with the param is reported, and once is enough. */
const valueInRefusedSpec = someDate;

/** `standIns`: undefined: no value may stand in. */
function openStandIns(standIns: StandIns | undefined) {
  /** By name of a param that is a stand-in or made from one: the param that has no value. */
  const known = new Map<string, { readonly name: string; readonly type: ParamType }>();
  const needed = new Set<string>();
  const need = ({ name, type }: { readonly name: string; readonly type: ParamType }, made: string): Problem[] => {
    if (needed.has(name)) {
      return [];
    }
    needed.add(name);
    const { path, text } = missingProblem(name, type);
    return [{ path, text: text.replace("no default;", `no default, and ${made} is made from it;`) }];
  };
  return {
    /** The value of a param without one; undefined: none may stand in, and the command needs it. */
    take(name: string, type: ParamType): string | undefined {
      if (standIns === undefined || (standIns === "dates" && type.type !== "date")) {
        return undefined;
      }
      known.set(name, { name, type });
      return type.type === "date" ? someDate : type.type === "enum" ? type.values[0] : "1";
    },
    /** Takes note of the param `name` at a path. Problems: the runs cannot be found without its value. */
    use(name: string, path: Path): Problem[] {
      const missing = known.get(name);
      const [section, param] = path;
      if (missing !== undefined && section === "params" && param !== undefined) {
        known.set(String(param), missing);
      }
      return missing !== undefined && namesRuns(path) ? need(missing, path.join(".")) : [];
    },
    /** Whether the runs of a param's series can be told with this value of it. */
    check(name: string, text: string): Problem[] {
      const missing = known.get(name);
      return missing === undefined || standIns !== "dates" || isDateText(text) ? [] : need(missing, `params.${name}`);
    },
  };
}

/** Folders are found with any params. */
function namesRuns(path: readonly (string | number)[]): boolean {
  const [section, ...rest] = path;
  return section === "name" || (section === "output" && rest.join(".") !== "parquet.path");
}

/** SQL is kept in the plan, and environment variables may be secrets: only params are filled in there. */
function isExpression([section, key]: Path): boolean {
  return section === "input" && (key === "columns" || key === "where");
}

function faultText(fault: TemplateFault, path: Path, declared: readonly string[]): string {
  switch (fault.kind) {
    case "quoted":
      return `found ${fault.found} inside quotes; write it without quotes, because its value is inserted as a quoted text`;
    case "commented":
      return `found ${fault.found} in a comment; remove it from the comment`;
    case "attached":
      return `found ${fault.found} right next to a literal or a word; its value is inserted as a quoted text, so put a blank or an operator between them`;
    case "malformed":
      return `found ${isSecretKey(path) ? "${ and no name after it" : hideCredentials(fault.found)}, expected \${name} or \${name:-default}, or for a date \${name - 7d} with blanks around the sign; a literal \${ is written $\${`;
    case "climbs":
      return `the value of \${${fault.name}} contains .., which would lead out of the folder that the path names`;
    case "no date":
      return `\${${fault.found}} needs a date such as 2026-11-23, but the value of ${fault.name} is not a date`;
    case "out of range":
      return `\${${fault.found}} is not in the years 1 to 9999`;
    case "long":
      return `it has more than ${filledLimit} characters when it is filled in`;
    case "unset":
      return unsetText(fault.name, declared, isExpression(path));
    default:
      return assertNever(fault);
  }
}

/**
 * A variable that a deployment forgot is often empty, and an empty Postgres URL would mean the database of libpq's
 * variables.
 */
function emptyProblems(path: Path, variables: readonly string[]): Problem[] {
  if (variables.length === 0 || path.slice(-3).join(".") !== "output.postgres.url") {
    return [];
  }
  const made = variables.map((name) => `\${${name}}`).join(" and ");
  const found = `found an empty text, made from ${made}`;
  return [
    { path, text: `${found}; set the variable, or leave out this key to use PGHOST and libpq's other variables` },
  ];
}

function unsetText(name: string, declared: readonly string[], isSql: boolean): string {
  if (isSql) {
    return `\${${name}} is no param; declare it under params`;
  }
  return declared.includes(name)
    ? `\${${name}} is a param that comes later: params see those above them, timezone sees none`
    : `\${${name}} is neither a param nor an environment variable; set it, or write \${${name}:-default}`;
}
