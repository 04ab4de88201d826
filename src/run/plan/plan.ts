import type { Contract } from "../../models/binding/contract.js";
import type { RowRange } from "../../columns/types.js";
import type { OnRewrite, PartitionType } from "../../job/jobfile/input-spec.js";
import type { InputSource } from "../../job/jobfile/model-spec.js";
import type { PromptSpec, SamplingSpec } from "../../job/jobfile/prompt-spec.js";
import type { ResponseColumns } from "../../models/binding/prompt.js";

declare const runIdBrand: unique symbol;
/** `<job name>-<12 hex of the params' digest>`, with `-r<n>` for later runs. It names files, so it has no `/` or `.`. */
export type RunId = string & { readonly [runIdBrand]: "RunId" };

export interface PlannedShard {
  readonly uri: string;
  readonly sizeBytes: number;
  /** Changes when the file is replaced: `mtime:` and nanoseconds, or `etag:` and the ETag. */
  readonly fingerprint: string;
  readonly rows: number;
  /** Hex digest of the shard's bytes; present when it was planned with `input.verify: full`. */
  readonly sha256?: string | undefined;
}

/** A table as the plan pins it: whatever is written to it later, the run reads this version. */
export interface PinnedTable {
  readonly uri: string;
  /** `input.at` of the spec. */
  readonly at: string;
  readonly format: "delta" | "iceberg" | "kafka";
  /** The version of a Delta table, the id of a snapshot of an Iceberg table, or what is read of a topic: its source knows. */
  readonly version: string;
  /** The id of the schema that an Iceberg table is read with. */
  readonly schemaId?: number | undefined;
  /** Rows of the shards that the table has removed. */
  readonly removedRows: number;
  /** Of a topic the types of the fields that are read; absent: a table has its own. */
  readonly fields?: Readonly<Record<string, string>> | undefined;
  /** What a catalog named: which table it is, and the metadata file that is read; absent: `uri` is its folder. */
  readonly catalog?: { readonly uuid: string; readonly metadata: string } | undefined;
}

/** What a run of a chain reads. Only the source that names a position can read it. */
export interface Changes {
  /** Where the run before it has ended; null: the run reads all that is there. */
  readonly from: string | null;
  /** Where the next run begins. */
  readonly to: string;
  readonly onRewrite: OnRewrite;
}

/** How far what is read of a topic is behind what is there. */
export interface InputState {
  /** Rows that came since the run was planned; undefined: it is not known. */
  readonly rowsBehind: number | undefined;
  /** The time of the newest row that this attempt has read, in milliseconds since 1970; undefined: rows have none. */
  readonly newestMs: number | undefined;
  /** Why those who watch could not be told; undefined: nothing failed. */
  readonly warning: string | undefined;
}

export const unwatched: InputState = { rowsBehind: undefined, newestMs: undefined, warning: undefined };

/** Fixed before any row is scored. Spans are derived from it, so that a plan of 100,000 shards stays small. */
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
    /** The table whose files the shards are; absent: they are files that `input.path` names. */
    readonly table?: PinnedTable | undefined;
    readonly changes?: Changes | undefined;
  };
  readonly model: PlannedModel;
  /** The bindings that the spec asks for. A later attempt compares them without opening the model. */
  readonly request: BindingRequest;
  readonly contract: Contract;
  readonly target: PlanTarget;
  /** C: span k is rows [k·C, (k+1)·C). */
  readonly commitRows: number;
  /** Whether the rows are published all at once, under a decision, after every span is committed. */
  readonly staged: boolean;
  /** The param whose value is the run's logical date; null: the job has none. */
  readonly dateParam: string | null;
  /** What the run is compared with; null: the spec has no `checks`. */
  readonly checks: PlannedChecks | null;
  /** The run whose predictions are reused; null: there is none, absent: the spec has no `reuse`. */
  readonly reuseFrom?: PinnedRun | null | undefined;
  readonly createdBy: string;
  /** Whose rows the run has, without those that were erased; absent: the run's rows are scored. */
  readonly erasure?: PlannedErasure | undefined;
}

/** An erasure: a run that has the rows of an earlier run of the same params, without those of some keys. */
interface PlannedErasure {
  /** The run whose rows they are. */
  readonly of: string;
  /** ISO 8601, in UTC. */
  readonly at: string;
  readonly by: string;
  /** The process that erases: no other one commits spans of this run. */
  readonly writer: string;
}

