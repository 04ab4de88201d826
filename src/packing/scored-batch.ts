import type { FeaturePart } from "../checks/profile/features.js";
import type { Tensor } from "../columnar/tensor.js";
import type { RecordBatch } from "../columnar/types.js";
import type { HashedUnit } from "./feature-hasher.js";

/** The outputs of one call of the model. */
export interface Predictions {
  readonly rowCount: number;
  /** The tensors, in the order asked for. */
  readonly outputs: readonly Tensor[];
  /** Rows of the tensors, with the padding. */
  readonly packedRows: number;
  /** Milliseconds inside the engine. */
  readonly ms: number;
  /** Whether the model's compiled trees computed them. */
  readonly byTrees?: boolean | undefined;
}

/** Rows that may have been scored where they were decoded: all of them were good then, and `inputs` are none. */
export interface ScoredBatch extends RecordBatch {
  /** Predictions for all rows of the batch, in order; with `hashed`, for those that take no stored one. */
  readonly predictions?: readonly Predictions[] | undefined;
  /** The hashes of rows that a worker scored; undefined: the run does not hash rows. */
  readonly hashed?: HashedUnit | undefined;
  /** The measured features of rows that a worker scored, a part for each span; undefined: features are not profiled. */
  readonly features?: readonly FeaturePart[] | undefined;
}
