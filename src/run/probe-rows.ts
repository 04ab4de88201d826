import { mixedRows } from "../binding/batch-rows.js";
import { type Contract, outputTensors } from "../binding/contract.js";
import { blankInputs } from "../packing/packer.js";
import type { Engine } from "../engine/port.js";

/** Few, and no number that a dimension often has. */
const probedRows = 7;

/**
 * Calls the model on a few blank rows: each output must have a row for each. What a model says of its outputs' shapes
 * is not believed, and a batch of one row does not tell. A model that refuses blank rows is left to its first batch, and
 * so is one on TensorRT, which would build an engine for so many rows alone.
 * @throws JobError CONTRACT
 */
export async function probeRows(engine: Engine, contract: Contract): Promise<void> {
  if (engine.provider === "tensorrt") {
    return;
  }
  const rows = contract.fixedBatchRows ?? probedRows;
  const outputs = outputTensors(contract);
  const response = await engine.run({ inputs: blankInputs(contract, rows), outputs });
  if (response.kind !== "done") {
    return;
  }
  for (const [index, tensor] of response.outputs.entries()) {
    if (tensor.dims[0] !== rows) {
      throw mixedRows(outputs[index] ?? "", tensor, rows);
    }
  }
}
