import { type CommandLine, collect, type CommandAnswer } from "../flags.js";
import { access, open, readFile, readdir, stat, unlink, writeFile } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, parse, relative, resolve } from "node:path";
import { Document, type Node, isMap, isScalar, isSeq } from "yaml";
import { openLoaded } from "../../job/open.js";
import { type DeclaredSignature, showTensor } from "../../models/binding/signatures.js";
import { fileError } from "../../job/reading.js";
import { type FeatureOrder, parseFeatureNames } from "../../models/binding/model-facts.js";
import { proposeBinding } from "../../models/binding/propose.js";
import type { SourceColumn } from "../../columns/types.js";
import { isInputFile } from "../../formats/by-format.js";
import { parseMlModel } from "../../models/places/mlflow.js";
import type { FoundModel } from "../../models/places/place.js";
import { foldersIn, partitionsOf, twiceText } from "../../run/plan/partitions.js";
import { contractLines } from "../../report/plan-text.js";
import { editorSchema } from "../../job/jobfile/job-spec.js";
import { previewContract, previewSchema } from "../../run/preview.js";
import { loadSpec } from "../../job/jobfile/load.js";
import { isModelUri, otherStoreProblem } from "../../job/jobfile/uri.js";
import { JobError, errnoOf, reworded } from "../../base/errors.js";
import { quoteThePattern } from "../failure.js";
import { hasWildcards } from "../../sources/listing.js";
import { shellWord } from "../../base/texts.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

export const initCommand: CommandLine = {
  argument: ["File to write", "job.yaml"],
  flags: {
    "--model <file>": "ONNX model: a file, or s3://, gs:// or az://",
    "--input <pattern>": [
      "Input files: a glob such as 'data/*.parquet', or s3://, gs:// or az://; may be repeated",
      collect,
    ],
    "--columns <names>":
      "Comma-separated input columns to copy to the output, such as ids. Default: those that are not features",
    "--output <folder>": "Folder for Parquet output, or s3://, gs:// or az://. Default: out, next to the spec",
    "--postgres [url]": "Write predictions to Postgres instead. A URL with a password is not written into the spec",
    "--table <name>": "Table in Postgres. Default: the table of the job's name in the schema predictions",
    "--name <name>": "Name of the job. Default: from the model's file name",
    "--checks": "Also write, as comments, the keys that hold back a suspicious run",
  },
  required: ["model", "input"],
  examples: ["infer-batch init --model churn.onnx --input 'data/*.parquet'"],
  run: init,
};

interface InitOptions {
  readonly model: string;
  readonly input: readonly string[];
  readonly output?: string;
  /** true: the option was given without a URL. */
  readonly postgres?: string | true;
  readonly table?: string;
  readonly columns?: string;
  readonly name?: string;
  readonly checks?: boolean;
}

const schemaFile = "infer-batch.schema.json";

/** Overwrites no file. @throws JobError USAGE if it exists; CONTRACT if only the model's author knows its features */
async function init(path: string, options: InitOptions, io: SafeIo): Promise<CommandAnswer> {
  checkUrl(options.postgres);
  await refuseExisting(path);
  const folder = dirname(resolve(path));
  const others = await specsBeside(path);
  const name = options.name ?? freeName(nameOf(options.model), others);
  warnOfSameName(name, others, io);
  const base = {
    schema: `./${schemaFile}`,
    command: `infer-batch run ${shellWord(path)}`,
    name,
    ...placesOf(options, folder, name, (await isOutUsed(folder, others)) ? `out-${name}` : "out"),
  };

  const survey = await look(path, { ...base, columns: [], notes: [], types: new Map() });
  const date = dateIn(base.inputPath);
  const carry = options.columns?.split(",").map((column) => column.trim());
  const target = options.output?.includes("${") ? base.target : withFolderName(base.target, survey, carry, date);
  const ofFolders = "parquet" in target ? foldersIn(target.parquet) : new Set<string>();
  const order = await featureOrderOf(survey.resolved);
  const { inputs, columns, outputs, notes: ofBinding } = proposeBinding({ ...survey, order, carry, ofFolders });
  const types = new Map(
    [...survey.signature.inputs, ...survey.signature.outputs].map((tensor) => [tensor.name, showTensor(tensor)]),
  );
  const model = { path: base.model.path, sha256: survey.sha256, inputs, outputs };
  const notes = [
    ...ofBinding,
    ...noteOnFolders(target, carry === undefined ? survey.columns : [], columns),
    ...(date === undefined ? noteOnDates(survey.shard, options.input) : []),
  ];
  const inputPath =
    date === undefined ? base.inputPath : base.inputPath.map((pattern) => pattern.replaceAll(date, "${ds}"));

  const draft = draftSpec({ ...base, target, inputPath, model, types, columns, notes });
  const text = options.checks === true ? `${draft}${checksText(columns)}` : draft;
  const bound = await bind(path, text, date);
  await create(path, text);
  const schema = await createSchema(join(folder, schemaFile));
  const lines = [
    `${path} is written${schema}`,
    ...bound,
    ...notes.map((note) => `note     ${note}`),
    nextSteps(path, options, date),
  ];
  return { json: () => lines, text: () => lines };
}

