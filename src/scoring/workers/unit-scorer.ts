import { createPacker, type Predictions, type ScoredBatch } from "../../packing/packer.js";
import type { NamedTensor } from "../../columnar/tensor.js";
import type { RecordBatch } from "../../columnar/types.js";
import type { RunModel } from "../../engine/port.js";
import type { UnitScoring } from "./protocol.js";
import { inPlace, isGood, type PackedBatch, type Rows } from "./in-place.js";
import { rowsToScore, unitHasher } from "./unit-hasher.js";

/** Scores a batch, so many rows at a time; undefined: a row is bad, or the model fails. */
export type ScoreBatch = (
  batch: RecordBatch,
  rows: number,
) => Promise<(Pick<ScoredBatch, "hashed"> & { readonly predictions: Predictions[] }) | undefined>;

/** Scores the rows of batches; where rows are hashed, those that take no stored prediction. */
export function scorer(scoring: Pick<UnitScoring, "contract" | "tensors" | "hashing">, run: RunModel): ScoreBatch {
  const score = rowScorer(scoring, run);
  const hash = scoring.hashing && unitHasher(scoring.contract, scoring.hashing);
  return async (batch, rows) => {
    if (hash === undefined) {
      const predictions = await score(batch, rows);
      return predictions && { predictions };
    }
    const sinceMs = performance.now();
    const hashed = hash(batch);
    if (hashed === undefined) {
      return undefined;
    }
    const left = rowsToScore(batch, hashed);
    const ms = performance.now() - sinceMs;
    const predictions = await score(left, rows);
    return predictions && { predictions, hashed: { ...hashed, ms } };
  };
}

function rowScorer(
  { contract, tensors }: Pick<UnitScoring, "contract" | "tensors">,
  run: RunModel,
): (batch: RecordBatch, rows: number) => Promise<Predictions[] | undefined> {
  let packing = createPacking(contract);
  return async (batch, rows) => {
    const predictions: Predictions[] = [];
    const isPlain = batch.inputs.every(isGood);
    let isAtModel = false;
    try {
      for (let from = 0; from < batch.rowCount; from += rows) {
        const range = { from, to: Math.min(from + rows, batch.rowCount) };
        const there = isPlain ? inPlace(contract, batch, range) : undefined;
        const packed = there ?? packing.pack(batch, range, rows);
        if (packed === undefined) {
          return undefined;
        }
        isAtModel = true;
        const { outputs, ms, byTrees } = await run({ inputs: packed.inputs, outputs: tensors });
        isAtModel = false;
        predictions.push({ rowCount: range.to - from, outputs, ms, byTrees, packedRows: packed.packedRows });
        if (there === undefined) {
          packing.recycle(packed.inputs);
        }
      }
    } catch (error) {
      packing = createPacking(contract); // the state of the old one is unknown
      if (isAtModel) {
        return undefined; // the main thread finds the rows that the model fails on
      }
      throw error;
    }
    return predictions;
  };
}

interface Packing {
  /** Packs rows, at most `most`, as the main thread does; undefined where one is bad. */
  pack(batch: RecordBatch, rows: Rows, most: number): PackedBatch | undefined;
  recycle(inputs: readonly NamedTensor[]): void;
}

/** Packs batch after batch into the same memory. */
function createPacking(contract: UnitScoring["contract"]): Packing {
  let isFaulty = false;
  let batchRows = 0;
  const onFault = (): void => {
    isFaulty = true;
  };
  const packer = createPacker({ contract, batchRows: () => batchRows, onFault });
  return {
    pack(batch, { from, to }, most) {
      isFaulty = false;
      batchRows = most;
      const [full] = packer.push(batch, { from, to, row: 0 });
      const packed = full ?? packer.flush();
      if (packed === undefined) {
        return undefined;
      }
      if (isFaulty || packed.rowCount !== to - from) {
        packer.recycle(packed.inputs);
        return undefined;
      }
      return packed;
    },
    recycle(inputs) {
      packer.recycle(inputs);
    },
  };
}
