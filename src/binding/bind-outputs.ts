import { parseOutputReference } from "../spec/model-spec.js";
import { outputName } from "../spec/values.js";
import { didYouMean } from "../util/suggest.js";
import { keepRows } from "./batch-rows.js";
import type { OutputBinding } from "./contract.js";
import { type ContractRequest, refuse } from "./contract-request.js";
import { showTensor } from "./side-by-side.js";
import { columnTypeOfTensor, isTensorType, type TensorSignature } from "../columnar/tensor.js";

/**
 * Binds the tensors that `model.outputs` names, else every tensor output under its own name. `shrinks`: batches are as
 * wide as their longest row.
 */
export function bindOutputs(request: ContractRequest, { shrinks }: { readonly shrinks: boolean }): OutputBinding[] {
  const tensors = request.signature.outputs.filter((output) => output.dtype !== undefined);
  const wanted =
    request.outputs === undefined
      ? tensors.map((tensor): [string, string] => [tensor.name, tensor.name])
      : Object.entries(request.outputs);
  const bindings = wanted.map(([column, reference]) => bindOutput(column, reference, request, shrinks));
  if (bindings.length === 0) {
    throw refuse(
      request,
      "the model has no tensor output",
      "a scikit-learn classifier must be exported with zipmap=False",
    );
  }
  const taken = new Set(request.passthrough.map((name) => name.replaceAll(".", "_").toLowerCase()));
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

function bindOutput(column: string, reference: string, request: ContractRequest, shrinks: boolean): OutputBinding {
  const parsed = parseOutputReference(reference);
  const wanted = parsed?.tensor ?? reference;
  const names = request.signature.outputs.map((output) => output.name);
  const output = request.signature.outputs.find((candidate) => candidate.name === wanted);
  if (output === undefined || parsed === undefined) {
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
  if (!isTensorType(output.dtype)) {
    throw refuse(
      request,
      `output \`${output.name}\` is ${showTensor(output)}; ${output.dtype} is not supported`,
      "numbers, bool and strings are; choose another output",
    );
  }
  const type = columnTypeOfTensor(output.dtype);
  const width = widthOf(output, request);
  if (width === null && shrinks) {
    throw refuse(
      request,
      `output \`${output.name}\` is ${showTensor(output)}, which may be as wide as the batch: with shrink, the prediction of a row would depend on the other rows of its batch`,
      "set shrink: false, or export the model with an output of a fixed width",
    );
  }
  if (parsed.element !== undefined) {
    requireElement(column, parsed.element, output, { width, request });
    return { kind: "element", column, tensor: output.name, element: parsed.element, type };
  }
  return width === 1
    ? { kind: "scalar", column, tensor: output.name, type }
    : { kind: "vector", column, tensor: output.name, type: { kind: "list", element: type } };
}

/** Values a row; null: the model does not say. The declared batch dimension is ignored: exporters get it wrong. */
function widthOf(output: TensorSignature, request: ContractRequest): number | null {
  const [, width = 1] = output.shape;
  if (output.shape.length < 1 || output.shape.length > 2) {
    throw refuse(
      request,
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
  { width, request }: { width: number | null; request: ContractRequest },
): void {
  if (width !== null && element >= width) {
    throw refuse(
      request,
      `model.outputs.${column} names \`${output.name}[${element}]\`, but a row has ${width === 1 ? "1 value" : `${width} values`}`,
      `elements count from 0 to ${width - 1}`,
    );
  }
}
