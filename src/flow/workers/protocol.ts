import type { Contract, Projection } from "../../models/binding/contract.js";
import type { Column } from "../../columns/types.js";
import type { Unit } from "../../formats/format.js";
import type { FeatureHashing } from "../pack/feature-hasher.js";
import type { ReadBatch } from "../pack/packer.js";
import type { RpcProtocol } from "../../base/rpc.js";
import type { ShardFeatures } from "../features.js";

/** What a worker makes of a unit's rows. */
export interface UnitRequest {
  readonly projection: Projection;
  readonly limits: UnitLimits;
  /** Columns from folder names, of one row. */
  readonly constants: ReadonlyMap<string, Column>;
  /** Rows of the shard that its table has removed: ascending numbers. */
  readonly removed: Uint32Array;
  /** How to score the rows; undefined: the worker has no session of the model. */
  readonly scoring?: UnitScoring | undefined;
  /** How to profile the features of rows that the worker scores; undefined: features are not profiled. */
  readonly features?: ShardFeatures | undefined;
}

interface UnitLimits {
  /** The limit of rows that are sent at once, in bytes. */
  readonly batchBytes: number;
  /** The limit of rows that are sent and not yet received, in bytes. */
  readonly heldBytes: number;
}

export interface UnitScoring {
  readonly contract: Contract;
  /** The tensors that the contract's outputs come from. */
  readonly tensors: readonly string[];
  /** Rows of a batch, to begin with. */
  readonly batchRows: number;
  /** How to hash rows, and what to compare them with; undefined: rows are not hashed. */
  readonly hashing?: FeatureHashing | undefined;
}

/** A unit, and what a worker makes of its rows. */
export interface ReadCall extends UnitRequest {
  readonly unit: Unit;
}

/** Rows of a unit. */
export interface SentRows {
  /** The batch's first row, as a row of the shard. */
  readonly rowStart: number;
  readonly batch: ReadBatch;
  /** Buffers that the main thread returns when it is done with the rows. */
  readonly buffers: readonly ArrayBuffer[];
  /** The size of the batch, predictions included. */
  readonly bytes: number;
}

/** A batch that the main thread is done with. */
export interface ReleasedRows {
  readonly buffers: readonly ArrayBuffer[];
  readonly bytes: number;
  /** Rows of the batches that are scored from here on. */
  readonly batchRows: number | undefined;
}

/** Why a worker did not read a unit to its end: the main thread reads the rest of its rows. */
export interface UnitFailure {
  /**
   * `unsupported`: only the decoder reads such bytes, or they are damaged; `file`: the file could not be opened or read;
   * `worker_gone`: the thread has ended; `defect`: anything else, which should never happen.
   */
  readonly kind: "unsupported" | "file" | "worker_gone" | "defect";
  readonly message: string;
}

/** Between the main thread and a worker that reads units. */
export interface UnitProtocol extends RpcProtocol {
  calls: {
    /**
     * The items are the unit's rows, in order. The result is undefined where they are all of its rows, else what kept
     * the worker from reading the others.
     */
    read: { request: ReadCall; item: SentRows; result: UnitFailure | undefined };
  };
  toServer: { released: ReleasedRows };
  toClient: Record<string, never>;
}
