import type { Contract } from "../../models/binding/contract.js";
import { outputRowBytes } from "../../models/binding/row-bytes.js";
import type { JobSpec } from "../../job/jobfile/job-spec.js";
import { modelUri } from "../../job/jobfile/model-spec.js";
import type {
  BindingRequest,
  Changes,
  PinnedRun,
  PinnedTable,
  Plan,
  PlannedChecks,
  PlannedModel,
  PlannedShard,
  PlanTarget,
  RunId,
} from "./plan.js";

/** The most rows of a span with `commit_rows: auto`: a fraction of a second to half a minute of scoring. */
const defaultCommitRows = 262_144;
/** The time that one session takes for a span of a slow model. A killed attempt loses at most this much work. */
const spanMs = 30_000;
/** The fewest rows of a span: with smaller parts, reading the output costs more than scoring a span again saves. */
const slowestCommitRows = 64;
/** The rows of a span whose rows a language model answers, a few or some hundreds each second. */
const promptedCommitRows = 8192;
/**
 * The most bytes of a span's output columns. A few spans are in memory at once, and each has three copies while it is
 * encoded: our columns, DuckDB's, and Parquet pages.
 */
const spanBytesLimit = 32 * 1024 * 1024;

interface PlanInputs {
  readonly runId: RunId;
  readonly spec: JobSpec;
  readonly shards: readonly PlannedShard[];
  /** Whether all shards have the same columns, of the same types. */
  readonly uniform: boolean;
  /** The table whose files the shards are; undefined: they are files that `input.path` names. */
  readonly table?: PinnedTable | undefined;
  /** undefined: the run is none of a chain. */
  readonly changes?: Changes | undefined;
  readonly model: Omit<PlannedModel, "uri">;
  readonly contract: Contract;
  /** About the time of one session; 0 when it was not measured. */
  readonly msPerRow: number;
  readonly target: PlanTarget;
  /** The param whose value is the run's logical date. */
  readonly dateParam: string | undefined;
  /** What the run is compared with; undefined: the spec has no `checks`. */
  readonly checks: PlannedChecks | undefined;
  /** The run whose predictions are reused; null: there is none, undefined: the spec has no `reuse`. */
  readonly reuseFrom?: PinnedRun | null | undefined;
  /** The first rows that are planned; undefined: all. */
  readonly mostRows?: number | undefined;
  readonly createdBy: string;
}

/** Makes the plan of a run. Pure: equal inputs make equal plans. */
export function makePlan(facts: PlanInputs): Plan {
  const { runId, spec, shards, model, contract, msPerRow, target, dateParam = null, checks = null } = facts;
  const rows = shards.reduce((sum, shard) => sum + shard.rows, 0);
  return {
    format: "infer-batch-plan",
    version: 1,
    runId,
    job: spec.name,
    params: spec.params,
    timezone: spec.timezone,
    input: {
      format: "parquet",
      rows: Math.min(rows, facts.mostRows ?? rows),
      ...(facts.uniform ? { uniform: true } : {}),
      ...(facts.table === undefined ? {} : { table: facts.table }),
      ...(facts.changes === undefined ? {} : { changes: facts.changes }),
      shards,
    },
    model: { uri: modelUri(spec.model), ...model },
    request: bindingRequest(spec),
    contract,
    target,
    commitRows: spec.commit_rows === "auto" ? autoCommitRows(spec, contract, msPerRow) : spec.commit_rows,
    staged: isStaged(spec),
    dateParam,
    checks,
    ...(facts.reuseFrom === undefined ? {} : { reuseFrom: facts.reuseFrom }),
    createdBy: facts.createdBy,
  };
}

function isStaged({ checks }: JobSpec): boolean {
  return checks?.on_fail === "hold";
}

/** The keys of the spec that decide the bindings. */
export function bindingRequest(spec: JobSpec): BindingRequest {
  const { inputs = null, outputs = null, cast, missing } = spec.model;
  const { partitions, columns, where = null } = spec.input;
  const { prompt, sampling = {}, response } = spec.model;
  const bindings = { inputs, outputs, passthrough: spec.output.columns, partitions, columns, where, cast, missing };
  if (prompt === undefined) {
    return bindings;
  }
  const { tokenizer: _, ...asked } = prompt; // only estimates are made with it
  return { ...bindings, prompt: { ...asked, sampling, response } };
}

function autoCommitRows({ model: { prompt } }: JobSpec, contract: Contract, msPerRow: number): number {
  if (prompt !== undefined) {
    return promptedCommitRows;
  }
  const inMemory = Math.max(1, Math.floor(spanBytesLimit / outputRowBytes(contract)));
  // A power of two, so that two measurements rarely disagree.
  const inTime = msPerRow === 0 ? defaultCommitRows : 2 ** Math.floor(Math.log2(spanMs / msPerRow));
  return Math.min(defaultCommitRows, inMemory, Math.max(slowestCommitRows, inTime));
}
