import type { ModelSignature } from "../columnar/tensor.js";
import { showType, type SourceColumn } from "../columnar/types.js";
import type { InputSource, ModelSpec } from "../spec/model-spec.js";
import { JobError } from "../util/errors.js";
import { didYouMean } from "../util/suggest.js";
import type { ColumnRef, Contract, Expressions } from "./contract.js";
import type { ModelTraits } from "./model-traits.js";
import { sideBySide } from "./side-by-side.js";
import type { TokenizerFacts } from "./tokenizer-facts.js";

/** What a contract is made of. */
export interface ContractRequest {
  /** The model's name in messages. */
  readonly model: string;
  readonly signature: ModelSignature;
  readonly traits: ModelTraits;
  /** Where the columns were read, named in messages. */
  readonly shard: string;
  /** The columns of the file, of its folders, and of `expressions`. */
  readonly columns: readonly SourceColumn[];
  readonly expressions: Expressions | null;
  /** Computed columns that another model takes: this one need not. Default: none. */
  readonly takenElsewhere?: ReadonlySet<string> | undefined;
  readonly inputs: ModelSpec["inputs"];
  /** Whether `inputs` are the columns that a prompt names. Default: no. */
  readonly isPrompted?: boolean | undefined;
  readonly outputs: Readonly<Record<string, string>> | undefined;
  readonly passthrough: readonly string[];
  readonly cast: Contract["cast"];
  readonly missing: Contract["missing"];
  /** The tokenizers of the spec, by their URIs. Default: none. */
  readonly tokenizers?: ReadonlyMap<string, TokenizerFacts>;
}

/** What the spec fills an input with. */
export function sourceOf({ inputs }: Pick<ContractRequest, "inputs">, name: string): InputSource | undefined {
  return inputs !== undefined && Object.hasOwn(inputs, name) ? inputs[name] : undefined;
}

/** The error for a model and columns that do not fit; shows both side by side. */
export function refuse(request: ContractRequest, found: string, hint: string): JobError {
  const tables = sideBySide(request.signature, request.columns, request.shard);
  const message = `binding ${request.model} to the columns of ${request.shard}: ${found}\n\n${tables}\n`;
  return new JobError("CONTRACT", message, { hint });
}

/** For a column that is not there: a spec that has worked is not what is wrong. */
export const incompleteHint = "if earlier runs had it, the input is incomplete: write it again";

/** The column of this name; else, where the name has dots, the field of a struct column that it leads to. */
export function findColumn(name: string, what: string, request: ContractRequest): ColumnRef {
  const found = request.columns.find((candidate) => candidate.name === name);
  if (found !== undefined) {
    return columnRef(found, what, request);
  }
  const [first = "", ...fields] = name.split(".");
  const column = request.columns.find((candidate) => candidate.name === first);
  if (column === undefined || fields.length === 0) {
    const names = request.columns.flatMap((candidate) =>
      fields.length === 0 ? candidate.name : fieldPaths(candidate.name, candidate),
    );
    const similar = didYouMean(name, names);
    throw refuse(
      request,
      `${what} names column \`${name}\`, which is not there${similar}`,
      similar === "" ? `${incompleteHint}; else correct the name` : "names must match exactly",
    );
  }
  let at = column;
  for (const field of fields) {
    const known = fieldsOf(at);
    if (known.length === 0) {
      columnRef(at, what, request); // a map has no fields, and is refused as what it is
    }
    const next = known.find((candidate) => candidate.name === field);
    if (next === undefined) {
      const names = known.map((candidate) => candidate.name);
      throw refuse(
        request,
        `${what} names \`${name}\`, but there is no field \`${field}\` on the way${didYouMean(field, names)}`,
        names.length === 0 ? "only struct columns have fields" : `its fields are ${names.join(", ")}`,
      );
    }
    at = next;
  }
  const { type } = columnRef({ ...at, name }, what, request);
  return { name, path: [first, ...fields], type, ...(column.computed === true ? { computed: true } : {}) };
}

/** `user`, `user.age`, …: all that a path may lead to. */
function fieldPaths(path: string, column: SourceColumn): string[] {
  return [path, ...fieldsOf(column).flatMap((field) => fieldPaths(`${path}.${field.name}`, field))];
}

function fieldsOf({ type, fields = [] }: SourceColumn): readonly SourceColumn[] {
  return typeof type === "object" && type.kind === "struct"
    ? type.fields.map((field) => ({ ...field, sourceType: showType(field.type) }))
    : fields;
}

function columnRef(
  { name, sourceType, type, partition, computed, onlyNulls }: SourceColumn,
  what: string,
  request: ContractRequest,
): ColumnRef {
  if (onlyNulls === true && type === undefined) {
    throw refuse(
      request,
      `${what} names \`${name}\`, which has NULLs only, and a type in no shard`,
      `leave it out, write it with a type, or give it one under input.columns, as in ${name}::DOUBLE`,
    );
  }
  if (type === undefined) {
    throw refuse(
      request,
      `${what} names \`${name}\`, whose type ${sourceType} is not supported`,
      "maps, unions, variants and integers of 128 bits cannot be read; leave this one out, cast it under input.columns, or store its parts as columns",
    );
  }
  return {
    name,
    path: [name],
    type,
    ...(partition === true ? { partition } : {}),
    ...(computed === true ? { computed } : {}),
  };
}
