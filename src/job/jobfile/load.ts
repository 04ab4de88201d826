import {
  LineCounter,
  type Node,
  type YAMLError,
  type YAMLSeq,
  isAlias,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  parseDocument,
  visit,
} from "yaml";
import { JobError } from "../../base/errors.js";
import { didYouMean } from "../../base/suggest.js";
import {
  type Filled,
  type OutputPattern,
  type Problem,
  type SpecContext,
  type YamlDocument,
  fillDocument,
} from "./fill-document.js";
import { anyValue } from "./template.js";
import { type JobSpec, type SpecIssue, checkSpec, isSecretKey, runParam, specJsonSchema } from "./job-spec.js";
import { withPromptInputs } from "./prompt-spec.js";
import { columnsIn, parseTemplate } from "../../models/binding/prompt.js";
import { hideCredentials, isServerPlace } from "./secrets.js";
import { isObjectUri } from "./uri.js";
import { outputName } from "./values.js";

const textLimit = 256 * 1024;
const problemLimit = 10;

type Path = readonly (string | number)[];

export interface LoadedSpec {
  readonly spec: JobSpec;
  /** "job.yaml:4:9: input.path": the position of a key's value, for messages about what it names. */
  readonly where: (path: Path) => string;
  readonly variablesOf: (path: Path) => readonly string[];
  /** Keys whose value comes from `${today}` or `${yesterday}`, as the spec writes them ("params.ds"). */
  readonly clock: readonly string[];
  /** The param that is the run's logical date; undefined: the job has none. */
  readonly dateParam: string | undefined;
  /** The param that is made from `${hour}`; undefined: there is none. */
  readonly hourParam: string | undefined;
  readonly outputPattern: OutputPattern;
  /** A run of a chain: the runs of a job with `input.since`. undefined: the job has none. */
  readonly chain?: ChainRun | undefined;
}

interface ChainRun {
  /** undefined: of none; its output is that of the whole chain. */
  readonly run: number | undefined;
  /** The spec of the whole chain; undefined: it is this one. */
  readonly whole: LoadedSpec | undefined;
}

/**
 * YAML without aliases or tags, checked and frozen. @throws JobError SPEC_INVALID with file, line, column and key of
 * each
 */
