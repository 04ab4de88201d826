import { type Contract, inputWidth } from "./contract.js";
import { tensorElement } from "../columnar/tensor.js";
import { bytesPerElement } from "../columnar/values.js";

/** How long texts are is known to nobody. */
const bytesPerText = 32;

/** Bytes of a row's features as the model takes them, about. */
export function bytesPerRow(contract: Pick<Contract, "inputs">): number {
  const widths = contract.inputs.map((binding) =>
    binding.kind === "text"
      ? bytesPerText
      : inputWidth(binding, contract) * bytesPerElement(tensorElement(binding.dtype)),
  );
  return widths.reduce((sum, bytes) => sum + bytes, 1);
}
