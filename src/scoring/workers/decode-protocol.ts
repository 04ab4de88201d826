import type { Contract, Projection } from "../../binding/contract.js";
import type { ScoredBatch } from "../../packing/scored.js";
import type { Column } from "../../columnar/types.js";
import type { Claim } from "../../formats/by-format.js";
import type { ParquetUnit } from "../../formats/parquet/units.js";

/** Neighbouring rows of an Arrow shard that lies on this machine as a whole. */
export interface ArrowUnit {
  readonly kind: "arrow";
  readonly path: string;
  readonly claim: Claim;
  /** [rowStart, rowEnd) of the shard. */
  readonly rowStart: number;
  readonly rowEnd: number;
}

/** Neighbouring rows of a shard, which one thread decodes. */
export type Unit = ParquetUnit | ArrowUnit;

/** What is made of a unit's rows. */
export interface UnitRequest {
  readonly projection: Projection;
  /** Columns from folder names, of one row. */
  readonly constants: ReadonlyMap<string, Column>;
  /** What the model makes of them, where the thread has it at hand. */
  readonly scoring?: UnitScoring | undefined;
}

export interface UnitScoring {
  readonly contract: Contract;
  /** The tensors that the contract's outputs come from. */
  readonly tensors: readonly string[];
  /** Of a batch, to begin with. */
  readonly batchRows: number;
}

/** What the main thread and one that decodes say to each other. */
export type ToDecodeThread =
  | ({ readonly kind: "read"; readonly id: number; readonly unit: Unit } & UnitRequest)
  /** A batch is done with. `batchRows`: of those that are scored from here on. */
  | {
      readonly kind: "taken";
      readonly buffers: readonly ArrayBuffer[];
      readonly bytes: number;
      readonly batchRows?: number | undefined;
    }
  /** Nobody waits for the rest of a unit. */
  | { readonly kind: "cancel"; readonly id: number };

export type FromDecodeThread =
  | {
      readonly kind: "rows";
      readonly id: number;
      /** Of the shard, the batch's first row. */
      readonly rowStart: number;
      readonly batch: ScoredBatch;
      /** To be given back. */
      readonly buffers: readonly ArrayBuffer[];
      /** What it takes, predictions among it. */
      readonly bytes: number;
    }
  /** No more rows of it will come. */
  | { readonly kind: "end"; readonly id: number };
