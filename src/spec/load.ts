import { isMap, isNode, isPair, isScalar, isSeq, type LineCounter } from "yaml";
import { assertNever, JobError } from "../errors.js";
import { didYouMean } from "../suggest.js";
import { checkSpec, type JobSpec } from "./job-spec.js";
import { describeIssue, type Problem } from "./problems.js";
import { notYet } from "./not-yet.js";
import { clockParams, fillTemplate, type Lookup, type TemplateFault } from "./template.js";
import { parserWarnings, parseYaml, shapeProblems, type YamlDocument } from "./yaml-text.js";

const textLimit = 256 * 1024;
const problemLimit = 10;

export interface SpecContext {
  /** How the file is named in messages. */
  readonly file: string;
  /** From `--param`; they win over the spec's own. */
  readonly params: Readonly<Record<string, string>>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly nowMs: number;
}

type Path = readonly (string | number)[];

export interface LoadedSpec {
  readonly spec: JobSpec;
  /** "job.yaml:4:9: input.path": where a key's value stands, for messages about what it names. */
  readonly where: (path: Path) => string;
}

/**
 * Reads a job spec: YAML without aliases or tags, `${…}` filled in, checked and frozen.
 * @throws JobError SPEC_INVALID or SPEC_UNSUPPORTED, naming file, line, column and key of each problem.
 */
export function loadSpec(yamlText: string, context: SpecContext): LoadedSpec {
  if (yamlText.length > textLimit) {
    throw new JobError("SPEC_INVALID", `reading ${context.file}: it has more than ${textLimit} characters`, {
      hint: "a job spec is a page of YAML; is this the right file?",
    });
  }
  const { document, lines } = parseYaml(yamlText, context.file);
  const fail = failure(context.file, lines, document);
  if (!isMap(document.contents)) {
    throw fail([{ path: [], text: "expected a mapping with version, name, input, model and output" }]);
  }
  fail.check(shapeProblems(document));
  fail.check(parserWarnings(document));
  fail.check(fillDocument(document, context));
  fail.check(unsupportedProblems(document), "SPEC_UNSUPPORTED");
  const checked = checkSpec(document.toJS({ maxAliasCount: 0 }));
  if ("spec" in checked) {
    return {
      spec: checked.spec,
      where: (path) => place(context.file, lines.linePos(positionOf(document, { path, text: "" })), path),
    };
  }
  throw fail(checked.issues.flatMap((issue) => describeIssue(issue, (path) => plainValue(document, path))));
}

interface Failure {
  (problems: readonly Problem[], code?: "SPEC_INVALID" | "SPEC_UNSUPPORTED"): JobError;
  /** Throws when there are any. */
  check(problems: readonly Problem[], code?: "SPEC_INVALID" | "SPEC_UNSUPPORTED"): void;
}

function failure(file: string, lines: LineCounter, document: YamlDocument): Failure {
  const make: Failure = (problems, code = "SPEC_INVALID") => {
    const placed = problems
      .map((problem) => ({ problem, offset: positionOf(document, problem) }))
      .toSorted((one, other) => one.offset - other.offset);
    const shown = placed.slice(0, problemLimit).map(({ problem, offset }) => {
      return `${place(file, lines.linePos(offset), problem.path)}: ${problem.text}`;
    });
    if (problems.length > problemLimit) {
      shown.push(`and ${problems.length - problemLimit} more`);
    }
    const [first = ""] = shown;
    const message = shown.length === 1 ? first : `${problems.length} problems\n  ${shown.join("\n  ")}`;
    const hint = code === "SPEC_UNSUPPORTED" ? "docs/job-spec.md lists what this release serves" : undefined;
    return new JobError(code, `reading ${message}`, hint === undefined ? {} : { hint });
  };
  make.check = (problems, code) => {
    if (problems.length > 0) {
      throw make(problems, code);
    }
  };
  return make;
}

/** Fills every `${…}` in place, `params` first since the rest refers to them. */
function fillDocument(document: YamlDocument, context: SpecContext): Problem[] {
  const problems: Problem[] = [];
  const declared = paramNames(document);
  const environment: Lookup = (name) => (Object.hasOwn(context.env, name) ? context.env[name] : undefined);

  fillNode(
    document.get("timezone", true),
    ["timezone"],
    { lookup: environment, params: environment, declared },
    problems,
  );
  const scope = new Map<string, string>(Object.entries(clock(document, context)));
  const lookup: Lookup = (name) => scope.get(name) ?? environment(name);
  const known: Lookup = (name) => scope.get(name);
  const params = document.get("params", true);
  for (const pair of isMap(params) ? params.items : []) {
    const name = isScalar(pair.key) ? String(pair.key.value) : "";
    const node = pair.value;
    if (name === "__proto__") {
      problems.push({ path: ["params", name], atKey: true, text: "this name cannot be a param's; choose another" });
    }
    if (!isScalar(node)) {
      problems.push({ path: ["params", name], text: "expected a text, number or date" });
      continue;
    }
    const given = Object.hasOwn(context.params, name) ? context.params[name] : undefined;
    // A param is text: `007` and `1.0` keep their spelling.
    node.value = given ?? (typeof node.value === "string" ? node.value : (node.source ?? ""));
    if (given === undefined) {
      fillNode(node, ["params", name], { lookup, params: known, declared }, problems);
    }
    scope.set(name, String(node.value));
  }
  problems.push(...unknownParams(context.params, declared));
  for (const pair of isMap(document.contents) ? document.contents.items : []) {
    const key = isScalar(pair.key) ? String(pair.key.value) : "";
    if (key !== "params" && key !== "timezone" && isNode(pair.value)) {
      fillNode(pair.value, [key], { lookup, params: known, declared }, problems);
    }
  }
  return problems;
}