/** As comments. The first column that is carried through is probably the key. */
function checksText([key = "id"]: readonly string[]): string {
  return `
# Compare each night with the recent ones, and hold it if it is unlike all of them (checks.md):
# checks:
#   unique: [${/^[\w-]+$/.test(key) ? key : JSON.stringify(key)}] # the columns that identify a row
# report:
#   html: report.html # what the checks say, with charts
`;
}

async function isOutUsed(folder: string, others: readonly string[]): Promise<boolean> {
  return others.some(writesToOut) || (await stat(join(folder, "out")).catch(() => undefined)) !== undefined;
}

/** The date in the names of the input files, in place of which the spec has the date of the run; undefined: none, or several. */
function dateIn(paths: readonly string[]): string | undefined {
  const dates = new Set(paths.flatMap((path) => path.match(/(?<![\d-])\d{4}-\d{2}-\d{2}(?![\d-])/g) ?? [""]));
  const [date = ""] = dates;
  return dates.size === 1 && date !== "" ? date : undefined;
}

/** Says that each run would score the files of all dates, if there are folders of dates below what was named. */
function noteOnDates(shard: string, [pattern = ""]: readonly string[]): string[] {
  const date = dateIn([dirname(shard)]);
  return date === undefined || (pattern.includes(date) && !hasWildcards(dirname(pattern)))
    ? []
    : [
        `each run scores the files of all dates. For a run a day, name in --input the folder of one day, such as ${date}: init writes \${ds} in its place`,
      ];
}

function noteOnFolders(
  target: SpecDraft["target"],
  inShard: readonly SourceColumn[],
  columns: readonly string[],
): string[] {
  if (!("parquet" in target)) {
    return [];
  }
  const twice = twiceText(columns, target.parquet);
  const ofFolders = foldersIn(target.parquet);
  const left = inShard
    .map(({ name }) => name)
    .filter((name) => ofFolders.has(name.toLowerCase()) && !columns.includes(name));
  return [
    ...(twice === undefined ? [] : [twice]),
    ...left.map((name) => `${name} is not carried through: the name of the output folder, ${target.parquet}, has it`),
  ];
}

function nextSteps(path: string, { postgres }: InitOptions, date: string | undefined): string {
  const first = postgres === undefined || writtenUrl(postgres) === postgres ? "" : `set DATABASE_URL, then `;
  const spec = `${shellWord(path)}${date === undefined ? "" : ` --param ds=${date}`}`;
  return `next     ${first}infer-batch plan ${spec}, then infer-batch run ${spec}`;
}

async function refuseExisting(path: string): Promise<void> {
  try {
    await access(path);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") {
      return;
    }
    throw notWritten(path, error);
  }
  throw alreadyThere(path);
}

function alreadyThere(path: string): JobError {
  if (isInputFile(path)) {
    return new JobError("USAGE", `writing ${path}: it is an input file, not a name for the spec`, {
      hint: quoteThePattern,
    });
  }
  return new JobError("USAGE", `writing ${path}: it already exists`, {
    hint: "init overwrites no file; name another one: infer-batch init other.yaml …",
  });
}

function notWritten(path: string, cause: unknown): unknown {
  return fileError(`writing ${path}`, cause, "name a file in a folder that is there and that this user can write to");
}

/** Jobs of one name would share their runs. */
function freeName(name: string, others: readonly string[]): string {
  const isFree = (wanted: string): boolean => !others.some((spec) => hasName(spec, wanted));
  for (let number = 2; !isFree(name) && number <= others.length + 1; number += 1) {
    const numbered = `${name.slice(0, 60)}-${number}`;
    if (isFree(numbered)) {
      return numbered;
    }
  }
  return name;
}

/** Only warns: `--name` may ask for it, and the specs may have different targets. */
function warnOfSameName(name: string, others: readonly string[], io: SafeIo): void {
  if (others.some((spec) => hasName(spec, name))) {
    createWarningLog(io.stderr).warn(
      `another spec in this folder has the name ${name}: in one target, each job takes the runs of the other for its own; give them different names`,
    );
  }
}

