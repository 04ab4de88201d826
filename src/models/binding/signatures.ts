import type { ModelSignature, TensorSignature } from "../../columns/tensor.js";
import { type SourceColumn, showColumnType } from "../../columns/types.js";
import { printable } from "../../base/texts.js";

const rowLimit = 40;

/** A model's signature and a shard's schema as two text columns: what a user compares when a binding fails. */
export function sideBySide(signature: ModelSignature, columns: readonly SourceColumn[], shard: string): string {
  const left = [
    "model inputs:",
    ...aligned(signature.inputs.map((tensor) => [tensor.name, showTensor(tensor)])),
    "model outputs:",
    ...aligned(signature.outputs.map((tensor) => [tensor.name, showTensor(tensor)])),
  ];
  const right = [
    `columns of ${printable(shard)}:`,
    ...aligned(columns.map((column) => [column.name, showColumnType(column)])),
  ];
  const shownLeft = capped(left);
  const shownRight = capped(right);
  const width = Math.max(...shownLeft.map((line) => line.length));
  const height = Math.max(shownLeft.length, shownRight.length);
  const lines: string[] = [];
  for (let row = 0; row < height; row += 1) {
    lines.push(`  ${(shownLeft[row] ?? "").padEnd(width)}   ${shownRight[row] ?? ""}`.trimEnd());
  }
  return lines.join("\n");
}

function aligned(pairs: readonly (readonly [string, string])[]): string[] {
  const shown = pairs.map(([name, type]) => [printable(name), printable(type)] as const);
  const width = Math.max(0, ...shown.map(([name]) => name.length));
  return shown.map(([name, type]) => `  ${name.padEnd(width)}  ${type}`);
}

function capped(lines: readonly string[]): string[] {
  return lines.length <= rowLimit
    ? [...lines]
    : [...lines.slice(0, rowLimit), `  … and ${lines.length - rowLimit} more`];
}

/** "float32 [N,30]". */
export function showTensor(tensor: TensorSignature): string {
  if (tensor.dtype === undefined) {
    return "sequence or map";
  }
  const dims = tensor.shape.map((dim, index) => (dim === null ? (index === 0 ? "N" : "?") : String(dim)));
  return `${tensor.dtype} [${dims.join(",")}]`;
}

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
