import type { Contract } from "../binding/contract.js";
import type { PartitionType } from "../spec/input-spec.js";
import type { InputSource } from "../spec/model-spec.js";

declare const runIdBrand: unique symbol;
/** `<job name>-<12 hex of the params' digest>`, with `-r<n>` for later runs. It names files, so it has no `/` or `.`. */
export type RunId = string & { readonly [runIdBrand]: "RunId" };

/** A shard as the plan pins it. */
export interface PlannedShard {
  readonly uri: string;
  readonly sizeBytes: number;
  /** Changes when the file is replaced: `mtime:` and nanoseconds, or `etag:` and the ETag. */
  readonly fingerprint: string;
  readonly rows: number;
  /** Hex digest of the shard's bytes; present when it was planned with `input.verify: full`. */
  readonly sha256?: string | undefined;
}

/**
 * What a run does, fixed before any row is scored; a pure function of spec, listing and model. Spans are derived from it
 * (spans.ts), so that a plan of 100,000 shards stays small.
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
    /** Whether all shards have the same columns, of the same types; small shards are then read together. */
    readonly uniform?: true | undefined;
  };
  readonly model: { readonly uri: string; readonly sha256: string };
  /** The bindings that the spec asks for. A later attempt compares them without opening the model. */
  readonly request: BindingRequest;
  readonly contract: Contract;
  readonly target: PlanTarget;
  /** C: span k is rows [k·C, (k+1)·C). */
  readonly commitRows: number;
  readonly createdBy: string;
}

/**
 * Where the output rows go, as the sink of this kind describes it; only that sink reads more than `kind`. Never contains
 * credentials.
 */
export interface PlanTarget {
  readonly kind: string;
  readonly [setting: string]: unknown;
}

/** The keys of a spec that decide the bindings; null when not set. */
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

/** A range of a run's rows that is committed at once. */
export interface Span {
  readonly index: number;
  /** Rows of the run, [rowStart, rowEnd). */
  readonly rowStart: number;
  readonly rowEnd: number;
}

/** Rows [rowStart, rowEnd) of one shard, numbered from the shard's first row. */
export interface Slice {
  readonly shard: PlannedShard;
  readonly rowStart: number;
  readonly rowEnd: number;
}
