import {
  type Contract,
  type DecodedBinding,
  decodedInputs,
  inputWidth,
  outputColumns,
  type Projection,
  type TextBinding,
} from "./contract.js";
import { tensorElement } from "../../columns/tensor.js";
import { bytesPerValue, type ColumnType } from "../../columns/types.js";
import { bytesPerElement } from "../../columns/values.js";
import { assertNever } from "../../base/errors.js";

/** The assumed length of a text, which is not known before the text is read. */
const bytesPerText = 32;

/** Returns roughly how many bytes the features of a row take as the model's inputs. */
export function bytesPerRow(contract: Pick<Contract, "inputs">): number {
  const widths = contract.inputs.map((binding) =>
    binding.kind === "text"
      ? textBytes(binding)
      : inputWidth(binding, contract) * bytesPerElement(tensorElement(binding.dtype)),
  );
  return widths.reduce((sum, bytes) => sum + bytes, 1);
}

function textBytes({ tokens }: TextBinding): number {
  return tokens === undefined
    ? bytesPerText
    : tokens.width *
        [tokens, ...tokens.masks, ...tokens.types].reduce(
          (sum, { dtype }) => sum + bytesPerElement(tensorElement(dtype)),
          0,
        );
}

/** Returns roughly how many bytes a row of the output takes; lengths of texts and lists are assumed. */
export function outputRowBytes(contract: Contract): number {
  return outputColumns(contract).reduce((sum, { type }) => sum + bytesPerValue(type), 0) || 1;
}

/** Longer values are texts, lists and the like, whose pages have fewer of them. */
const mostValueBytes = 8;

/** Returns roughly how many bytes the columns that are read take in a row; lengths of texts and lists are assumed. */
export function decodedRowBytes(projection: Projection): number {
  const carried = projection.passthrough.map(({ source }) => valueBytes(source.type));
  const features = decodedInputs(projection).map((binding) => featureBytes(binding, projection));
  return [...carried, ...features].reduce((sum, bytes) => sum + bytes, 1);
}

function featureBytes(binding: DecodedBinding, projection: Projection): number {
  switch (binding.kind) {
    case "matrix":
      return binding.columns.reduce((sum, { type }) => sum + valueBytes(type), 0);
    case "text":
      return valueBytes(binding.column.type);
    case "list":
    case "padded":
      return inputWidth(binding, projection) * valueBytes(elementOf(binding.column.type));
    default:
      return assertNever(binding);
  }
}

function elementOf(type: ColumnType): ColumnType {
  return typeof type === "object" && type.kind === "list" ? elementOf(type.element) : type;
}

function valueBytes(type: ColumnType): number {
  return Math.min(mostValueBytes, bytesPerValue(type));
}
