import { isMap, isNode, isPair, isScalar, isSeq, type YAMLSeq } from "yaml";
import { JobError } from "../util/errors.js";
import { fillDocument, type Filled, type SpecContext } from "./fill-document.js";
import { checkSpec, type JobSpec } from "./job-spec.js";
import { describeIssue, type Problem } from "./problems.js";
import { promptFile, withPromptFile } from "./prompt/prompt-file.js";
import { withoutPlaces } from "./pipe-spec.js";
import { parserWarnings, parseYaml, shapeProblems, type YamlDocument } from "./yaml-text.js";

const textLimit = 256 * 1024;
const problemLimit = 10;

type Path = readonly (string | number)[];

export interface LoadedSpec {
  readonly spec: JobSpec;
  /** "job.yaml:4:9: input.path": the position of a key's value, for messages about what it names. */
  readonly where: (path: Path) => string;
  /** Environment variables that a key's value was made from. */
  readonly variablesOf: (path: Path) => readonly string[];
  /** Keys whose value comes from `${today}` or `${yesterday}`, as the spec writes them ("params.ds"). */
  readonly clock: readonly string[];
  /** The param that is the run's logical date; undefined: the job has none. */
  readonly dateParam: string | undefined;
  /** The param that is made from `${hour}`; undefined: there is none. */
  readonly hourParam: string | undefined;
  /** Where runs of this job with other params write: `output.parquet.path` with `anyValue` for each param. */
  readonly outputPattern: string;
}

/**
 * Reads a job spec: YAML without aliases or tags, `${…}` filled in, checked and frozen.
 * @throws JobError SPEC_INVALID, naming file, line, column and key of each problem.
 */
export function loadSpec(yamlText: string, context: SpecContext): LoadedSpec {
  if (yamlText.length > textLimit) {
    throw new JobError("SPEC_INVALID", `reading ${context.file}: it has more than ${textLimit} characters`, {
      hint: "a job spec is a page of YAML; is this the right file?",
    });
  }
  const { document, lines } = parseYaml(yamlText, context.file);
  const placeOf: PlaceOf = (path, offset) =>
    context.optionOf?.(path) ?? place(context.file, lines.linePos(offset), path);
  const fail = failure(placeOf, document, context.file);
  if (!isMap(document.contents)) {
    throw fail([{ path: [], text: "expected a mapping with version, name, input, model and output" }]);
  }
  fail.check(shapeProblems(document));
  fail.check(parserWarnings(document));
  if (context.pipe === true) {
    withoutPlaces(document);
  }
  const filled = fillDocument(document, context);
  const variablesOf = (path: Path): readonly string[] => filled.variables.get(document.getIn(path, true)) ?? [];
  fail.check(filled.problems);
  const checked = checkSpec(document.toJS({ maxAliasCount: 0 }), context);
  if ("spec" in checked) {
    return {
      spec: withPromptFile(checked.spec, {
        place: placeOf(promptFile, positionOf(document, { path: promptFile, text: "" })),
        readFile: context.readFile,
      }),
      clock: filled.clock,
      dateParam: filled.dateParam,
      hourParam: filled.hourParam,
      outputPattern: filled.outputPattern,
      where: (path) => placeOf(path, positionOf(document, { path, text: "" })),
      variablesOf,
    };
  }
  throw fail(
    checked.issues.flatMap((issue) =>
      describeIssue(issue, { valueAt: (path) => plainValue(document, path, filled.templates), variablesOf }),
    ),
  );
}

/** How a message names a key whose value is at an offset. */
type PlaceOf = (path: Path, offset: number) => string;

interface Failure {
  (problems: readonly Problem[]): JobError;
  /** Throws when there are any. */
  check(problems: readonly Problem[]): void;
}

function failure(placeOf: PlaceOf, document: YamlDocument, file: string): Failure {
  const make: Failure = (problems) => {
    const placed = problems
      .map((problem) => ({ problem, offset: positionOf(document, problem) }))
      .toSorted((one, other) => one.offset - other.offset);
    const shown = placed.slice(0, problemLimit).map(({ problem, offset }) => {
      return `${placeOf(problem.path, offset)}: ${problem.text}`;
    });
    if (problems.length > problemLimit) {
      shown.push(`and ${problems.length - problemLimit} more`);
    }
    const [first = ""] = shown;
    const message = shown.length === 1 ? first : `${file}: ${problems.length} problems\n  ${shown.join("\n  ")}`;
    return new JobError("SPEC_INVALID", `reading ${message}`);
  };
  make.check = (problems) => {
    if (problems.length > 0) {
      throw make(problems);
    }
  };
  return make;
}

function plainValue(document: YamlDocument, path: Path, templates: Filled["templates"]): unknown {
  const node = document.getIn(path, true);
  return isScalar(node)
    ? (templates.get(node) ?? node.value)
    : isMap(node)
      ? "a mapping"
      : isSeq(node)
        ? (numbersIn(node, templates) ?? "a list")
        : node;
}

/** The numbers of a list of numbers; undefined for an empty list, or one of other values, which may be long or secret. */
function numbersIn({ items }: YAMLSeq, templates: Filled["templates"]): number[] | undefined {
  const numbers = items.flatMap((item) =>
    isScalar(item) && typeof item.value === "number" && !templates.has(item) ? [item.value] : [],
  );
  return numbers.length > 0 && numbers.length === items.length ? numbers : undefined;
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
