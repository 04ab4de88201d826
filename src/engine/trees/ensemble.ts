/** What a node of trees computes, as ONNX Runtime understands its attributes (tree_ensemble_common.h). */
export interface Ensemble {
  readonly nodes: TreeNodes;
  /** The first node of each tree, in the order in which ONNX Runtime adds them up. */
  readonly roots: readonly number[];
  readonly weights: LeafWeights;
  /** Targets, or classes. */
  readonly targets: number;
  readonly aggregate: Aggregate;
  readonly transform: Transform;
  /** Base values that are added to the scores: none, or one for each target; one also for two classes. */
  readonly base: Float64Array;
  /** The classes of a classifier. */
  readonly classes: Classes | undefined;
}

export type Aggregate = "SUM" | "AVERAGE" | "MIN" | "MAX";
export type Transform = "NONE" | "LOGISTIC" | "SOFTMAX" | "SOFTMAX_ZERO" | "PROBIT";

/** The nodes of all trees, by their place in the model. Where a node's condition holds, its true child comes next. */
export interface TreeNodes {
  readonly modes: readonly NodeMode[];
  readonly features: Int32Array;
  readonly thresholds: Float64Array;
  /** 1: NaN counts as true. */
  readonly missingTrue: Uint8Array;
  readonly trueChildren: Int32Array;
  readonly falseChildren: Int32Array;
  /** The sets of nodes of mode MEMBER, by node. */
  readonly members: ReadonlyMap<number, Float64Array>;
}

export type NodeMode = "LEAF" | "LEQ" | "LT" | "GTE" | "GT" | "EQ" | "NEQ" | "MEMBER";

/** What leaves add: those of node i are [starts[i], starts[i + 1]). */
export interface LeafWeights {
  readonly starts: Int32Array;
  readonly targets: Int32Array;
  readonly values: Float64Array;
}

export interface Classes {
  readonly labels:
    | { readonly kind: "int64"; readonly values: BigInt64Array }
    | { readonly kind: "string"; readonly values: readonly string[] };
  /** Whether there are two classes, and the leaves have weights of one of them only. */
  readonly binary: boolean;
  readonly allPositive: boolean;
}

/** The trees of a model cannot be compiled, or compiled trees cannot score these rows. */
export class Unsupported extends Error {}

/** The compiled trees and ONNX Runtime give different scores for the same row. */
export class Mismatch extends Error {}