/** "daily-churn" from models/Daily_Churn.onnx, "churn" from models:/churn@champion. */
function nameOf(model: string): string {
  const [, registered] = /^models:\/([^/@]+)/.exec(model) ?? [];
  const plain = (registered ?? parse(model).name).toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  return plain.replaceAll(/^-+|-+$/g, "").slice(0, 63) || "job";
}

async function look(path: string, draft: SpecDraft): Promise<Awaited<ReturnType<typeof previewSchema>>> {
  return await onDraft(async () => {
    await using opened = await openText(path, draftSpec({ ...draft, target: { parquet: `${basename(path)}.out` } }));
    return await previewSchema(opened);
  });
}

async function bind(path: string, text: string, date: string | undefined): Promise<string[]> {
  await using opened = await openText(path, text, date === undefined ? {} : { ds: date });
  const contract = await previewContract(opened);
  return contract === undefined ? [] : contractLines(contract);
}

async function openText(
  path: string,
  text: string,
  params: Readonly<Record<string, string>> = {},
): ReturnType<typeof openLoaded> {
  // This checks the spec, and does not connect to the database.
  const env = { DATABASE_URL: "postgres://localhost/postgres", ...process.env };
  const loaded = loadSpec(text, { file: path, params, env, nowMs: Date.now(), optionOf });
  return await openLoaded(loaded, path);
}

const optionsByKey = {
  name: "--name",
  "input.path": "--input",
  "model.path": "--model",
  "output.columns": "--columns",
  "output.parquet.path": "--output",
  "output.postgres.url": "--postgres",
  "output.postgres.table": "--table",
};

/** The draft is in no file, so that messages cannot name a line. */
function optionOf(path: readonly (string | number)[]): string | undefined {
  return Object.entries(optionsByKey).find(([key]) => `${path.join(".")}.`.startsWith(`${key}.`))?.[1];
}

/** Paths in options are not relative to a spec. */
async function onDraft<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError && error.code === "FILE_MISSING") {
      throw reworded(error, { hint: "paths in options are relative to the working folder" });
    }
    throw error;
  }
}

async function create(path: string, text: string): Promise<void> {
  const file = await open(path, "wx").catch((cause: unknown) => {
    throw errnoOf(cause) === "EEXIST" ? alreadyThere(path) : notWritten(path, cause);
  });
  try {
    await file.writeFile(text);
  } catch (cause) {
    await unlink(path).catch(() => undefined); // half a spec would block the next attempt
    throw notWritten(path, cause);
  } finally {
    await file.close();
  }
}

async function createSchema(path: string): Promise<string> {
  const text = `${JSON.stringify(editorSchema(), undefined, 2)}\n`;
  return await writeFile(path, text, { flag: "wx" }).then(
    () => `, and ${schemaFile}, with which editors complete and check the spec`,
    () => "",
  );
}

function placesOf(
  { model, input, output, postgres, table }: InitOptions,
  folder: string,
  name: string,
  own: string,
): Pick<SpecDraft, "inputPath" | "model" | "target"> {
  const place = (text: string): string =>
    isModelUri(text) ||
    otherStoreProblem(text) !== undefined ||
    isAbsolute(text) ||
    text.startsWith("${") ||
    folder === process.cwd()
      ? text
      : relative(folder, resolve(text)) || ".";
  const into = output === undefined ? own : place(output);
  if (postgres !== undefined && output !== undefined) {
    throw new JobError("USAGE", "reading --output: predictions go to a folder or to --postgres, not to both", {
      hint: "leave one of them out",
    });
  }
  const ownTable = `${/^\d/.test(name) ? "job_" : ""}${name.replaceAll("-", "_")}`;
  return {
    inputPath: input.map(place),
    model: { path: place(model), sha256: "", inputs: undefined, outputs: { prediction: "prediction" } },
    target:
      postgres === undefined
        ? { parquet: into.includes("${") ? into : `${into.replace(/\/$/, "")}/dt=\${ds}` }
        : { postgres: { url: writtenUrl(postgres), table: table ?? `predictions.${ownTable}` } },
  };
}

/** commander takes the word after `--postgres` for its argument. */
function checkUrl(postgres: InitOptions["postgres"]): void {
  if (typeof postgres === "string" && /\.ya?ml$/i.test(postgres)) {
    throw new JobError("USAGE", `reading --postgres ${postgres}: expected postgres://user@host:port/database`, {
      hint: `the file to write goes first: infer-batch init ${shellWord(postgres)} … --postgres`,
    });
  }
}

