import { type FeatureBatch, sliceBatch } from "../batch/packer.js";
import type { Tensor } from "../batch/tensor.js";
import type { Engine, EngineResponse } from "../engine/port.js";

export interface BisectTools {
  readonly engine: Engine;
  readonly tensors: readonly string[];
  readonly fixedBatchRows: number | null;
  /** Predictions of a part of the batch. */
  readonly onDone: (batch: FeatureBatch, outputs: readonly Tensor[]) => void;
  /** The row of the run that the model fails on alone. Throws to end the run. */
  readonly onRow: (row: number, message: string) => void;
}

/**
 * Scores a batch that the model refused half by half, down to the rows that it refuses alone. Costs about
 * 2·log2(rows) calls for one such row.
 */
export async function bisect(
  tools: BisectTools,
  batch: FeatureBatch,
  failed: Extract<EngineResponse, { kind: "failed" }>,
): Promise<void> {
  if (batch.rowCount === 1) {
    tools.onRow(batch.rowStart, failed.message);
    return;
  }
  const middle = Math.ceil(batch.rowCount / 2);
  const { fixedBatchRows } = tools;
  for (const [from, to] of [
    [0, middle],
    [middle, batch.rowCount],
  ] as const) {
    const half = sliceBatch(batch, failed.inputs, { from, to, fixedBatchRows });
    const response = await tools.engine.run({ inputs: half.inputs, outputs: tools.tensors });
    if (response.kind === "done") {
      tools.onDone(half, response.outputs);
    } else {
      await bisect(tools, half, response);
    }
  }
}
