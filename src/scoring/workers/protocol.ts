import type { Contract, Projection } from "../../binding/contract.js";
import type { Column } from "../../columnar/types.js";
import type { Unit } from "../../formats/port.js";
import type { ScoredBatch } from "../../packing/scored.js";

/** What a worker makes of a unit's rows. */
export interface UnitRequest {
  readonly projection: Projection;
  /** Columns from folder names, of one row. */
  readonly constants: ReadonlyMap<string, Column>;
  /** What the model makes of them, where the worker has it at hand. */
  readonly scoring?: UnitScoring | undefined;
}

export interface UnitScoring {
  readonly contract: Contract;
  /** The tensors that the contract's outputs come from. */
  readonly tensors: readonly string[];
  /** Rows of a batch, to begin with. */
  readonly batchRows: number;
}

/** What the main thread tells a worker that reads units. */
export type ToUnitServer =
  | ({ readonly kind: "read"; readonly id: number; readonly unit: Unit } & UnitRequest)
  /** A batch is done with. `batchRows`: rows of the batches that are scored from here on. */
  | {
      readonly kind: "taken";
      readonly buffers: readonly ArrayBuffer[];
      readonly bytes: number;
      readonly batchRows?: number | undefined;
    }
  /** The rest of a unit is not wanted any more. */
  | { readonly kind: "cancel"; readonly id: number };

/** What a worker that reads units answers. */
export type FromUnitServer =
  | {
      readonly kind: "rows";
      readonly id: number;
      /** The batch's first row, as a row of the shard. */
      readonly rowStart: number;
      readonly batch: ScoredBatch;
      /** To be given back. */
      readonly buffers: readonly ArrayBuffer[];
      /** What the batch takes, predictions included. */
      readonly bytes: number;
    }
  /** No more rows of the unit will come. `failure`: what kept the worker from reading the rest of them. */
  | { readonly kind: "end"; readonly id: number; readonly failure?: UnitFailure | undefined };

/** Why a worker did not read a unit to its end: the main thread reads the rest of its rows. */
export interface UnitFailure {
  /**
   * `unsupported`: only the decoder reads such bytes, or they are damaged; `file`: the file could not be opened or read;
   * `worker_gone`: the thread has ended; `defect`: anything else, which should never happen.
   */
  readonly kind: "unsupported" | "file" | "worker_gone" | "defect";
  readonly message: string;
}
