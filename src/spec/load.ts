import { isAlias, isMap, isNode, isPair, isScalar, isSeq, LineCounter, type Node, parseDocument, visit } from "yaml";
import { JobError } from "../errors.js";
import { didYouMean } from "../suggest.js";
import { checkSpec, type JobSpec } from "./job-spec.js";
import { describeIssue, type Problem } from "./problems.js";
import { notYet } from "./not-yet.js";
import { clockParams, fillTemplate, type Lookup } from "./template.js";

const textLimit = 256 * 1024;
const depthLimit = 16;
const problemLimit = 10;

export interface SpecContext {
  /** How the file is named in messages. */
  readonly file: string;
  /** From `--param`; they win over the spec's own. */
  readonly params: Readonly<Record<string, string>>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly nowMs: number;
}

type YamlDocument = ReturnType<typeof parseDocument>;
type Path = readonly (string | number)[];

/**
 * Reads a job spec: YAML without aliases or tags, `${…}` filled in, checked and frozen.
 * @throws JobError SPEC_INVALID or SPEC_UNSUPPORTED, naming file, line, column and key of each problem.
 */
export function loadSpec(yamlText: string, context: SpecContext): JobSpec {
  if (yamlText.length > textLimit) {
    throw new JobError("SPEC_INVALID", `reading ${context.file}: it has more than ${textLimit} characters`, {
      hint: "a job spec is a page of YAML; is this the right file?",
    });
  }
  const lines = new LineCounter();
  const document = parseYaml(yamlText, lines, context);
  const fail = failure(context.file, lines, document);
  if (!isMap(document.contents)) {
    throw fail([{ path: [], text: "expected a mapping with version, name, input, model and output" }]);
  }
  fail.check(shapeProblems(document));
  fail.check(fillDocument(document, context));
  fail.check(unsupportedProblems(document), "SPEC_UNSUPPORTED");
  const checked = checkSpec(document.toJS({ maxAliasCount: 0 }));
  if ("spec" in checked) {
    return checked.spec;
  }
  throw fail(checked.issues.flatMap((issue) => describeIssue(issue, (path) => plainValue(document, path))));
}

function parseYaml(yamlText: string, lineCounter: LineCounter, context: SpecContext): YamlDocument {
  let document: YamlDocument;
  try {
    document = parseDocument(yamlText, { lineCounter, version: "1.2", schema: "core", prettyErrors: false });
  } catch (cause) {
    // The parser recurses: a bomb of brackets overflows its stack.
    throw new JobError("SPEC_INVALID", `reading ${context.file}: nested too deeply to be parsed`, { cause });
  }
  const broken = document.errors[0] ?? document.warnings[0];
  if (broken !== undefined) {
    const at = lineCounter.linePos(broken.pos[0]);
    throw new JobError("SPEC_INVALID", `reading ${context.file}:${at.line}:${at.col}: ${broken.message}`, {
      hint: yamlText.includes("${")
        ? "the file must be one YAML document; inside [ ] and { }, ${…} must stand in quotes"
        : "the file must be one YAML document",
    });
  }
  return document;
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
      const { line, col } = lines.linePos(offset);
      const key = problem.path.length === 0 ? "" : `${dotted(problem.path)}: `;
      return `${file}:${line}:${col}: ${key}${problem.text}`;
    });
    if (problems.length > problemLimit) {
      shown.push(`and ${problems.length - problemLimit} more`);
    }
    const [first = ""] = shown;
    const message = shown.length === 1 ? first : `${shown.length} problems\n  ${shown.join("\n  ")}`;
    const hint =
      code === "SPEC_UNSUPPORTED" ? "leave it out; README, “Job spec”, lists what this release serves" : undefined;
    return new JobError(code, `reading ${message}`, hint === undefined ? {} : { hint });
  };
  make.check = (problems, code) => {
    if (problems.length > 0) {
      throw make(problems, code);
    }
  };
  return make;
}

