import { Document, isMap, isScalar, isSeq, type Node } from "yaml";

/** What fills an input: columns, lists that are padded, or their mask. */
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

/** Longer ones have a line for each name. */
const shortList = 8;

type Path = readonly (string | number)[];

/** A commented spec, in the order of the reference. */
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

/** Puts a remark behind a value. */
function commenter(document: Document): (path: Path, text: string) => void {
  return (path, text) => {
    const node = document.getIn(path, true);
    if (text !== "" && (isScalar(node) || isSeq(node) || isMap(node))) {
      (node as Node).comment = ` ${text}`;
    }
  };
}

/** Puts a remark above a key. */
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
