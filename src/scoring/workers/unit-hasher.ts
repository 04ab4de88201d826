import { type Contract, decodedInputs } from "../../binding/contract.js";
import type { RecordBatch } from "../../columnar/types.js";
import { createFeatureHasher, type FeatureHashing, type HashedRows, noPlace } from "../../packing/feature-hasher.js";
import { selectInputs } from "../../packing/select-rows.js";
import { createStage } from "../../packing/row-reuse.js";
import { inPlace, isGood } from "./in-place.js";

/**
 * Hashes the rows of batches as the main thread does, before they are scored. Returns undefined for a batch with a bad row,
 * which the main thread reports.
 */
export function unitHasher(
  contract: Contract,
  hashing: FeatureHashing,
): (batch: RecordBatch) => HashedRows | undefined {
  const hasher = createFeatureHasher(contract, hashing);
  const inputs = decodedInputs(contract).length;
  let isFaulty = false;
  const stage = createStage(contract, () => {
    isFaulty = true;
  });
  return (batch) => {
    const all = { from: 0, to: batch.rowCount };
    // A fixed number of rows is a matter of the model: hashes do not depend on it.
    const there = batch.inputs.slice(0, inputs).every(isGood)
      ? inPlace({ inputs: contract.inputs, fixedBatchRows: null }, batch, all)
      : undefined;
    if (there !== undefined) {
      return hasher.hash(there.inputs, batch, all);
    }
    isFaulty = false;
    const parts: HashedRows[] = [];
    for (let from = 0; from < batch.rowCount; from += stage.rows) {
      const range = { from, to: Math.min(batch.rowCount, from + stage.rows) };
      stage.pack(batch, { ...range, row: from }, (tensors) => {
        parts.push(hasher.hash(tensors, batch, range));
      });
    }
    return isFaulty ? undefined : joined(parts);
  };
}

function joined(parts: readonly HashedRows[]): HashedRows {
  const isCompared = parts.some(({ places }) => places !== undefined);
  return {
    hashes: concat(parts.map(({ hashes }) => hashes)),
    places: isCompared ? concat(parts.map(({ places = new Int32Array() }) => places)) : undefined,
  };
}

function concat(arrays: readonly Int32Array[]): Int32Array<ArrayBuffer> {
  const all = new Int32Array(arrays.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const array of arrays) {
    all.set(array, at);
    at += array.length;
  }
  return all;
}

/** Copies what the model gets of the rows that take no stored prediction. */
export function rowsToScore(batch: RecordBatch, { places }: HashedRows): RecordBatch {
  if (places === undefined) {
    return batch;
  }
  const keep = new Uint8Array(batch.rowCount);
  let rowCount = 0;
  for (let row = 0; row < keep.length; row += 1) {
    if (places[row] === noPlace) {
      keep[row] = 1;
      rowCount += 1;
    }
  }
  return rowCount === batch.rowCount
    ? batch
    : { rowCount, inputs: selectInputs(batch.inputs, keep, rowCount), carried: [] };
}
