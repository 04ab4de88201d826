import type { MaskSource, PaddedSource } from "../spec/model-spec.js";
import { didYouMean } from "../util/suggest.js";
import type { ColumnRef, InputBinding, NumericTensorType, PaddedBinding } from "./contract.js";
import { type ContractRequest, findColumn, refuse } from "./contract-request.js";
import { showTensor } from "./side-by-side.js";
import { isTensorType, type TensorSignature } from "../columnar/tensor.js";
import { type ColumnType, showType } from "../columnar/types.js";
import { isElementType } from "../columnar/values.js";

/** An input `[N, S]` from a column of lists of up to S numbers. */
export function bindPadded(
  input: TensorSignature,
  { column: name, pad: { to, ...how } }: PaddedSource,
  request: ContractRequest,
): PaddedBinding {
  const dtype = numericMatrix(input, `model.inputs.${input.name} pads`, request);
  const column = findColumn(name, `model.inputs.${input.name}`, request);
  if (!isList(column.type)) {
    throw refuse(
      request,
      `model.inputs.${input.name} pads lists, column \`${name}\` is ${showType(column.type)}`,
      `only lists are padded; without pad: model.inputs: { ${input.name}: [${name}] }`,
    );
  }
  requireNumbers(column, input, request);
  const fixed = input.shape[1] ?? null;
  const width = to ?? fixed;
  if (width === null) {
    throw refuse(
      request,
      `input \`${input.name}\` is ${showTensor(input)}: it does not say how many elements a row has`,
      `say it: ${padExample(input, name)}`,
    );
  }
  if (fixed !== null && width !== fixed) {
    throw refuse(
      request,
      `model.inputs.${input.name} pads to ${width} elements, the input is ${showTensor(input)}`,
      "leave pad.to out, or export the model with that dimension free",
    );
  }
  if (fixed !== null && how.shrink) {
    throw refuse(
      request,
      `model.inputs.${input.name} shrinks, the input is ${showTensor(input)}`,
      "leave pad.shrink out, or export the model with that dimension free",
    );
  }
  if (!holds(dtype, how.value)) {
    throw refuse(
      request,
      `model.inputs.${input.name} pads with ${how.value}, which ${dtype} cannot hold`,
      "choose a pad.value of the input's type, as the model was trained with",
    );
  }
  return { kind: "padded", input: input.name, dtype, width, column, ...how };
}

/** An input `[N, S]` that marks the elements of another input's lists. */
export function bindMask(
  input: TensorSignature,
  { mask_of: of }: MaskSource,
  bound: readonly InputBinding[],
  request: ContractRequest,
): InputBinding {
  const what = `model.inputs.${input.name}.mask_of`;
  const dtype = numericMatrix(input, `${what} makes a mask of`, request);
  const names = request.signature.inputs.map(({ name }) => name);
  if (!names.includes(of)) {
    throw refuse(
      request,
      `${what} names \`${of}\`, which is no input of the model${didYouMean(of, names)}`,
      `its inputs are ${names.join(", ")}`,
    );
  }
  const masked = bound.find((binding) => binding.input === of);
  if (masked?.kind !== "padded") {
    throw refuse(
      request,
      `${what} names \`${of}\`, which is not padded`,
      `only lists that are padded have a mask: model.inputs: { ${of}: { column: …, pad: { to: 128 } } }`,
    );
  }
  const fixed = input.shape[1] ?? null;
  if (fixed !== null && (masked.shrink || fixed !== masked.width)) {
    const width = `${masked.width} elements${masked.shrink ? ", or fewer" : ""}`;
    throw refuse(
      request,
      `input \`${input.name}\` is ${showTensor(input)}, the rows of \`${of}\` are padded to ${width}`,
      "a mask is as wide as its input",
    );
  }
  return { kind: "mask", input: input.name, dtype, of };
}

/** The element type of an input `[N, S]` of numbers. */
export function numericMatrix(input: TensorSignature, does: string, request: ContractRequest): NumericTensorType {
  const { dtype, shape } = input;
  if (!isTensorType(dtype) || dtype === "string" || shape.length !== 2) {
    throw refuse(
      request,
      `${does} \`${input.name}\`, which is ${showTensor(input)}`,
      "padded lists and tokens are for inputs [N,S] of numbers or bool",
    );
  }
  return dtype;
}

/** A list of numbers, not one of lists. */
export function requireNumbers(column: ColumnRef, input: TensorSignature, request: ContractRequest): void {
  const { type } = column;
  const element = typeof type === "object" && type.kind === "list" ? type.element : undefined;
  if (element === undefined || !(isNumeric(element) || element === "bool")) {
    const nested = element !== undefined && isList(element);
    throw refuse(
      request,
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

export function isNumeric(type: ColumnType): boolean {
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

/** The largest finite values. */
const float16Limit = 65504;
const float32Limit = (2 - 2 ** -23) * 2 ** 127;
