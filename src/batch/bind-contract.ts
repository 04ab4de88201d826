import { bindInputs } from "./bind-inputs.js";
import { bindOutputs } from "./bind-outputs.js";
import { type Contract, type ContractRequest, findColumn, type PassthroughBinding } from "./contract.js";

/**
 * Binds a model's signature to a shard's columns before anything is scored.
 * @throws JobError CONTRACT with signature and schema side by side and the nearest names.
 */
export function bindContract(request: ContractRequest): Contract {
  const passthrough = request.passthrough.map((name) => bindPassthrough(name, request));
  const { inputs, fixedBatchRows } = bindInputs(request);
  const { cast, missing } = request;
  return { inputs, outputs: bindOutputs(request), passthrough, fixedBatchRows, cast, missing };
}

function bindPassthrough(name: string, request: ContractRequest): PassthroughBinding {
  return { column: name.replaceAll(".", "_"), source: findColumn(name, "output.columns", request) };
}
