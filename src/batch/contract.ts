import { JobError } from "../errors.js";
import { outputName, parseOutputReference } from "../spec/job-spec.js";
import { didYouMean } from "../suggest.js";
import { showTensor, sideBySide } from "./side-by-side.js";
import {
  type ColumnType,
  isColumnType,
  type ModelSignature,
  type SourceColumn,
  type TensorSignature,
} from "./types.js";

/** How shard columns become model inputs and tensors become output columns. Part of the plan: plain JSON. */
export interface Contract {
  readonly inputs: readonly InputBinding[];
  readonly outputs: readonly OutputBinding[];
  readonly passthrough: readonly PassthroughBinding[];
  /** The model takes exactly this many rows a call; the last batch is padded. null: any number. */
  readonly fixedBatchRows: number | null;
}

/** One `[N, F]` input packed from F columns. (Room for: one column an input, list columns, strings.) */
export interface InputBinding {
  readonly kind: "matrix";
  readonly input: string;
  readonly dtype: "float32";
  readonly columns: readonly FeatureColumn[];
}

export interface FeatureColumn {
  readonly name: string;
  /** The type as the shard's format writes it; every shard must have the same. */
  readonly sourceType: string;
}

/** `scalar`: a `[N]` or `[N, 1]` tensor; `element`: one element of each row of a `[N, K]` tensor. */
export type OutputBinding =
  | { readonly kind: "scalar"; readonly column: string; readonly tensor: string; readonly type: ColumnType }
  | {
      readonly kind: "element";
      readonly column: string;
      readonly tensor: string;
      readonly element: number;
      readonly type: ColumnType;
    };

export interface PassthroughBinding {
  readonly column: string;
  readonly sourceType: string;
  readonly type: ColumnType;
}

export interface ContractRequest {
  /** Named in messages. */
  readonly model: string;
  readonly signature: ModelSignature;
  /** Where the columns were read, named in messages. */
  readonly shard: string;
  readonly columns: readonly SourceColumn[];
  readonly inputs: Readonly<Record<string, readonly string[]>> | undefined;
  readonly outputs: Readonly<Record<string, string>> | undefined;
  readonly passthrough: readonly string[];
}

/**
 * Binds a model's signature to a shard's columns before anything is scored.
 * @throws JobError CONTRACT with signature and schema side by side and the nearest names.
 */
export function bindContract(request: ContractRequest): Contract {
  const passthrough = request.passthrough.map((name) => bindPassthrough(name, request));
  const inputs = bindInputs(request);
  return {
    inputs: inputs.map(({ binding }) => binding),
    outputs: bindOutputs(request),
    passthrough,
    fixedBatchRows: inputs[0]?.fixedBatchRows ?? null,
  };
}

function refuse(request: ContractRequest, found: string, hint: string): JobError {
  const tables = sideBySide(request.signature, request.columns, request.shard);
  return new JobError(
    "CONTRACT",
    `binding ${request.model} to the columns of ${request.shard}: ${found}\n\n${tables}\n`,
    { hint },
  );
}

function findColumn(name: string, what: string, request: ContractRequest): SourceColumn {
  const column = request.columns.find((candidate) => candidate.name === name);
  if (column === undefined) {
    const names = request.columns.map((candidate) => candidate.name);
    throw refuse(
      request,
      `${what} names column \`${name}\`, which is not there${didYouMean(name, names)}`,
      "names must match exactly",
    );
  }
  return column;
}

function bindPassthrough(name: string, request: ContractRequest): PassthroughBinding {
  const column = findColumn(name, "output.columns", request);
  if (column.type === undefined) {
    throw refuse(
      request,
      `output.columns names \`${name}\`, whose type ${column.sourceType} is not supported yet`,
      "integer and float columns can be carried through; leave this one out",
    );
  }
  return { column: name, sourceType: column.sourceType, type: column.type };
}

interface BoundInput {
  readonly binding: InputBinding;
  readonly fixedBatchRows: number | null;
}

function bindInputs(request: ContractRequest): BoundInput[] {
  const { signature } = request;
  const [only, ...others] = signature.inputs;
  if (only === undefined || others.length > 0) {
    throw refuse(
      request,
      `the model has ${signature.inputs.length} inputs; one [N,F] float32 input is supported so far`,
      "export the model with a single feature matrix",
    );
  }
  const named = Object.keys(request.inputs ?? {});
  const unknown = named.find((name) => name !== only.name);
  if (unknown !== undefined) {
    throw refuse(
      request,
      `model.inputs names \`${unknown}\`, which is no input of the model${didYouMean(unknown, [only.name])}`,
      `its input is \`${only.name}\``,
    );
  }
  return [bindMatrix(only, listedColumns(request, only.name), request)];
}

function listedColumns({ inputs }: ContractRequest, name: string): readonly string[] | undefined {
  return inputs !== undefined && Object.hasOwn(inputs, name) ? inputs[name] : undefined;
}

