import type { ModelSignature, TensorSignature } from "../columnar/tensor.js";
import { showTensor } from "./side-by-side.js";

/** The inputs and outputs of a model as a registry declares them. */
export interface DeclaredSignature {
  readonly inputs: readonly DeclaredField[];
  readonly outputs: readonly DeclaredField[];
}

/** A tensor, or a column of a table that the model takes as a whole. */
export type DeclaredField =
  | {
      readonly kind: "tensor";
      readonly name: string | undefined;
      /** ONNX element type. */
      readonly dtype: string;
      /** null: a dimension that may vary. */
      readonly shape: readonly (number | null)[];
    }
  | { readonly kind: "column"; readonly name: string | undefined };

/** How a model differs from its declared signature, one text for each difference. */
export function signatureDifferences(declared: DeclaredSignature, model: ModelSignature): string[] {
  return [
    ...columnDifferences(declared.inputs, model.inputs),
    ...tensorDifferences("input", tensorsIn(declared.inputs), model.inputs),
    // Outputs that are not declared are common: a classifier has a label in addition to its probabilities.
    ...tensorDifferences("output", tensorsIn(declared.outputs), model.outputs),
  ];
}

type DeclaredTensor = Extract<DeclaredField, { kind: "tensor" }>;

function tensorsIn(fields: readonly DeclaredField[]): DeclaredTensor[] {
  return fields.filter((field) => field.kind === "tensor");
}

/** A table is one matrix of the model, or an input for each column. */
function columnDifferences(fields: readonly DeclaredField[], inputs: readonly TensorSignature[]): string[] {
  const columns = fields.filter(({ kind }) => kind === "column");
  const [first, ...others] = inputs;
  if (columns.length === 0 || first === undefined) {
    return [];
  }
  const width = first.shape[1];
  if (others.length === 0) {
    return typeof width === "number" && width !== columns.length
      ? [`${columns.length} columns are declared, input \`${first.name}\` takes ${width}`]
      : [];
  }
  const names = new Set(columns.map(({ name }) => name));
  return names.has(undefined)
    ? []
    : inputs.filter(({ name }) => !names.has(name)).map(({ name }) => `input \`${name}\` is not declared as a column`);
}

function tensorDifferences(
  kind: "input" | "output",
  declared: readonly DeclaredTensor[],
  actual: readonly TensorSignature[],
): string[] {
  if (declared.length === 0) {
    return [];
  }
  const found = declared.flatMap((field) => {
    const tensor =
      field.name === undefined ? onlyOne(actual, declared.length) : actual.find(({ name }) => name === field.name);
    if (tensor === undefined) {
      return field.name === undefined ? [] : [`${kind} \`${field.name}\` is declared, and the model has none`];
    }
    const shown = { name: tensor.name, dtype: field.dtype, shape: field.shape };
    return isSame(field, tensor)
      ? []
      : [`${kind} \`${tensor.name}\` is ${showTensor(tensor)}, declared as ${showTensor(shown)}`];
  });
  const names = new Set(declared.map(({ name }) => name));
  const undeclared = kind === "output" || names.has(undefined) ? [] : actual.filter(({ name }) => !names.has(name));
  return [...found, ...undeclared.map(({ name }) => `${kind} \`${name}\` is not declared`)];
}

function onlyOne(actual: readonly TensorSignature[], declared: number): TensorSignature | undefined {
  return declared === 1 && actual.length === 1 ? actual[0] : undefined;
}

/** The first dimension is the batch, which exporters declare in many ways. */
function isSame({ dtype, shape }: DeclaredTensor, tensor: TensorSignature): boolean {
  return (
    dtype === tensor.dtype &&
    shape.length === tensor.shape.length &&
    shape.every((length, index) => {
      const other = tensor.shape[index];
      return index === 0 || length === null || other === null || length === other;
    })
  );
}