function clock(document: YamlDocument, context: SpecContext): Record<string, string> {
  const zone = document.get("timezone");
  try {
    return clockParams(context.nowMs, typeof zone === "string" ? zone : "UTC");
  } catch {
    return clockParams(context.nowMs, "UTC"); // the schema check names the wrong zone
  }
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

interface Scope {
  readonly lookup: Lookup;
  /** `lookup` without the environment. */
  readonly params: Lookup;
  /** Params of the spec, whether or not they are known where the text stands. */
  readonly declared: readonly string[];
}

/** Mappings whose keys are not the spec's: JavaScript would lose a certain one of them. */
const namesOfOwn: ReadonlySet<string> = new Set(["input.columns", "input.partitions", "model.inputs", "model.outputs"]);

function fillNode(node: unknown, path: Path, scope: Scope, problems: Problem[]): void {
  if (isMap(node)) {
    for (const pair of node.items) {
      const inner = [...path, isScalar(pair.key) ? String(pair.key.value) : ""];
      if (inner.at(-1) === "__proto__" && namesOfOwn.has(path.join("."))) {
        problems.push({ path: inner, atKey: true, text: "this name cannot be a column's; choose another" });
      }
      fillNode(pair.value, inner, scope, problems);
    }
  } else if (isSeq(node)) {
    for (const [index, item] of node.items.entries()) {
      fillNode(item, [...path, index], scope, problems);
    }
  } else if (isScalar(node) && typeof node.value === "string") {
    const filled = isExpression(path)
      ? fillTemplate(node.value, scope.params, "sql")
      : fillTemplate(node.value, scope.lookup);
    if ("text" in filled) {
      node.value = filled.text;
    } else {
      problems.push({ path, text: faultText(filled.fault, scope.declared, isExpression(path)) });
    }
  }
}

/** SQL is kept in the plan, and environment variables may be secrets: only params are filled in there. */
function isExpression([room, key]: Path): boolean {
  return room === "input" && (key === "columns" || key === "where");
}

function faultText(fault: TemplateFault, declared: readonly string[], isSql: boolean): string {
  switch (fault.kind) {
    case "quoted":
      return `found ${fault.found} inside quotes; write it without: it stands for a text value, quotes and all`;
    case "commented":
      return `found ${fault.found} in a comment; take it out of there`;
    case "attached":
      return `found ${fault.found} right beside a literal or a word; it stands for a text value of its own, so put a blank or an operator between`;
    case "malformed":
      return `found ${fault.found}, expected \${name} or \${name:-default}; a literal \${ is written $\${`;
    case "unset":
      return unsetText(fault.name, declared, isSql);
    default:
      return assertNever(fault);
  }
}

function unsetText(name: string, declared: readonly string[], isSql: boolean): string {
  if (isSql) {
    return `\${${name}} is no param; declare it under params`;
  }
  return declared.includes(name)
    ? `\${${name}} is a param that comes later: params see those above them, timezone sees none`
    : `\${${name}} is neither a param nor an environment variable; set it, or write \${${name}:-default}`;
}

function unsupportedProblems(document: YamlDocument): Problem[] {
  const problems: Problem[] = [];
  const walk = (node: unknown, path: Path): void => {
    const key = path.filter((part) => typeof part === "string").join(".");
    const reason = path.length === 0 ? undefined : notYet(key, isScalar(node) ? node.value : undefined);
    if (reason !== undefined) {
      problems.push({ path, text: reason });
    } else if (isMap(node)) {
      for (const pair of node.items) {
        walk(pair.value, [...path, isScalar(pair.key) ? String(pair.key.value) : ""]);
      }
    } else if (isSeq(node)) {
      for (const [index, item] of node.items.entries()) {
        walk(item, [...path, index]);
      }
    }
  };
  walk(document.contents, []);
  return problems;
}

function plainValue(document: YamlDocument, path: Path): unknown {
  const node = document.getIn(path, true);
  return isScalar(node) ? node.value : isMap(node) ? "a mapping" : isSeq(node) ? "a list" : node;
}

/** The offset of the key (unknown keys) or value a problem is about; else of the nearest thing around it. */
function positionOf(document: YamlDocument, problem: Problem): number {
  if (problem.offset !== undefined) {
    return problem.offset;
  }
  for (let length = problem.path.length; length > 0; length -= 1) {
    const parent = length === 1 ? document.contents : document.getIn(problem.path.slice(0, length - 1), true);
    const last = problem.path[length - 1];
    if (isMap(parent)) {
      const pair = parent.items.find(
        (item) => isPair(item) && isScalar(item.key) && String(item.key.value) === String(last),
      );
      const node = problem.atKey === true ? pair?.key : (pair?.value ?? pair?.key);
      if (isNode(node) && node.range) {
        return node.range[0];
      }
    } else if (isSeq(parent) && typeof last === "number") {
      const node = parent.items[last];
      if (isNode(node) && node.range) {
        return node.range[0];
      }
    }
  }
  return isNode(document.contents) ? (document.contents.range?.[0] ?? 0) : 0;
}

function place(file: string, { line, col }: { line: number; col: number }, path: Path): string {
  return `${file}:${line}:${col}${path.length === 0 ? "" : `: ${dotted(path)}`}`;
}

function dotted(path: Path): string {
  return path.map((part, index) => (typeof part === "number" ? `[${part}]` : index === 0 ? part : `.${part}`)).join("");
}
