import { isAlias, LineCounter, type Node, parseDocument, visit, type YAMLError } from "yaml";
import { JobError } from "../util/errors.js";
import type { Problem } from "./problems.js";

const depthLimit = 16;

export type YamlDocument = ReturnType<typeof parseDocument>;

/** Parses the text of a spec. @throws JobError SPEC_INVALID with line and column of the first thing that is no YAML */
export function parseYaml(text: string, file: string): { document: YamlDocument; lines: LineCounter } {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, version: "1.2", schema: "core", prettyErrors: false });
  const [error] = document.errors;
  if (error !== undefined) {
    const { line, col } = lines.linePos(error.pos[0]);
    const { found, hint } = explain(error, text);
    throw new JobError("SPEC_INVALID", `reading ${file}:${line}:${col}: ${found}`, { hint });
  }
  return { document, lines };
}

function explain(error: YAMLError, text: string): { found: string; hint: string } {
  const isOne = "the file must be one YAML document";
  if (error.message.includes("call stack")) {
    return { found: "nested too deeply to be parsed", hint: `a job spec is nested less than ${depthLimit} deep` };
  }
  if (error.code === "DUPLICATE_KEY") {
    const key = /^[^\s:]+/.exec(text.slice(error.pos[0]))?.[0] ?? "";
    return { found: `${key}: this key is here twice`, hint: "remove one of them" };
  }
  if (error.code === "MULTIPLE_DOCS") {
    return { found: "a second document starts here", hint: isOne };
  }
  const quoted = text.includes("${") ? `${isOne}; inside [ ] and { }, \${…} must be in quotes` : isOne;
  return { found: error.message, hint: quoted };
}

/** Returns what the parser accepted with a warning. */
export function parserWarnings(document: YamlDocument): Problem[] {
  return document.warnings.map((warning) => ({ path: [], text: warning.message, offset: warning.pos[0] }));
}

/** Aliases, tags and depth: what makes a small file large or a plain value something else. */
export function shapeProblems(document: YamlDocument): Problem[] {
  const problems: Problem[] = [];
  const add = (node: Node, text: string): void => {
    problems.push({ path: [], text, offset: node.range?.[0] ?? 0 });
  };
  visit(document, {
    Node(_key, node, ancestors) {
      if (isAlias(node) || node.anchor !== undefined) {
        add(node, "YAML anchors and aliases are not allowed; write the value out");
      } else if (node.tag !== undefined) {
        add(node, `YAML tags are not allowed; found ${node.tag.replace("tag:yaml.org,2002:", "!!")}`);
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
