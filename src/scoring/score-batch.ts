import { type FeatureBatch, sliceBatch } from "../packing/packer.js";
import type { NamedTensor, Tensor } from "../columnar/tensor.js";
import type { Engine, EngineResponse } from "../engine/port.js";
import { assertNever } from "../util/errors.js";
import type { BatchLimit } from "./batch-limit.js";

export interface BatchOptions {
  readonly engine: Engine;
  readonly batchLimit: BatchLimit;
  readonly tensors: readonly string[];
  readonly fixedBatchRows: number | null;
  /** Predictions of the batch, or of a part of it. */
  readonly onDone: (batch: FeatureBatch, response: Extract<EngineResponse, { kind: "done" }>) => void;
  /** The row of the run that the model fails on alone. Throws to end the run. */
  readonly onRow: (row: number, failed: Pick<FailedResponse, "message" | "reason">) => void;
}

export type FailedResponse = Extract<EngineResponse, { kind: "failed" }>;

/**
 * Scores a batch, in parts where it must be: one that the model refuses half by half, down to the rows that it refuses
 * alone (about 2·log2(rows) calls for one such row), and one that the device has no memory for half by half.
 * @throws JobError MEMORY when not even one row fits
 */
export async function scoreBatch(tools: BatchOptions, batch: FeatureBatch): Promise<void> {
  const { engine, batchLimit, tensors, fixedBatchRows } = tools;
  const fixed = fixedBatchRows !== null;
  if (!fixed && batch.rowCount > 1 && batch.packedRows > batchLimit.rows) {
    await scoreHalves(tools, batch, batch.inputs);
    return;
  }
  const begun = batchLimit.begin(batch.packedRows);
  const response = await engine.run({ inputs: batch.inputs, outputs: tensors });
  switch (response.kind) {
    case "done":
      tools.onDone(batch, response);
      return;
    case "failed":
      if (batch.rowCount === 1) {
        tools.onRow(batch.rowStart, response);
        return;
      }
      await scoreHalves(tools, batch, response.inputs);
      return;
    case "exhausted":
      await batchLimit.exceeded(begun, { fixed, message: response.message });
      await scoreBatch(tools, { ...batch, inputs: response.inputs });
      return;
    default:
      assertNever(response);
  }
}

/** @param inputs the inputs of the batch; valid after its own buffers are transferred */
async function scoreHalves(tools: BatchOptions, batch: FeatureBatch, inputs: readonly NamedTensor[]): Promise<void> {
  const middle = Math.ceil(batch.rowCount / 2);
  const { fixedBatchRows } = tools;
  for (const [from, to] of [
    [0, middle],
    [middle, batch.rowCount],
  ] as const) {
    await scoreBatch(tools, sliceBatch(batch, inputs, { from, to, fixedBatchRows }));
  }
}

/** The tensors of a response, by the names that were asked for. */
export function tensorsByName(names: readonly string[], tensors: readonly Tensor[]): ReadonlyMap<string, Tensor> {
  const found = new Map<string, Tensor>();
  for (const [index, name] of names.entries()) {
    const tensor = tensors[index];
    if (tensor !== undefined) {
      found.set(name, tensor);
    }
  }
  return found;
}
