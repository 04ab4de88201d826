import { parseOutputReference } from "../spec/model-spec.js";
import { outputName } from "../spec/values.js";
import { didYouMean } from "../util/suggest.js";
import { keepRows } from "./batch-rows.js";
import type { OutputBinding } from "./contract.js";
import { type ContractRequest, refuse } from "./contract-request.js";
import { tensorRemedy } from "./model-traits.js";
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
      tensorRemedy(request.traits, request.signature.outputs[0]?.name),
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
  const names = request.signature.outputs.map((output) => output.name);
  const parsed = parseOutputReference(reference);
  // An output may be called `y[0]` itself.
  const isName = names.includes(reference);
  if (isName && parsed?.element !== undefined && names.includes(parsed.tensor)) {
    throw refuse(
      request,
      `model.outputs.${column} names \`${reference}\`, which is an output and also an element of output \`${parsed.tensor}\``,
      "rename one of the two outputs in the model",
    );
  }
  const { tensor: wanted, element } =
    isName || parsed === undefined ? { tensor: reference, element: undefined } : parsed;
  const output = request.signature.outputs.find((candidate) => candidate.name === wanted);
  if (output === undefined) {
    throw refuse(
      request,
      `model.outputs.${column} names \`${wanted}\`, which is no output of the model${didYouMean(wanted, names)}`,
      `its outputs are ${names.join(", ")}`,
    );
  }
  if (output.dtype === undefined) {
    const type = request.traits.otherOutputs.find(({ name }) => name === output.name)?.type ?? "a sequence or map";
    throw refuse(
      request,
      `output \`${output.name}\` is ${type}, not a tensor`,
      tensorRemedy(request.traits, output.name),
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
  if (element !== undefined) {
    requireElement(column, element, output, { width, request });
    return { kind: "element", column, tensor: output.name, element, type };
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