/** As it is if it has no secret, else a reference to the environment. */
function writtenUrl(url: string | true): string {
  return url === true || /:\/\/[^@]*:[^@]*@|password=/i.test(url) ? "${DATABASE_URL}" : url;
}

/** Names of the folder of a run, in order of preference. */
const folderNames = ["dt", "ds", "run_date"];

/**
 * Names the folder that `init` gives each run after a column that its files do not have: pandas and pyarrow cannot read
 * files with a column that the names of their folders give, too. A folder of the input that has the date of the run in its
 * name keeps this name.
 * @param carry the columns that `--columns` names; undefined: `init` chooses
 * @param date the date in the path of the input, in place of which the spec has that of the run
 */
function withFolderName(
  target: SpecDraft["target"],
  { columns, shard }: Awaited<ReturnType<typeof previewSchema>>,
  carry: readonly string[] | undefined,
  date: string | undefined,
): SpecDraft["target"] {
  const ownFolder = `/${folderNames[0]}=\${ds}`;
  if (!("parquet" in target) || !target.parquet.endsWith(ownFolder)) {
    return target;
  }
  const isFree = (folder: string): boolean => {
    const column = columns.find(({ name }) => name.toLowerCase() === folder);
    const isDate = column?.partition === true && date !== undefined && partitionsOf(shard).get(column.name) === date;
    return column === undefined || (carry === undefined ? isDate : !carry.includes(column.name));
  };
  const chosen = folderNames.find(isFree);
  return chosen === undefined ? target : { parquet: target.parquet.replace(ownFolder, () => `/${chosen}=\${ds}`) };
}

/** As its metadata, its signature in MLflow or a file beside it says; undefined: nothing says it. */
async function featureOrderOf({ model, signature }: FoundModel): Promise<FeatureOrder | undefined> {
  const { features } = model.traits;
  if (features !== undefined || !("path" in model)) {
    return features;
  }
  const beside = async (name: string): Promise<string> =>
    await readFile(join(dirname(model.path), name), "utf8").catch(() => "");
  const declared = columnsOf(signature ?? parseMlModel(await beside("MLmodel"))?.signature);
  if (declared.length > 0) {
    return { names: declared, from: "the model's signature in MLflow" };
  }
  for (const name of ["feature_names.json", "feature_names.txt"]) {
    const names = parseFeatureNames(await beside(name));
    if (names.length > 0) {
      return { names, from: `${name} beside the model` };
    }
  }
  return undefined;
}

function columnsOf(signature: DeclaredSignature | undefined): readonly string[] {
  const { inputs = [] } = signature ?? {};
  const names = inputs.flatMap(({ kind, name }) => (kind === "column" && name !== undefined ? [name] : []));
  return names.length === inputs.length ? names : [];
}

/** More files are no folder of jobs. */
const mostFiles = 200;

/** Leaves out files that cannot be read. */
async function specsBeside(path: string): Promise<readonly string[]> {
  const folder = dirname(resolve(path));
  const names = await readdir(folder).catch(() => []);
  const others = names.filter((name) => /\.ya?ml$/i.test(name) && name !== basename(path)).slice(0, mostFiles);
  return await Promise.all(others.map((name) => readFile(join(folder, name), "utf8").catch(() => "")));
}

