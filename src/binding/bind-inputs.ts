import type { MaskSource } from "../spec/model-spec.js";
import { didYouMean } from "../util/suggest.js";
import { bindMask, bindPadded, isList, isNumeric, padExample, requireNumbers } from "./bind-padded.js";
import type { ColumnRef, Contract, InputBinding, NumericTensorType } from "./contract.js";
import { bindTokens, isMadeWithTokens } from "./bind-tokens.js";
import { type ContractRequest, findColumn, incompleteHint, refuse, sourceOf } from "./contract-request.js";
import { findPromptColumn } from "./prompt-columns.js";
import { showTensor } from "./side-by-side.js";
import { isTensorType, type TensorSignature } from "../columnar/tensor.js";
import { showType } from "../columnar/types.js";

/** Binds every input of the model: as `model.inputs` says, else by name, else a lone matrix to the numeric columns. */
export function bindInputs(request: ContractRequest): Pick<Contract, "inputs" | "fixedBatchRows"> {
  const { signature } = request;
  const names = signature.inputs.map(({ name }) => name);
  const unknown = Object.keys(request.inputs ?? {}).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw refuse(
      request,
      `model.inputs names \`${unknown}\`, which is no input of the model${didYouMean(unknown, names)}`,
      `its inputs are ${names.join(", ")}`,
    );
  }
  if (names.length === 0) {
    throw refuse(request, "the model has no inputs", "is this the right model?");
  }
  // A mask takes its form from another input, which may come after it. Masks and types of tokens are made with these.
  const others = signature.inputs.filter(
    ({ name }) => maskSource(request, name) === undefined && !isMadeWithTokens(name, request),
  );
  const bound = others.map((input) => bindInput(input, request));
  const inputs = signature.inputs.flatMap((input) => {
    const source = maskSource(request, input.name);
    return isMadeWithTokens(input.name, request)
      ? []
      : source === undefined
        ? bindingOf(bound, input.name)
        : bindMask(input, source, bound, request);
  });
  return { inputs, fixedBatchRows: fixedRows(request) };
}

function maskSource(request: ContractRequest, input: string): MaskSource | undefined {
  const source = sourceOf(request, input);
  return source !== undefined && "mask_of" in source ? source : undefined;
}

function bindingOf(bound: readonly InputBinding[], input: string): InputBinding {
  const found = bound.find((binding) => binding.input === input);
  if (found === undefined) {
    throw new RangeError(`input ${input} was not bound`);
  }
  return found;
}

/** The batch dimension that the inputs share. */
function fixedRows(request: ContractRequest): number | null {
  const { inputs } = request.signature;
  const fixed = inputs.filter(({ shape }) => typeof shape[0] === "number");
  const sizes = new Set(fixed.map(({ shape }) => shape[0] ?? null));
  const [rows = null, ...others] = sizes;
  if (others.length > 0) {
    throw refuse(
      request,
      `the model's inputs have different fixed batch sizes: ${[...sizes].join(", ")}`,
      "export it with one batch dimension",
    );
  }
  if (rows === 0) {
    throw refuse(request, "the model takes batches of no row", "export it with a batch dimension");
  }
  const [input] = fixed;
  if (input !== undefined && rows !== 1 && fixed.length < inputs.length) {
    throw refuse(
      request,
      `input \`${input.name}\` is ${showTensor(input)}: its first dimension is fixed, and those of other inputs are not, so it may have a constant for all rows in place of a value for each row`,
      "export the model with the constant in it, or with a batch dimension that all inputs share",
    );
  }
  return rows;
}