/** The model of a run, pinned when it is planned. */
export interface PlannedModel {
  /** `model.path` as the spec has it; of a model that a server has, protocol and name or path ("v2:churn"). */
  readonly uri: string;
  readonly sha256: string;
  /**
   * The version that the URI resolved to: a commit, a version in a registry or of an object, or an ETag; absent: it has
   * no versions.
   */
  readonly version?: string | undefined;
  readonly origin?: ModelOrigin | undefined;
  /** The tokenizers of its inputs; absent: it has none. */
  readonly tokenizers?: readonly PinnedTokenizer[] | undefined;
}

/** A tokenizer of a run, pinned when it is planned. */
export interface PinnedTokenizer extends PinnedFile {
  /** The version that the URI resolved to; absent: it has no versions. */
  readonly version?: string | undefined;
}

/** The origin of a version of a model, as its registry records it. */
export interface ModelOrigin {
  /** The run that trained the model. */
  readonly runId?: string | undefined;
  readonly tags: Readonly<Record<string, string>>;
}

/** The comparisons of a run, pinned when it is planned. */
export interface PlannedChecks {
  /** Published runs of the series with earlier logical dates, the latest last. */
  readonly baseline: readonly PinnedRun[];
  /** The latest published runs that this run is not compared with, the latest last; absent: there are none. */
  readonly leftOut?: readonly LeftOutRun[] | undefined;
  /** Set if the model is not that of the last run, but one that an earlier run had; absent: it is not. */
  readonly olderModel?: OlderModel | undefined;
  /** What a run of a chain is judged with, in place of `baseline`; undefined: it is none, or reads all rows. */
  readonly day?: PlannedDay | undefined;
  /** The file with the profile that this run is compared with; undefined: it is compared with `baseline`. */
  readonly profile?: PinnedFile | undefined;
  /** Output columns whose values divide the rows into slices; undefined: the spec has none. */
  readonly slices?: readonly string[] | undefined;
  /**
   * Conditions of the output, by name; undefined: the spec has none. The profiles of spans contain the numbers that
   * they need.
   */
  readonly sql?: Readonly<Record<string, string>> | undefined;
  /** The file of rows with known predictions; undefined: the spec has none. */
  readonly golden?: PinnedFile | undefined;
}

/** The day of a run of a chain, whose runs are judged together, and those before it. Runs have their numbers in the chain. */
export interface PlannedDay {
  /** In the job's time zone, when the run was planned: "2026-11-23". */
  readonly date: string;
  /** How long after the midnight that begins the date, by the clock, the run before the first one of the sum was planned. */
  readonly beginsMs: number;
  /** The published run before it. If that has a sum of the same day, this run adds to it. */
  readonly before: number;
  /** Of each earlier day the run that was planned nearest to this time of the day, the latest last. */
  readonly earlier: readonly number[];
}

/** A file that is pinned by its digest. */
export interface PinnedFile {
  /** The URI in the spec. */
  readonly uri: string;
  /** The digest in hexadecimal. */
  readonly sha256: string;
}

/** A published run that later runs are not compared with. */
export interface LeftOutRun {
  readonly runId: string;
  /** The run's logical date, "2026-11-23". */
  readonly date: string;
  /** `approved`: a person approved it with --not-normal. `expected`: an entry of `checks.expect` excused it. */
  readonly why: "approved" | "expected";
}

/** What earlier runs say of a model that is not that of the last run. Dates are logical dates, "2026-11-23". */
export interface OlderModel {
  /** The date of the latest run with this run's model. */
  readonly usedOn: string;
  /** The last run, which had another model, whether this run is compared with it or not. */
  readonly last: { readonly date: string; readonly modelSha256: string };
}

/** A published run whose profile is pinned. */
export interface PinnedRun {
  readonly runId: string;
  /** The run's logical date, "2026-11-23". */
  readonly date: string;
  /** Hex sha256 of the text of its profile. */
  readonly sha256: string;
  /** The place of its profile. Only the sink interprets it. */
  readonly place: string;
}

/**
 * Where the output rows go, as the sink of this kind describes it; only that sink reads more than `kind`, and `mode`, if
 * it has one (`replacedBy`). Never contains credentials.
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
  /** What a language model is asked for each row; absent: the model is another one. */
  readonly prompt?: PlannedPrompt | undefined;
}

/** The keys of `model` that decide the requests to a language model. */
interface PlannedPrompt extends Omit<PromptSpec, "tokenizer"> {
  readonly sampling: SamplingSpec;
  readonly response?: ResponseColumns | undefined;
}

/** A range of a run's rows that is committed at once. */
export interface Span extends RowRange {
  readonly index: number;
}

/** Rows of one shard, numbered from the shard's first row. */
export interface Slice extends RowRange {
  readonly shard: PlannedShard;
}