function hasName(spec: string, name: string): boolean {
  return [...spec.matchAll(/^name:\s*["']?([^\s"'#]+)/gm)].some(([, written]) => written === name);
}

function writesToOut(spec: string): boolean {
  return /path:\s*["']?(?:\.\/)?out\//.test(spec);
}

type DraftSource =
  | readonly string[]
  | { readonly column: string; readonly pad: { readonly to: number } }
  | { readonly mask_of: string };

/** What `infer-batch init` found out, for a spec that its author completes. */
export interface SpecDraft {
  /** For editors: a JSON Schema, relative to the spec. */
  readonly schema: string;
  /** The command line that runs it. */
  readonly command: string;
  readonly name: string;
  readonly inputPath: readonly string[];
  readonly model: {
    readonly path: string;
    readonly sha256: string;
    readonly inputs: Readonly<Record<string, DraftSource>> | undefined;
    readonly outputs: Readonly<Record<string, string>>;
  };
  /** Types of the model's inputs and outputs by name, as comments show them: "float32 [N,30]". */
  readonly types: ReadonlyMap<string, string>;
  readonly columns: readonly string[];
  readonly target:
    | { readonly parquet: string }
    | { readonly postgres: { readonly url: string; readonly table: string } };
  /** What its author should know. */
  readonly notes: readonly string[];
}

/** A name in a file may look like a reference of ours. */
function literal(name: string): string {
  return name.replaceAll("${", () => "$${"); // as a text, `$$` would be one dollar
}

function mapped<T, U>(record: Readonly<Record<string, T>>, change: (value: T) => U): Record<string, U> {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, change(value)]));
}

function literalSource(source: DraftSource): DraftSource {
  return "length" in source
    ? source.map(literal)
    : "column" in source
      ? { ...source, column: literal(source.column) }
      : { mask_of: literal(source.mask_of) };
}

function remarkOn(source: DraftSource): string {
  return "length" in source
    ? "columns in the order in which the model takes them"
    : "column" in source
      ? "lists are padded with 0 (pad.value) up to this length, and a longer one is a bad row; check both"
      : "1 where that input's lists have elements, 0 where they are padded";
}

const shortList = 8;

type Path = readonly (string | number)[];

/** A commented spec, in the order of the reference. @public so that tests reach it */
export function draftSpec(draft: SpecDraft): string {
  const { name, inputPath, model, columns, target } = draft;
  const [path = "", ...others] = inputPath;
  const document = new Document({
    version: 1,
    name,
    timezone: "UTC",
    params: { ds: { type: "date", default: "${today}" } },
    input: { path: others.length === 0 ? path : inputPath },
    model: {
      path: model.path,
      ...(model.inputs === undefined ? {} : { inputs: mapped(model.inputs, literalSource) }),
      outputs: mapped(model.outputs, literal),
    },
    output: {
      columns,
      ...("parquet" in target ? { parquet: { path: target.parquet } } : { postgres: postgresOf(target.postgres) }),
    },
    on_bad_row: "fail",
  });
  document.commentBefore = header(draft);
  const comment = commenter(document);
  flow(document, ["params", "ds"]);
  comment(["timezone"], "for ${today}; an IANA name such as Europe/Berlin");
  comment(["params", "ds"], "the day of the run; another one: --param ds=2026-01-31");
  const dated = path.includes("${ds}") ? "" : "; ${ds} may be part of it: features/dt=${ds}/*.parquet";
  comment(["input", "path"], `relative to this file${dated}`);
  comment(["model", "path"], `to refuse any other file: sha256: ${model.sha256}`);
  for (const [input, source] of Object.entries(model.inputs ?? {})) {
    remarkAbove(document, ["model", "inputs"], input, `${draft.types.get(input) ?? ""}: ${remarkOn(source)}`);
    if (!("length" in source) || source.length <= shortList) {
      flow(document, ["model", "inputs", input]);
    }
  }
  for (const [column, reference] of Object.entries(model.outputs)) {
    comment(["model", "outputs", column], draft.types.get(reference.replace(/\[\d+\]$/, "")) ?? "");
  }
  comment(["output", "columns"], "input columns copied to the output");
  comment(["output", "parquet", "path"], "a folder for each run; readers wait for its _SUCCESS");
  comment(["output", "postgres", "url"], "keep passwords out of this file: DATABASE_URL, PGPASSWORD or .pgpass");
  comment(["output", "postgres", "table"], "created if it does not exist");
  comment(["output", "postgres", "mode"], "append; upsert with key: [the columns that identify a row]; or replace");
  comment(["on_bad_row"], "reject sets aside rows that cannot be scored, up to max_rejects");
  flow(document, ["output", "columns"]);
  return document.toString({ lineWidth: 110, flowCollectionPadding: false });
}

function header({ schema, command, notes }: SpecDraft): string {
  return [
    ` yaml-language-server: $schema=${schema}`,
    " Made by `infer-batch init`. docs/job-spec.md of infer-batch explains every key.",
    ` \`${command}\` scores it; the same command resumes a run that was interrupted.`,
    ...notes.map((note) => ` Note: ${note.replaceAll(/\p{Cc}/gu, " ")}`),
  ].join("\n");
}

function postgresOf({ url, table }: { readonly url: string; readonly table: string }): object {
  return { url, table, mode: "append" };
}

function commenter(document: Document): (path: Path, text: string) => void {
  return (path, text) => {
    const node = document.getIn(path, true);
    if (text !== "" && (isScalar(node) || isSeq(node) || isMap(node))) {
      (node as Node).comment = ` ${text}`;
    }
  };
}

function remarkAbove(document: Document, path: Path, name: string, text: string): void {
  const map = document.getIn(path, true);
  const pair = isMap(map) ? map.items.find(({ key }) => isScalar(key) && key.value === name) : undefined;
  if (pair !== undefined && isScalar(pair.key)) {
    pair.key.commentBefore = ` ${text}`;
  }
}

function flow(document: Document, path: Path): void {
  const node = document.getIn(path, true);
  if (isSeq(node) || isMap(node)) {
    node.flow = true;
  }
}