function bindInput(input: TensorSignature, request: ContractRequest): InputBinding {
  const { dtype, shape } = input;
  if (!isTensorType(dtype) || shape.length < 1 || shape.length > 2) {
    throw refuse(
      request,
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

function listed(request: ContractRequest, name: string): readonly string[] | undefined {
  const source = sourceOf(request, name);
  return source !== undefined && "length" in source ? source : undefined;
}

/** The columns that an input takes: listed, of its name, or the default rule. */
function columnsFor(input: TensorSignature, request: ContractRequest): ColumnRef[] {
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
      throw refuse(
        request,
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
  throw refuse(
    request,
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

/** The numeric columns in file order, minus those that are carried through or come from folder names. */
function defaultFeatures(request: ContractRequest): ColumnRef[] {
  return request.columns.flatMap(({ name, type, partition, computed }) =>
    type !== undefined && isNumeric(type) && partition !== true && !request.passthrough.includes(name)
      ? [{ name, path: [name], type, ...(computed === true ? { computed } : {}) }]
      : [],
  );
}

function bindText(input: TensorSignature, columns: readonly ColumnRef[], request: ContractRequest): InputBinding {
  const [column, ...others] = columns;
  const width = input.shape.length === 1 ? 1 : input.shape[1];
  if (width !== 1 && width !== null) {
    throw refuse(
      request,
      `input \`${input.name}\` is ${showTensor(input)}; [N] and [N,1] of strings are supported`,
      "export the model with an input for each text",
    );
  }
  if (column === undefined || others.length > 0) {
    throw refuse(
      request,
      `input \`${input.name}\` takes one text column, model.inputs lists ${columns.length}`,
      "list only the column that it takes",
    );
  }
  if (column.type !== "utf8") {
    throw refuse(
      request,
      `input \`${input.name}\` takes strings, column \`${column.name}\` is ${showType(column.type)}`,
      request.isPrompted === true ? "make a text of it under input.columns" : "bind a text column to it",
    );
  }
  return { kind: "text", input: input.name, rank: input.shape.length === 1 ? 1 : 2, column };
}

function bindList(
  input: TensorSignature,
  dtype: NumericTensorType,
  column: ColumnRef,
  request: ContractRequest,
): InputBinding {
  const [, width] = input.shape;
  requireNumbers(column, input, request);
  if (width === undefined) {
    throw refuse(
      request,
      `input \`${input.name}\` is ${showTensor(input)}, one number a row; column \`${column.name}\` is ${showType(column.type)}`,
      "bind a column of numbers to it, or export the model with an input [N,F] for lists",
    );
  }
  if (width === null) {
    throw refuse(
      request,
      `input \`${input.name}\` is ${showTensor(input)}: it does not say how many elements a row of \`${column.name}\` has`,
      `where their number varies, pad them: ${padExample(input, column.name)}; else export the model with that dimension fixed`,
    );
  }
  return { kind: "list", input: input.name, dtype, width, column };
}

function countMismatch(input: TensorSignature, found: number, request: ContractRequest): Error {
  const width = input.shape.length === 1 ? 1 : input.shape[1];
  const needs = width === null ? "at least one column" : `${width} ${width === 1 ? "column" : "columns"}`;
  if (listed(request, input.name) !== undefined) {
    return refuse(
      request,
      `input \`${input.name}\` needs ${needs}, model.inputs lists ${found}`,
      "list them in the model's order",
    );
  }
  return refuse(
    request,
    `input \`${input.name}\` needs ${needs}; the numeric columns that are not in output.columns are ${found}`,
    found < (width ?? 1)
      ? `if earlier runs had enough, the input is incomplete: write it again; else list its columns in the model's order under model.inputs.${input.name}`
      : `list its columns in the model's order under model.inputs.${input.name}, or put ids and labels under output.columns`,
  );
}

function requireNumber(column: ColumnRef, input: TensorSignature, request: ContractRequest): void {
  if (!isNumeric(column.type) && column.type !== "bool") {
    throw refuse(
      request,
      `input \`${input.name}\` takes ${input.dtype}, column \`${column.name}\` is ${showType(column.type)}`,
      isList(column.type)
        ? "a list column fills an input alone"
        : column.type === "utf8" && /^\w+$/.test(column.name)
          ? `if its texts are numbers, add a line under input.columns: ${column.name}: try_cast(${column.name} as ${input.dtype?.startsWith("float") === true ? "double" : "bigint"})`
          : "integer, float, decimal and bool columns can be cast; dates and texts cannot",
    );
  }
}
