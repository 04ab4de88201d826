import { assertNever } from "../util/errors.js";
import { type Contract, type InputBinding, maskedInput } from "../binding/contract.js";
import { type InputTarget, type InputTargetOptions, matrixTarget, textTarget } from "./input-target.js";
import { maskTarget, paddedTarget } from "./padded-target.js";

/** What an input's tensor is packed in. */
export function createInputTarget(
  binding: InputBinding,
  contract: Pick<Contract, "inputs">,
  options: InputTargetOptions,
): InputTarget {
  switch (binding.kind) {
    case "matrix":
    case "list":
      return matrixTarget(binding, options);
    case "padded":
      return paddedTarget(binding, options);
    case "mask":
      return maskTarget(binding, maskedInput(contract, binding.of), options);
    case "text":
      return textTarget(binding, options);
    default:
      return assertNever(binding);
  }
}
