import { bindInputs } from "./bind-inputs.js";
import { bindOutputs } from "./bind-outputs.js";
import { boundColumns, type Contract, type InputBinding, type PassthroughBinding } from "./contract.js";
import { type ContractRequest, findColumn, refuse } from "./contract-request.js";

/**
 * Binds a model's signature to a shard's columns before anything is scored.
 * @throws JobError CONTRACT with signature and schema side by side and the nearest names.
 */
export function bindContract(request: ContractRequest): Contract {
  const passthrough = request.passthrough.map((name) => bindPassthrough(name, request));
  const { inputs, fixedBatchRows } = bindInputs(request);
  const { expressions, cast, missing } = request;
  refuseUnused(request, { inputs, passthrough });
  const outputs = bindOutputs(request, { shrinks: inputs.some(isAsWideAsBatch) });
  return { inputs, outputs, passthrough, fixedBatchRows, expressions, cast, missing };
}

function isAsWideAsBatch(input: InputBinding): boolean {
  return (input.kind === "padded" && input.shrink) || (input.kind === "text" && input.tokens?.shrink === true);
}

/** A computed column that nothing takes is a mistake, and would cost time and rejects anyway. */
function refuseUnused(request: ContractRequest, bound: Pick<Contract, "inputs" | "passthrough">): void {
  const used = new Set(boundColumns(bound).flatMap(({ path, computed }) => (computed === true ? [path[0]] : [])));
  const { expressions, takenElsewhere } = request;
  const idle = expressions?.list.find(
    ({ kind, name }) => kind === "column" && !used.has(name) && takenElsewhere?.has(name) !== true,
  );
  if (idle !== undefined) {
    throw refuse(
      request,
      `input.columns computes \`${idle.name}\`, which neither the model nor output.columns takes`,
      "name it under model.inputs or output.columns, or remove it",
    );
  }
}

function bindPassthrough(name: string, request: ContractRequest): PassthroughBinding {
  return { column: name.replaceAll(".", "_"), source: findColumn(name, "output.columns", request) };
}
