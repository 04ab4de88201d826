import { mixedRows } from "../../binding/batch-rows.js";
import { type Contract, outputTensors } from "../../binding/contract.js";
import { blankInputs } from "../../packing/packer.js";
import type { Engine } from "../../engine/port.js";

/** A small number that is rarely the size of a dimension. */
const probedRows = 7;

/**
 * Calls the model on a few blank rows and checks that each output has as many rows. The shapes that a model declares
 * are often wrong, and a batch of one row shows nothing. A model that refuses blank rows is checked with its first
 * batch, and so is a model on TensorRT, which would build an engine for this number of rows.
 * @throws JobError CONTRACT
 */
export async function probeRows(engine: Engine, contract: Contract): Promise<void> {
  if (engine.provider === "tensorrt") {
    return;
  }
  const rows = contract.fixedBatchRows ?? Math.min(probedRows, engine.mostRows ?? probedRows);
  const outputs = outputTensors(contract);
  const response = await engine.run({ inputs: blankInputs(contract, rows), outputs, isBlank: true });
  if (response.kind !== "done") {
    return;
  }
  for (const [index, tensor] of response.outputs.entries()) {
    if (tensor.dims[0] !== rows) {
      throw mixedRows(outputs[index] ?? "", tensor, rows);
    }
  }
}