export function loadSpec(yamlText: string, context: SpecContext): LoadedSpec {
  if (yamlText.length > textLimit) {
    throw new JobError("SPEC_INVALID", `reading ${context.file}: it has more than ${textLimit} characters`, {
      hint: "a job spec is a page of YAML; is this the right file?",
    });
  }
  const { document, lines } = parseYaml(yamlText, context.file);
  const placeOf: PlaceOf = (path, offset) =>
    context.optionOf?.(path) ?? lineOf(context.file, lines.linePos(offset), path);
  const errorOf = (problems: readonly Problem[]): JobError => specError(problems, placeOf, document, context.file);
  const check = (problems: readonly Problem[]): void => {
    if (problems.length > 0) {
      throw errorOf(problems);
    }
  };
  if (!isMap(document.contents)) {
    throw errorOf([{ path: [], text: "expected a mapping with version, name, input, model and output" }]);
  }
  check(shapeProblems(document));
  check(document.warnings.map(({ message, pos }) => ({ path: [], text: message, offset: pos[0] })));
  if (context.pipe === true) {
    withoutPlaces(document);
  }
  const isChain = document.hasIn(["input", "since"]);
  const { [runParam]: run, ...params } = context.params;
  const filled = fillDocument(document, isChain ? { ...context, params } : context);
  const variablesOf = (path: Path): readonly string[] => filled.variables.get(document.getIn(path, true)) ?? [];
  check([...filled.problems, ...(isChain ? chainProblems(filled, run) : [])]);
  const checked = checkSpec(document.toJS({ maxAliasCount: 0 }), context);
  if ("spec" in checked) {
    const loaded: LoadedSpec = {
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
    return checked.spec.input.since === undefined
      ? loaded
      : ofChain(loaded, run === undefined ? undefined : Number(run));
  }
  throw errorOf(
    checked.issues.flatMap((issue) =>
      describeIssue(issue, { valueAt: (path) => plainValue(document, path, filled.templates), variablesOf }),
    ),
  );
}

/** What runs that follow each other do not take: a date, by which each day would begin anew with the whole table. */
function chainProblems({ clock, dateParam }: Filled, run: string | undefined): Problem[] {
  const dated = [dateParam === undefined ? [] : [`params.${dateParam}`], clock].flat();
  const key = dated.find((name) => !name.startsWith("report."));
  return [
    ...(key === undefined
      ? []
      : [
          {
            path: key.split("."),
            text: "a job with input.since has no date: its runs follow each other; leave it out",
          },
        ]),
    ...(run === undefined || /^[1-9]\d{0,7}$/.test(run)
      ? []
      : [{ path: ["params"], text: `--param ${runParam}: found ${run}, expected the number of a run, such as 7` }]),
  ];
}

function below(path: string, name: string): string {
  return `${path.replace(/\/+$/, "")}/${runParam}=${name}`;
}

/** The spec of a chain, or of one of its runs, which have folders below its output or one table. */
function ofChain(loaded: LoadedSpec, run: number | undefined): LoadedSpec {
  const { job, series } = loaded.outputPattern;
  const outputPattern =
    loaded.spec.output.parquet === undefined
      ? loaded.outputPattern
      : { job: below(job, anyValue), series: below(series, anyValue) };
  const whole = { ...loaded, outputPattern, chain: { run: undefined, whole: undefined } };
  return run === undefined ? whole : specOfRun(whole, run);
}

/** Digits of a run's number in the name of its folder: names sort as numbers do. */
const runDigits = 8;

/** The spec of a run of a chain, by its number. @param loaded the spec of the whole chain */
export function specOfRun(loaded: LoadedSpec, run: number): LoadedSpec {
  const { spec } = loaded;
  const { parquet } = spec.output;
  return {
    ...loaded,
    spec: {
      ...spec,
      params: { ...spec.params, [runParam]: String(run) },
      output: {
        ...spec.output,
        ...(parquet && { parquet: { ...parquet, path: below(parquet.path, String(run).padStart(runDigits, "0")) } }),
      },
    },
    chain: { run, whole: loaded },
  };
}

type PlaceOf = (path: Path, offset: number) => string;

function specError(problems: readonly Problem[], placeOf: PlaceOf, document: YamlDocument, file: string): JobError {
  const placed = problems
    .map((problem) => ({ problem, offset: positionOf(document, problem) }))
    .toSorted((one, other) => one.offset - other.offset);
  const shown = placed
    .slice(0, problemLimit)
    .map(({ problem, offset }) => `${placeOf(problem.path, offset)}: ${problem.text}`);
  if (problems.length > problemLimit) {
    shown.push(`and ${problems.length - problemLimit} more`);
  }
  const [first = ""] = shown;
  const message = shown.length === 1 ? first : `${file}: ${problems.length} problems\n  ${shown.join("\n  ")}`;
  return new JobError("SPEC_INVALID", `reading ${message}`);
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

function lineOf(file: string, { line, col }: { line: number; col: number }, path: Path): string {
  return `${file}:${line}:${col}${path.length === 0 ? "" : `: ${dotted(path)}`}`;
}

function dotted(path: Path): string {
  return path.map((part, index) => (typeof part === "number" ? `[${part}]` : index === 0 ? part : `.${part}`)).join("");
}

const depthLimit = 16;

function parseYaml(text: string, file: string): { document: YamlDocument; lines: LineCounter } {
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

function keysAt(path: readonly (string | number)[]): string[] {
  let node: unknown = specJsonSchema();
  for (const part of path) {
    const mapping = mappingForm(node);
    node = property(property(mapping, "properties"), String(part)) ?? property(mapping, "additionalProperties");
  }
  return Object.keys(property(mappingForm(node), "properties") ?? {});
}

function mappingForm(node: unknown): unknown {
  const forms = property(node, "anyOf");
  return Array.isArray(forms) ? forms.find((form) => property(form, "properties") !== undefined) : node;
}

function property(value: unknown, key: string): object | undefined {
  const found: unknown = typeof value === "object" && value !== null ? Reflect.get(value, key) : undefined;
  return typeof found === "object" && found !== null ? found : undefined;
}

interface Described {
  readonly valueAt: (path: readonly (string | number)[]) => unknown;
  readonly variablesOf: (path: readonly (string | number)[]) => readonly string[];
}

function describeIssue(issue: SpecIssue, described: Described): Problem[] {
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
    return issue.message.startsWith("expected ") ? issue.message : `expected ${issue.values.map(String).join(" or ")}`;
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

/** Where a pipe's rows come from, as the spec would name it. */
export const pipeName = "stdin";

/** Keys that a pipe does not use: places of input and output, completeness checks, commits and notifications. */
const unused = [
  ...[
    "path",
    "table",
    "catalog",
    "at",
    "since",
    "on_rewrite",
    "format",
    "ready",
    "wait",
    "min_rows",
    "partitions",
    "verify",
    "spool",
  ].map((key) => ["input", key]),
  ...["endpoint", "region", "path_style", "request_payer", "timeouts"].map((key) => ["input", key]),
  ...["parquet", "delta", "iceberg", "postgres"].map((key) => ["output", key]),
  ["challenger"],
  ["reuse"],
  ["commit_rows"],
  ["report"], // there may be hundreds of pipes
];

/** Removes these keys from a spec before it is checked: their variables need not be set where a pipe runs. */
function withoutPlaces(document: YamlDocument): void {
  for (const path of unused) {
    if (document.hasIn(path)) {
      document.deleteIn(path);
    }
  }
  for (const key of ["input", "output"]) {
    if (!document.has(key)) {
      document.set(key, document.createNode({}));
    }
  }
  if (isMap(document.get("input", true))) {
    document.setIn(["input", "path"], pipeName);
  }
}

/** A run of the first rows of a job into a folder of its own, which tries the job. */
export interface LimitedRun {
  readonly rows: number;
  /** An absolute path, or the URI of a folder. */
  readonly folder: string;
}

/** The name of the param that tells limited runs of different sizes apart; no spec can have it. */
export const limitParam = "--limit";

/** Writes Parquet to the folder; no notifications, no checks, since those compare a run with whole ones. */
export function limitedSpec(loaded: LoadedSpec, { rows, folder }: LimitedRun): LoadedSpec {
  const { checks: _checks, challenger: _challenger, reuse: _reuse, publish: _publish, ...job } = loaded.spec;
  const { columns, lineage, parquet } = job.output;
  const { method, timeout } = job.report;
  const spec: JobSpec = {
    ...job,
    input: { ...job.input, since: undefined, on_rewrite: undefined },
    params: { ...job.params, [limitParam]: String(rows) },
    output: {
      columns,
      lineage,
      parquet: { compression: "zstd", ...(isObjectUri(folder) ? parquet : {}), path: folder },
    },
    report: { on_success: "", on_failure: "", on_held: "", on_late: "", method, timeout },
  };
  return { ...loaded, spec, outputPattern: { job: folder, series: folder }, chain: undefined };
}

const promptFile = ["model", "prompt", "file"];

function withPromptFile(
  spec: JobSpec,
  { place: key, readFile }: { readonly place: string; readonly readFile: SpecContext["readFile"] },
): JobSpec {
  const { file, system, ...others } = spec.model.prompt ?? {};
  if (file === undefined || readFile === undefined) {
    return spec;
  }
  const { truncate } = others;
  const user = readFile(file, key);
  const parsed = parseTemplate(user);
  const problem =
    "problem" in parsed
      ? parsed.problem
      : parsed.columns.length === 0
        ? "expected a {{column}} in it: all rows would have the same prompt"
        : truncate !== undefined && !columnsIn([system, user]).includes(truncate.column)
          ? `the prompt has no {{${truncate.column}}}, which model.prompt.truncate names`
          : undefined;
  if (problem !== undefined) {
    throw new JobError("SPEC_INVALID", `reading ${key}: ${file}: ${problem}`);
  }
  // In the order of the schema, as a stored plan has them.
  return { ...spec, model: withPromptInputs({ ...spec.model, prompt: { system, user, ...others } }) };
}
