import {
  type ModelSignature,
  isTensorType,
  type TensorSignature,
  type DerivedInput,
  type Tokenizing,
  columnTypeOfTensor,
} from "../../columns/tensor.js";
import { showType, type SourceColumn, type ColumnType } from "../../columns/types.js";
import {
  type InputSource,
  type ModelSpec,
  type MaskSource,
  type PaddedSource,
  type TokensSource,
  parseOutputReference,
} from "../../job/jobfile/model-spec.js";
import { JobError } from "../../base/errors.js";
import { didYouMean } from "../../base/suggest.js";
import {
  type ColumnRef,
  type Contract,
  type Expressions,
  type InputBinding,
  type NumericTensorType,
  type PaddedBinding,
  type TextBinding,
  type OutputBinding,
  boundColumns,
  type PassthroughBinding,
} from "./contract.js";
import { type ModelTraits, type TokenizerFacts, keepRows, tensorRemedy } from "./model-facts.js";
import { sideBySide, showTensor } from "./signatures.js";
import { isElementType } from "../../columns/values.js";
import { outputName } from "../../job/jobfile/values.js";

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

function sourceOf({ inputs }: Pick<ContractRequest, "inputs">, name: string): InputSource | undefined {
  return inputs !== undefined && Object.hasOwn(inputs, name) ? inputs[name] : undefined;
}

/** The error for a model and columns that do not fit; shows both side by side. */
export function refuse(request: ContractRequest, found: string, hint: string): JobError {
  const tables = sideBySide(request.signature, request.columns, request.shard);
  const message = `binding ${request.model} to the columns of ${request.shard}: ${found}\n\n${tables}\n`;
  return new JobError("CONTRACT", message, { hint });
}

interface Binding extends ContractRequest {
  readonly refuse: (found: string, hint: string) => JobError;
}

/** For a column that is not there: a spec that has worked is not what is wrong. */
const incompleteHint = "if earlier runs had it, the input is incomplete: write it again";