/** Aliases, tags and depth: what makes a small file large or a plain value something else. */
function shapeProblems(document: YamlDocument): Problem[] {
  const problems: Problem[] = [];
  const add = (node: Node, text: string): void => {
    problems.push({ path: [], text, offset: node.range?.[0] ?? 0 });
  };
  visit(document, {
    Node(_key, node, ancestors) {
      if (isAlias(node) || node.anchor !== undefined) {
        add(node, "YAML anchors and aliases are not allowed; write the value out");
      } else if (node.tag !== undefined && node.tag.startsWith("!")) {
        add(node, `YAML tags are not allowed; found ${node.tag}`);
      }
      if (ancestors.length > depthLimit * 2) {
        add(node, `nested more than ${depthLimit} deep`);
        return visit.BREAK;
      }
      return undefined;
    },
  });
  return problems;
}

/** Fills every `${…}` in place, `params` first since the rest refers to them. */
function fillDocument(document: YamlDocument, context: SpecContext): Problem[] {
  const problems: Problem[] = [];
  const environment: Lookup = (name) => context.env[name];
  fillNode(document.get("timezone", true), ["timezone"], environment, problems);
  const scope = new Map<string, string>(Object.entries(clock(document, context)));
  const lookup: Lookup = (name) => scope.get(name) ?? context.env[name];
  const params = document.get("params", true);
  const declared: string[] = [];
  for (const pair of isMap(params) ? params.items : []) {
    const name = isScalar(pair.key) ? String(pair.key.value) : "";
    declared.push(name);
    const node = pair.value;
    if (!isScalar(node)) {
      problems.push({ path: ["params", name], text: "expected a text, number or date" });
      continue;
    }
    const given = Object.hasOwn(context.params, name) ? context.params[name] : undefined;
    // A param is text: `007` and `1.0` keep their spelling.
    node.value = given ?? (typeof node.value === "string" ? node.value : (node.source ?? ""));
    if (given === undefined) {
      fillNode(node, ["params", name], lookup, problems);
    }
    scope.set(name, String(node.value));
  }
  problems.push(...unknownParams(context.params, declared));
  for (const pair of isMap(document.contents) ? document.contents.items : []) {
    const key = isScalar(pair.key) ? String(pair.key.value) : "";
    if (key !== "params" && key !== "timezone" && isNode(pair.value)) {
      fillNode(pair.value, [key], lookup, problems);
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

function unknownParams(given: Readonly<Record<string, string>>, declared: readonly string[]): Problem[] {
  return Object.keys(given)
    .filter((name) => !declared.includes(name))
    .map((name) => ({
      path: ["params"],
      text: `--param ${name}: the spec declares no such param${didYouMean(name, declared)}`,
    }));
}

function fillNode(node: unknown, path: Path, lookup: Lookup, problems: Problem[]): void {
  if (isMap(node)) {
    for (const pair of node.items) {
      fillNode(pair.value, [...path, isScalar(pair.key) ? String(pair.key.value) : ""], lookup, problems);
    }
  } else if (isSeq(node)) {
    for (const [index, item] of node.items.entries()) {
      fillNode(item, [...path, index], lookup, problems);
    }
  } else if (isScalar(node) && typeof node.value === "string") {
    const filled = fillTemplate(node.value, lookup);
    if ("text" in filled) {
      node.value = filled.text;
    } else {
      problems.push({ path, text: faultText(filled.fault) });
    }
  }
}

function faultText(fault: { kind: "unset"; name: string } | { kind: "malformed"; found: string }): string {
  return fault.kind === "unset"
    ? `\${${fault.name}} is neither a param nor an environment variable; set it, or write \${${fault.name}:-default}`
    : `found ${fault.found}, expected \${name} or \${name:-default}; a literal \${ is written $\${`;
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

function dotted(path: Path): string {
  return path.map((part, index) => (typeof part === "number" ? `[${part}]` : index === 0 ? part : `.${part}`)).join("");
}
