import type { Contract } from "../binding/contract.js";
import type { PartitionType } from "../spec/input-spec.js";
import type { InputSource } from "../spec/model-spec.js";

declare const runIdBrand: unique symbol;
/** `<job name>-<12 hex of the params' digest>`; names files, so it never holds a `/` or `.`. */
export type RunId = string & { readonly [runIdBrand]: "RunId" };

/** A shard as the run pinned it. Its rows are `[rowStart, rowStart + rows)` of the run. */
export interface PlannedShard {
  readonly uri: string;
  readonly sizeBytes: number;
  /** What changes when the file is replaced: mtime in ns, or an ETag. */
  readonly fingerprint: string;
  readonly rows: number;
  /** Hex digest of its bytes; where `input.verify: full` planned it. */
  readonly sha256?: string | undefined;
}

/**
 * What a run does, fixed before any row is scored; a pure function of spec, listing and model. Spans are
 * derived from it (spans.ts), not listed, so that a plan of 100,000 shards stays small.
 */
export interface Plan {
  readonly format: "infer-batch-plan";
  readonly version: 1;
  readonly runId: RunId;
  readonly job: string;
  readonly params: Readonly<Record<string, string>>;
  readonly timezone: string;
  readonly input: {
    readonly format: "parquet";
    readonly shards: readonly PlannedShard[];
    readonly rows: number;
    /** All shards have the same columns, with the same types: then small ones are read together. */
    readonly uniform?: true | undefined;
  };
  readonly model: { readonly uri: string; readonly sha256: string };
  /** What the spec asked for, to be compared by a later attempt without opening the model. */
  readonly request: BindingRequest;
  readonly contract: Contract;
  readonly target: PlanTarget;
  /** C: span k is rows [k·C, (k+1)·C). */
  readonly commitRows: number;
  readonly createdBy: string;
}

/**
 * Where the rows go, as the sink of this kind describes it: only that sink reads more than `kind`. Never holds what
 * opens the target.
 */
export interface PlanTarget {
  readonly kind: string;
  readonly [setting: string]: unknown;
}

export interface BindingRequest {
  readonly inputs: Readonly<Record<string, InputSource>> | null;
  readonly outputs: Readonly<Record<string, string>> | null;
  readonly passthrough: readonly string[];
  readonly partitions: Readonly<Record<string, PartitionType>>;
  readonly columns: Readonly<Record<string, string>>;
  readonly where: string | null;
  readonly cast: Contract["cast"];
  readonly missing: Contract["missing"];
}

export interface Span {
  readonly index: number;
  /** Rows of the run, [rowStart, rowEnd). */
  readonly rowStart: number;
  readonly rowEnd: number;
}

/** Rows [rowStart, rowEnd) of one shard, counted within the shard. */
export interface Slice {
  readonly shard: PlannedShard;
  readonly rowStart: number;
  readonly rowEnd: number;
}