function bindMatrix(
  input: TensorSignature,
  listed: readonly string[] | undefined,
  request: ContractRequest,
): BoundInput {
  const [rows, features] = input.shape;
  if (input.dtype !== "float32" || input.shape.length !== 2 || rows === undefined || features === undefined) {
    throw refuse(
      request,
      `input \`${input.name}\` is ${showTensor(input)}; float32 [N,F] is supported so far`,
      "export the model with one float32 feature matrix",
    );
  }
  if (rows === 0) {
    throw refuse(request, `input \`${input.name}\` takes batches of no row`, "export the model with a batch dimension");
  }
  const columns =
    listed === undefined ? defaultFeatures(request) : listed.map((name) => feature(name, input.name, request));
  if (features !== null && columns.length !== features) {
    const where = listed === undefined ? "the numeric columns minus output.columns are" : "model.inputs lists";
    throw refuse(
      request,
      `input \`${input.name}\` needs ${features} columns, ${where} ${columns.length}`,
      `list the ${features} columns in the model's order under model.inputs.${input.name}, or put ids and labels under output.columns`,
    );
  }
  if (columns.length === 0) {
    throw refuse(
      request,
      `no numeric column is left for input \`${input.name}\``,
      `list the columns under model.inputs.${input.name}`,
    );
  }
  return {
    binding: {
      kind: "matrix",
      input: input.name,
      dtype: "float32",
      columns: columns.map(({ name, sourceType }) => ({ name, sourceType })),
    },
    fixedBatchRows: rows,
  };
}

/** The numeric columns in file order, minus those that are carried through. */
function defaultFeatures(request: ContractRequest): SourceColumn[] {
  return request.columns.filter((column) => column.numeric && !request.passthrough.includes(column.name));
}

function feature(name: string, input: string, request: ContractRequest): SourceColumn {
  const column = findColumn(name, `model.inputs.${input}`, request);
  if (!column.numeric) {
    throw refuse(
      request,
      `model.inputs.${input} names \`${name}\`, whose type ${column.sourceType} is not numeric`,
      "a float32 matrix is packed from integer, float and decimal columns",
    );
  }
  return column;
}

function bindOutputs(request: ContractRequest): OutputBinding[] {
  const tensors = request.signature.outputs.filter((output) => output.dtype !== undefined);
  const wanted =
    request.outputs === undefined
      ? tensors.map((tensor): [string, string] => [tensor.name, tensor.name])
      : Object.entries(request.outputs);
  const bindings = wanted.map(([column, reference]) => bindOutput(column, reference, request));
  if (bindings.length === 0) {
    throw refuse(
      request,
      "the model has no tensor output",
      "a scikit-learn classifier must be exported with zipmap=False",
    );
  }
  const taken = new Set(request.passthrough.map((name) => name.toLowerCase()));
  for (const { column } of bindings) {
    if (!outputName.test(column)) {
      throw refuse(
        request,
        `output \`${column}\` is no name for a column`,
        `name it under model.outputs, such as \`score: ${column}\``,
      );
    }
    if (taken.has(column.toLowerCase())) {
      throw refuse(
        request,
        `output column \`${column}\` comes twice (case does not count)`,
        "give the prediction another name under model.outputs",
      );
    }
    taken.add(column.toLowerCase());
  }
  return bindings;
}

function bindOutput(column: string, reference: string, request: ContractRequest): OutputBinding {
  const parsed = parseOutputReference(reference);
  const names = request.signature.outputs.map((output) => output.name);
  const output = request.signature.outputs.find((candidate) => candidate.name === (parsed?.tensor ?? reference));
  if (output === undefined || parsed === undefined) {
    const wanted = parsed?.tensor ?? reference;
    throw refuse(
      request,
      `model.outputs.${column} names \`${wanted}\`, which is no output of the model${didYouMean(wanted, names)}`,
      `its outputs are ${names.join(", ")}`,
    );
  }
  if (output.dtype === undefined) {
    throw refuse(
      request,
      `output \`${output.name}\` is a sequence or map, not a tensor`,
      "export the model with zipmap=False (skl2onnx: options={'zipmap': False}), which makes it a tensor",
    );
  }
  if (!isColumnType(output.dtype)) {
    throw refuse(
      request,
      `output \`${output.name}\` is ${showTensor(output)}; ${output.dtype} is not supported yet`,
      "integer and float outputs are",
    );
  }
  const element = elementOf(column, parsed.element, output, request);
  return element === undefined
    ? { kind: "scalar", column, tensor: output.name, type: output.dtype }
    : { kind: "element", column, tensor: output.name, element, type: output.dtype };
}

/** undefined: the tensor has one value a row. The declared batch dimension is not believed: exporters get it wrong. */
function elementOf(
  column: string,
  element: number | undefined,
  output: TensorSignature,
  request: ContractRequest,
): number | undefined {
  const width = output.shape.length === 1 ? 1 : output.shape.length === 2 ? output.shape[1] : undefined;
  if (width === undefined) {
    throw refuse(
      request,
      `output \`${output.name}\` is ${showTensor(output)}; [N], [N,1] and [N,K] are supported`,
      "choose another output",
    );
  }
  if (element === undefined) {
    if (width !== 1 && width !== null) {
      throw refuse(
        request,
        `output \`${output.name}\` is ${showTensor(output)}: ${width} values a row`,
        `pick elements under model.outputs, such as \`${column === output.name ? "score" : column}: ${output.name}[1]\``,
      );
    }
    return undefined;
  }
  if (width !== null && element >= width) {
    throw refuse(
      request,
      `model.outputs.${column} names \`${output.name}[${element}]\`, but it has ${width} values a row`,
      `elements count from 0 to ${width - 1}`,
    );
  }
  return element;
}