/** The column of this name; else, where the name has dots, the field of a struct column that it leads to. */
function findColumn(name: string, what: string, request: Binding): ColumnRef {
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
    throw request.refuse(
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
      throw request.refuse(
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
  request: Binding,
): ColumnRef {
  if (onlyNulls === true && type === undefined) {
    throw request.refuse(
      `${what} names \`${name}\`, which has NULLs only, and a type in no shard`,
      `leave it out, write it with a type, or give it one under input.columns, as in ${name}::DOUBLE`,
    );
  }
  if (type === undefined) {
    throw request.refuse(
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

function textColumn(name: string): string {
  return `text of ${name}`;
}

/** Finds columns that a prompt names and that are no texts, with the SQL that makes them texts. */
export function textsOf(names: readonly string[], columns: readonly SourceColumn[]): [name: string, sql: string][] {
  return names.flatMap((name): [string, string][] => {
    const found = typeOf(name, columns);
    return found === undefined || found.type === "utf8" || !isScalar(found.type)
      ? []
      : [
          [
            textColumn(name),
            `cast(${found.path.map((part) => `"${part.replaceAll('"', '""')}"`).join(".")} as varchar)`,
          ],
        ];
  });
}

function findPromptColumn(name: string, request: Binding): ColumnRef {
  const asText = request.columns.find((column) => column.name === textColumn(name));
  return asText === undefined
    ? findColumn(name, "model.prompt", request)
    : { name, path: [asText.name], type: "utf8", computed: true };
}

interface FoundType {
  readonly path: readonly string[];
  readonly type: ColumnType;
}

function typeOf(name: string, columns: readonly SourceColumn[]): FoundType | undefined {
  const whole = columns.find((column) => column.name === name)?.type;
  if (whole !== undefined) {
    return { path: [name], type: whole };
  }
  const path = name.split(".");
  let type = columns.find((column) => column.name === path[0])?.type;
  for (const field of path.slice(1)) {
    type =
      typeof type === "object" && type.kind === "struct"
        ? type.fields.find((candidate) => candidate.name === field)?.type
        : undefined;
  }
  return type === undefined ? undefined : { path, type };
}

/** Lists, structs and bytes have no text that all would agree on. */
function isScalar(type: ColumnType): boolean {
  return typeof type === "string" ? type !== "binary" : type.kind === "decimal";
}

function bindPadded(
  input: TensorSignature,
  { column: name, pad: { to, ...how } }: PaddedSource,
  request: Binding,
): PaddedBinding {
  const dtype = numericMatrix(input, `model.inputs.${input.name} pads`, request);
  const column = findColumn(name, `model.inputs.${input.name}`, request);
  if (!isList(column.type)) {
    throw request.refuse(
      `model.inputs.${input.name} pads lists, column \`${name}\` is ${showType(column.type)}`,
      `only lists are padded; without pad: model.inputs: { ${input.name}: [${name}] }`,
    );
  }
  requireNumbers(column, input, request);
  const fixed = input.shape[1] ?? null;
  const width = to ?? fixed;
  if (width === null) {
    throw request.refuse(
      `input \`${input.name}\` is ${showTensor(input)}: it does not say how many elements a row has`,
      `say it: ${padExample(input, name)}`,
    );
  }
  if (fixed !== null && width !== fixed) {
    throw request.refuse(
      `model.inputs.${input.name} pads to ${width} elements, the input is ${showTensor(input)}`,
      "leave pad.to out, or export the model with that dimension free",
    );
  }
  if (fixed !== null && how.shrink) {
    throw request.refuse(
      `model.inputs.${input.name} shrinks, the input is ${showTensor(input)}`,
      "leave pad.shrink out, or export the model with that dimension free",
    );
  }
  if (!holds(dtype, how.value)) {
    throw request.refuse(
      `model.inputs.${input.name} pads with ${how.value}, which ${dtype} cannot hold`,
      "choose a pad.value of the input's type, as the model was trained with",
    );
  }
  return { kind: "padded", input: input.name, dtype, width, column, ...how };
}

function bindMask(
  input: TensorSignature,
  { mask_of: of }: MaskSource,
  bound: ReadonlyMap<string, InputBinding>,
  request: Binding,
): InputBinding {
  const what = `model.inputs.${input.name}.mask_of`;
  const dtype = numericMatrix(input, `${what} makes a mask of`, request);
  const names = request.signature.inputs.map(({ name }) => name);
  if (!names.includes(of)) {
    throw request.refuse(
      `${what} names \`${of}\`, which is no input of the model${didYouMean(of, names)}`,
      `its inputs are ${names.join(", ")}`,
    );
  }
  const masked = bound.get(of);
  if (masked?.kind !== "padded") {
    throw request.refuse(
      `${what} names \`${of}\`, which is not padded`,
      `only lists that are padded have a mask: model.inputs: { ${of}: { column: …, pad: { to: 128 } } }`,
    );
  }
  requireWidth(input, { ...masked, of, unit: "elements" }, request);
  return { kind: "mask", input: input.name, dtype, of };
}

function numericMatrix(input: TensorSignature, does: string, request: Binding): NumericTensorType {
  const { dtype, shape } = input;
  if (!isTensorType(dtype) || dtype === "string" || shape.length !== 2) {
    throw request.refuse(
      `${does} \`${input.name}\`, which is ${showTensor(input)}`,
      "padded lists and tokens are for inputs [N,S] of numbers or bool",
    );
  }
  return dtype;
}

function requireNumbers(column: ColumnRef, input: TensorSignature, request: Binding): void {
  const { type } = column;
  const element = typeof type === "object" && type.kind === "list" ? type.element : undefined;
  if (element === undefined || !(isNumeric(element) || element === "bool")) {
    const nested = element !== undefined && isList(element);
    throw request.refuse(
      `input \`${input.name}\` takes numbers, column \`${column.name}\` is ${showType(type)}`,
      nested ? "bind a list of numbers to it; lists of lists are not supported" : "bind a list of numbers to it",
    );
  }
}

/** How the spec pads a column for an input. */
export function padExample(input: Pick<TensorSignature, "name">, column: string): string {
  return `model.inputs: { ${input.name}: { column: ${column}, pad: { to: 128 } } }`;
}

export function isList(type: ColumnType): boolean {
  return typeof type === "object" && type.kind === "list";
}

function isNumeric(type: ColumnType): boolean {
  return typeof type === "string" ? isElementType(type) : type.kind === "decimal";
}

function holds(dtype: NumericTensorType, value: number): boolean {
  const [, unsigned, bits] = /^(u?)int(\d+)$/.exec(dtype) ?? [];
  if (bits !== undefined) {
    const least = unsigned === "u" ? 0 : -(2 ** (Number(bits) - 1));
    const limit = 2 ** (Number(bits) - (unsigned === "u" ? 0 : 1));
    return Number.isSafeInteger(value) && value >= least && value < limit;
  }
  const limit = dtype === "float16" ? float16Limit : dtype === "float32" ? float32Limit : Number.MAX_VALUE;
  return dtype === "bool" ? value === 0 || value === 1 : Math.abs(value) <= limit;
}

const float16Limit = 65504;
const float32Limit = (2 - 2 ** -23) * 2 ** 127;

/** The greatest number of tokens of a text where neither spec, model nor tokenizer says. */
const defaultMax = 64;

/** An input `[N, S]` of the token ids of a text column, with the masks and token types that are made with them. */
function bindTokens(input: TensorSignature, source: TokensSource, request: Binding): TextBinding {
  const what = `model.inputs.${input.name}`;
  const dtype = numericMatrix(input, `${what} makes tokens for`, request);
  if (dtype !== "int64" && dtype !== "int32") {
    throw request.refuse(`${what} makes tokens for \`${input.name}\`, which is ${showTensor(input)}`, int64Hint);
  }
  const column = findColumn(source.tokenize, what, request);
  if (column.type !== "utf8") {
    const found = `${what} tokenizes texts, column \`${column.name}\` is ${showType(column.type)}`;
    throw request.refuse(found, "name a text column");
  }
  const facts = request.tokenizers?.get(source.tokenizer);
  if (facts === undefined) {
    throw new RangeError(`the tokenizer ${source.tokenizer} was not read`);
  }
  const fixed = input.shape[1] ?? null;
  const width = source.max ?? fixed ?? facts.maxTokens ?? defaultMax;
  if (fixed !== null && (width !== fixed || source.shrink === true)) {
    const wants = source.shrink === true ? "shrinks" : `makes ${width} tokens`;
    const hint = `leave ${source.shrink === true ? "shrink" : "max"} out, or export the model with that dimension free`;
    throw request.refuse(`${what} ${wants}, the input is ${showTensor(input)}`, hint);
  }
  const masks = madeFrom(input.name, "mask_of", request);
  if (facts.padId === undefined && masks.length === 0) {
    throw request.refuse(
      `${source.tokenizer} has no padding token, and no input of the model is a mask of \`${input.name}\``,
      "texts of different lengths need one or the other: export the model with an attention mask",
    );
  }
  const shrink = source.shrink ?? (fixed === null && masks.length > 0);
  const types = madeFrom(input.name, "types_of", request);
  for (const one of [...masks, ...types]) {
    requireWidth(one, { width, shrink, of: input.name, unit: "tokens" }, request);
  }
  const { sha256: tokenizer, cut, side, padId: value = 0 } = facts;
  const sorted = shrink && input.shape[0] === null;
  const derived = {
    masks: masks.map((one) => derivedOf(one, request)),
    types: types.map((one) => derivedOf(one, request)),
  };
  const tokens: Tokenizing = { tokenizer, dtype, width, cut, value, side, shrink, sorted, ...derived };
  return { kind: "text", input: input.name, rank: 1, column, tokens };
}

const int64Hint = "export the model with token ids of int64 or int32";

/** @throws JobError CONTRACT for types of another input */
function isMadeWithTokens(name: string, request: Binding): boolean {
  const source = sourceOf(request, name);
  if (source !== undefined && "types_of" in source) {
    const names = Object.keys(request.inputs ?? {});
    const of = source.types_of;
    if (!isTokens(of, request)) {
      throw request.refuse(
        `model.inputs.${name}.types_of names \`${of}\`, which takes no tokens${names.includes(of) ? "" : didYouMean(of, names)}`,
        "only tokens have types: name an input with tokenize",
      );
    }
    return true;
  }
  return source !== undefined && "mask_of" in source && isTokens(source.mask_of, request);
}

function isTokens(name: string, request: Binding): boolean {
  const source = sourceOf(request, name);
  return source !== undefined && "tokenize" in source;
}

function madeFrom(of: string, key: "mask_of" | "types_of", request: Binding): TensorSignature[] {
  return request.signature.inputs.filter(({ name }) => {
    const source = sourceOf(request, name);
    return source !== undefined && JSON.stringify(source) === JSON.stringify({ [key]: of });
  });
}

function derivedOf(input: TensorSignature, request: Binding): DerivedInput {
  return { input: input.name, dtype: numericMatrix(input, `model.inputs.${input.name} is made for`, request) };
}

function requireWidth(
  input: TensorSignature,
  { width, shrink, of, unit }: Pick<PaddedBinding, "width" | "shrink"> & { readonly of: string; readonly unit: string },
  request: Binding,
): void {
  const fixed = input.shape[1] ?? null;
  if (fixed !== null && (shrink || fixed !== width)) {
    throw request.refuse(
      `input \`${input.name}\` is ${showTensor(input)}, the rows of \`${of}\` have ${width} ${unit}${shrink ? ", or fewer" : ""}`,
      "a mask is as wide as its input: set shrink: false, and that length; or export the model with that dimension free",
    );
  }
}

function bindInputs(request: Binding): Pick<Contract, "inputs" | "fixedBatchRows"> {
  const { signature } = request;
  const names = signature.inputs.map(({ name }) => name);
  const unknown = Object.keys(request.inputs ?? {}).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw request.refuse(
      `model.inputs names \`${unknown}\`, which is no input of the model${didYouMean(unknown, names)}`,
      `its inputs are ${names.join(", ")}`,
    );
  }
  if (names.length === 0) {
    throw request.refuse("the model has no inputs", "is this the right model?");
  }
  // A mask takes its form from another input, which may come after it. Masks and types of tokens are made with these.
  const others = signature.inputs.filter(
    ({ name }) => maskSource(request, name) === undefined && !isMadeWithTokens(name, request),
  );
  const bound = new Map(others.map((input) => [input.name, bindInput(input, request)]));
  const inputs = signature.inputs.flatMap((input) => {
    const source = maskSource(request, input.name);
    return isMadeWithTokens(input.name, request)
      ? []
      : (bound.get(input.name) ?? (source && bindMask(input, source, bound, request)) ?? []);
  });
  return { inputs, fixedBatchRows: fixedRows(request) };
}

function maskSource(request: Binding, input: string): MaskSource | undefined {
  const source = sourceOf(request, input);
  return source !== undefined && "mask_of" in source ? source : undefined;
}

function fixedRows(request: Binding): number | null {
  const { inputs } = request.signature;
  const fixed = inputs.filter(({ shape }) => typeof shape[0] === "number");
  const sizes = new Set(fixed.map(({ shape }) => shape[0] ?? null));
  const [rows = null, ...others] = sizes;
  if (others.length > 0) {
    throw request.refuse(
      `the model's inputs have different fixed batch sizes: ${[...sizes].join(", ")}`,
      "export it with one batch dimension",
    );
  }
  if (rows === 0) {
    throw request.refuse("the model takes batches of no row", "export it with a batch dimension");
  }
  const [input] = fixed;
  if (input !== undefined && rows !== 1 && fixed.length < inputs.length) {
    throw request.refuse(
      `input \`${input.name}\` is ${showTensor(input)}: its first dimension is fixed, and those of other inputs are not, so it may have a constant for all rows in place of a value for each row`,
      "export the model with the constant in it, or with a batch dimension that all inputs share",
    );
  }
  return rows;
}

function bindInput(input: TensorSignature, request: Binding): InputBinding {
  const { dtype, shape } = input;
  if (!isTensorType(dtype) || shape.length < 1 || shape.length > 2) {
    throw request.refuse(
      `input \`${input.name}\` is ${showTensor(input)}; [N] and [N,F] of numbers, bool or strings are supported`,
      "export the model with such inputs",
    );
  }
  const source = sourceOf(request, input.name);
  if (source !== undefined && "pad" in source) {
    return bindPadded(input, source, request);
  }
  if (source !== undefined && "tokenize" in source) {
    return bindTokens(input, source, request);
  }
  const columns = columnsFor(input, request);
  const [first] = columns;
  if (dtype === "string") {
    return bindText(input, columns, request);
  }
  if (columns.length === 1 && first !== undefined && isList(first.type)) {
    return bindList(input, dtype, first, request);
  }
  for (const column of columns) {
    requireNumber(column, input, request);
  }
  const width = shape.length === 1 ? 1 : shape[1];
  if (columns.length === 0 || (width !== null && width !== columns.length)) {
    throw countMismatch(input, columns.length, request);
  }
  return { kind: "matrix", input: input.name, dtype, rank: shape.length === 1 ? 1 : 2, columns };
}

function listed(request: Binding, name: string): readonly string[] | undefined {
  const source = sourceOf(request, name);
  return source !== undefined && "length" in source ? source : undefined;
}

function columnsFor(input: TensorSignature, request: Binding): ColumnRef[] {
  const named = listed(request, input.name);
  if (named !== undefined) {
    return named.map((name) =>
      request.isPrompted === true
        ? findPromptColumn(name, request)
        : findColumn(name, `model.inputs.${input.name}`, request),
    );
  }
  const same = request.columns.find(({ name }) => name === input.name);
  const wide = input.shape.length === 2 && input.shape[1] !== 1 && input.dtype !== "string";
  if (same !== undefined && (!wide || (same.type !== undefined && isList(same.type)))) {
    return [findColumn(input.name, "the model's input", request)];
  }
  if (request.signature.inputs.length === 1 && input.dtype !== "string") {
    const features = defaultFeatures(request);
    if (input.shape.length === 2 && input.shape[1] === null) {
      // An id or a label among the features would not be noticed, because a forest accepts any number of columns.
      const names = features.map(({ name }) => name).join(", ");
      throw request.refuse(
        `input \`${input.name}\` is ${showTensor(input)}: it does not say how many columns it takes`,
        `list them in the model's order: model.inputs: { ${input.name}: [${names}] }`,
      );
    }
    return features;
  }
  const similar = didYouMean(
    input.name,
    request.columns.map(({ name }) => name),
  );
  const mask = maskHint(input, request);
  const first = similar === "" && mask === "" ? `${incompleteHint}; else ` : "";
  throw request.refuse(
    `no column is called like input \`${input.name}\`${similar}`,
    `${first}name its columns under model.inputs: { ${input.name}: [column, …] }${mask}`,
  );
}

/** With a padded or tokenized input, one that no column is for is mostly its mask, or has the types of its tokens. */
function maskHint({ name, shape }: TensorSignature, { inputs = {} }: ContractRequest): string {
  const [of, source] = Object.entries(inputs).find(([, one]) => "pad" in one || "tokenize" in one) ?? [];
  if (of === undefined || source === undefined || shape.length !== 2) {
    return "";
  }
  return "tokenize" in source && /type|segment/i.test(name)
    ? `; if it has the types of the tokens of ${of}: { types_of: ${of} }`
    : `; if it is the mask of ${of}: { mask_of: ${of} }`;
}

function defaultFeatures(request: Binding): ColumnRef[] {
  return request.columns.flatMap(({ name, type, partition, computed }) =>
    type !== undefined && isNumeric(type) && partition !== true && !request.passthrough.includes(name)
      ? [{ name, path: [name], type, ...(computed === true ? { computed } : {}) }]
      : [],
  );
}

function bindText(input: TensorSignature, columns: readonly ColumnRef[], request: Binding): InputBinding {
  const [column, ...others] = columns;
  const width = input.shape.length === 1 ? 1 : input.shape[1];
  if (width !== 1 && width !== null) {
    throw request.refuse(
      `input \`${input.name}\` is ${showTensor(input)}; [N] and [N,1] of strings are supported`,
      "export the model with an input for each text",
    );
  }
  if (column === undefined || others.length > 0) {
    throw request.refuse(
      `input \`${input.name}\` takes one text column, model.inputs lists ${columns.length}`,
      "list only the column that it takes",
    );
  }
  if (column.type !== "utf8") {
    throw request.refuse(
      `input \`${input.name}\` takes strings, column \`${column.name}\` is ${showType(column.type)}`,
      request.isPrompted === true ? "make a text of it under input.columns" : "bind a text column to it",
    );
  }
  return { kind: "text", input: input.name, rank: input.shape.length === 1 ? 1 : 2, column };
}

function bindList(input: TensorSignature, dtype: NumericTensorType, column: ColumnRef, request: Binding): InputBinding {
  const [, width] = input.shape;
  requireNumbers(column, input, request);
  if (width === undefined) {
    throw request.refuse(
      `input \`${input.name}\` is ${showTensor(input)}, one number a row; column \`${column.name}\` is ${showType(column.type)}`,
      "bind a column of numbers to it, or export the model with an input [N,F] for lists",
    );
  }
  if (width === null) {
    throw request.refuse(
      `input \`${input.name}\` is ${showTensor(input)}: it does not say how many elements a row of \`${column.name}\` has`,
      `where their number varies, pad them: ${padExample(input, column.name)}; else export the model with that dimension fixed`,
    );
  }
  return { kind: "list", input: input.name, dtype, width, column };
}

function countMismatch(input: TensorSignature, found: number, request: Binding): Error {
  const width = input.shape.length === 1 ? 1 : input.shape[1];
  const needs = width === null ? "at least one column" : `${width} ${width === 1 ? "column" : "columns"}`;
  if (listed(request, input.name) !== undefined) {
    return request.refuse(
      `input \`${input.name}\` needs ${needs}, model.inputs lists ${found}`,
      "list them in the model's order",
    );
  }
  return request.refuse(
    `input \`${input.name}\` needs ${needs}; the numeric columns that are not in output.columns are ${found}`,
    found < (width ?? 1)
      ? `if earlier runs had enough, the input is incomplete: write it again; else list its columns in the model's order under model.inputs.${input.name}`
      : `list its columns in the model's order under model.inputs.${input.name}, or put ids and labels under output.columns`,
  );
}

function requireNumber(column: ColumnRef, input: TensorSignature, request: Binding): void {
  if (!isNumeric(column.type) && column.type !== "bool") {
    throw request.refuse(
      `input \`${input.name}\` takes ${input.dtype}, column \`${column.name}\` is ${showType(column.type)}`,
      isList(column.type)
        ? "a list column fills an input alone"
        : column.type === "utf8" && /^\w+$/.test(column.name)
          ? `if its texts are numbers, add a line under input.columns: ${column.name}: try_cast(${column.name} as ${input.dtype?.startsWith("float") === true ? "double" : "bigint"})`
          : "integer, float, decimal and bool columns can be cast; dates and texts cannot",
    );
  }
}

/** `shrinks`: batches are as wide as their longest row. */
function bindOutputs(request: Binding, { shrinks }: { readonly shrinks: boolean }): OutputBinding[] {
  const tensors = request.signature.outputs.filter((output) => output.dtype !== undefined);
  const wanted =
    request.outputs === undefined
      ? tensors.map((tensor): [string, string] => [tensor.name, tensor.name])
      : Object.entries(request.outputs);
  const bindings = wanted.map(([column, reference]) => bindOutput(column, reference, request, shrinks));
  if (bindings.length === 0) {
    throw request.refuse(
      "the model has no tensor output",
      tensorRemedy(request.traits, request.signature.outputs[0]?.name),
    );
  }
  const taken = new Set(request.passthrough.map((name) => name.replaceAll(".", "_").toLowerCase()));
  for (const { column } of bindings) {
    if (!outputName.test(column)) {
      throw request.refuse(
        `output \`${column}\` is no name for a column`,
        `name it under model.outputs, such as \`score: ${column}\``,
      );
    }
    if (taken.has(column.toLowerCase())) {
      throw request.refuse(
        `output column \`${column}\` comes twice (case does not count)`,
        "give the prediction another name under model.outputs",
      );
    }
    taken.add(column.toLowerCase());
  }
  return bindings;
}

function bindOutput(column: string, reference: string, request: Binding, shrinks: boolean): OutputBinding {
  const names = request.signature.outputs.map((output) => output.name);
  const parsed = parseOutputReference(reference);
  // An output may be called `y[0]` itself.
  const isName = names.includes(reference);
  if (isName && parsed?.element !== undefined && names.includes(parsed.tensor)) {
    throw request.refuse(
      `model.outputs.${column} names \`${reference}\`, which is an output and also an element of output \`${parsed.tensor}\``,
      "rename one of the two outputs in the model",
    );
  }
  const { tensor: wanted, element } =
    isName || parsed === undefined ? { tensor: reference, element: undefined } : parsed;
  const output = request.signature.outputs.find((candidate) => candidate.name === wanted);
  if (output === undefined) {
    throw request.refuse(
      `model.outputs.${column} names \`${wanted}\`, which is no output of the model${didYouMean(wanted, names)}`,
      `its outputs are ${names.join(", ")}`,
    );
  }
  if (output.dtype === undefined) {
    const type = request.traits.otherOutputs.find(({ name }) => name === output.name)?.type ?? "a sequence or map";
    throw request.refuse(
      `output \`${output.name}\` is ${type}, not a tensor`,
      tensorRemedy(request.traits, output.name),
    );
  }
  if (!isTensorType(output.dtype)) {
    throw request.refuse(
      `output \`${output.name}\` is ${showTensor(output)}; ${output.dtype} is not supported`,
      "numbers, bool and strings are; choose another output",
    );
  }
  const type = columnTypeOfTensor(output.dtype);
  const width = widthOf(output, request);
  if (width === null && shrinks) {
    throw request.refuse(
      `output \`${output.name}\` is ${showTensor(output)}, which may be as wide as the batch: with shrink, the prediction of a row would depend on the other rows of its batch`,
      "set shrink: false, or export the model with an output of a fixed width",
    );
  }
  if (element !== undefined) {
    requireElement(column, element, output, { width, request });
    return { kind: "element", column, tensor: output.name, element, type };
  }
  return width === 1
    ? { kind: "scalar", column, tensor: output.name, type }
    : { kind: "vector", column, tensor: output.name, type: { kind: "list", element: type } };
}

/** Values a row; null: the model does not say. The declared batch dimension is ignored: exporters get it wrong. */
function widthOf(output: TensorSignature, request: Binding): number | null {
  const [, width = 1] = output.shape;
  if (output.shape.length < 1 || output.shape.length > 2) {
    throw request.refuse(
      `output \`${output.name}\` is ${showTensor(output)}; [N], [N,1] and [N,K] are supported`,
      output.shape.length === 0
        ? `the model mixes the rows of a batch into one value: ${keepRows}`
        : "choose another output",
    );
  }
  return width;
}

function requireElement(
  column: string,
  element: number,
  output: TensorSignature,
  { width, request }: { width: number | null; request: Binding },
): void {
  if (width !== null && element >= width) {
    throw request.refuse(
      `model.outputs.${column} names \`${output.name}[${element}]\`, but a row has ${width === 1 ? "1 value" : `${width} values`}`,
      `elements count from 0 to ${width - 1}`,
    );
  }
}

/**
 * Binds a model's signature to a shard's columns before anything is scored.
 * @throws JobError CONTRACT with signature and schema side by side and the nearest names.
 */
export function bindContract(asked: ContractRequest): Contract {
  const request = { ...asked, refuse: (found: string, hint: string) => refuse(asked, found, hint) };
  const passthrough = request.passthrough.map((name) => bindPassthrough(name, request));
  const { inputs, fixedBatchRows } = bindInputs(request);
  const { expressions, cast, missing } = request;
  refuseUnused(request, { inputs, passthrough });
  const outputs = bindOutputs(request, { shrinks: inputs.some(isAsWideAsBatch) });
  return { inputs, outputs, passthrough, fixedBatchRows, expressions, cast, missing };
}

function isAsWideAsBatch(input: InputBinding): boolean {
  return (input.kind === "padded" && input.shrink) || (input.kind === "text" && input.tokens?.shrink === true);
}

/** A computed column that nothing takes is a mistake, and would cost time and rejects anyway. */
function refuseUnused(request: Binding, bound: Pick<Contract, "inputs" | "passthrough">): void {
  const used = new Set(boundColumns(bound).flatMap(({ path, computed }) => (computed === true ? [path[0]] : [])));
  const { expressions, takenElsewhere } = request;
  const idle = expressions?.list.find(
    ({ kind, name }) => kind === "column" && !used.has(name) && takenElsewhere?.has(name) !== true,
  );
  if (idle !== undefined) {
    throw request.refuse(
      `input.columns computes \`${idle.name}\`, which neither the model nor output.columns takes`,
      "name it under model.inputs or output.columns, or remove it",
    );
  }
}

function bindPassthrough(name: string, request: Binding): PassthroughBinding {
  return { column: name.replaceAll(".", "_"), source: findColumn(name, "output.columns", request) };
}
