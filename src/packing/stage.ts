import type { Contract } from "../binding/contract.js";
import { bytesPerRow } from "../binding/row-bytes.js";
import { createBufferPool } from "../columnar/memory/buffer-pool.js";
import { type NamedTensor, numericBuffers } from "../columnar/tensor.js";
import type { RecordBatch } from "../columnar/types.js";
import type { RowFault, BatchRows } from "./input-target.js";
import { createInputTarget } from "./input-targets.js";
import { sourcesOf } from "./packer.js";

/** Packs rows as the model would get them, so that they can be compared. */
export interface Stage {
  /** The greatest number of rows at a time. */
  readonly rows: number;
  /** Packs rows, and takes their tensors back once the rows are compared. */
  pack(batch: RecordBatch, range: BatchRows, look: (tensors: readonly NamedTensor[]) => void): void;
}

/** What stays in the cache between packing and look-up. */
const stagedBytes = 256 * 1024;

export function createStage(contract: Contract, onFault: (fault: RowFault) => void): Stage {
  const pool = createBufferPool();
  const sources = sourcesOf(contract);
  const rows = Math.max(1, Math.floor(stagedBytes / bytesPerRow(contract)));
  const options = {
    batchRows: rows,
    nanAllowed: contract.missing === "nan",
    take: (bytes: number) => pool.take(bytes),
    onFault,
  };
  return {
    rows,
    pack({ inputs }, range, look) {
      const count = range.to - range.from;
      const tensors = contract.inputs.map((binding, index) => {
        const target = createInputTarget(binding, contract, options);
        target.copy(inputs[sources[index] ?? -1], range, 0);
        return target.tensor(count, count);
      });
      look(tensors);
      pool.release(numericBuffers(tensors));
    },
  };
}
