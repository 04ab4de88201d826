import { type Contract, outputColumns } from "../binding/contract.js";
import { bytesPerValue } from "../columnar/types.js";
import type { JobSpec } from "../spec/job-spec.js";
import type { BindingRequest, Plan, PlannedShard, PlanTarget, RunId } from "./plan.js";

/** Rows a span where the spec says `auto`: a fraction of a second to half a minute of scoring. */
const defaultCommitRows = 262_144;
/** One session's time for a span of a slow model: what a killed attempt loses at most. */
const spanMs = 30_000;
/** The least: with a part for every few rows readers would have a harder time than whoever waits for a rerun. */
const slowestCommitRows = 64;
/**
 * A span is held in memory until it is committed, some at a time, and three times over while it is encoded: as our
 * columns, as DuckDB's, and as pages.
 */
const spanBytesLimit = 32 * 1024 * 1024;

export interface PlanFacts {
  readonly runId: RunId;
  readonly spec: JobSpec;
  readonly shards: readonly PlannedShard[];
  /** Whether all shards have the same columns, of the same types. */
  readonly uniform: boolean;
  readonly modelSha256: string;
  readonly contract: Contract;
  /** Of one session, about; 0: not known, or not worth asking. */
  readonly msPerRow: number;
  /** As the sink names it. */
  readonly target: PlanTarget;
  /** Name and version of the program that plans. */
  readonly createdBy: string;
}

export function makePlan(facts: PlanFacts): Plan {
  const { runId, spec, shards, modelSha256, contract, msPerRow, target, createdBy } = facts;
  return {
    format: "infer-batch-plan",
    version: 1,
    runId,
    job: spec.name,
    params: spec.params,
    timezone: spec.timezone,
    input: {
      format: "parquet",
      rows: shards.reduce((sum, shard) => sum + shard.rows, 0),
      ...(facts.uniform ? { uniform: true } : {}),
      shards,
    },
    model: { uri: spec.model.path, sha256: modelSha256 },
    request: bindingRequest(spec),
    contract,
    target,
    commitRows: spec.commit_rows === "auto" ? autoCommitRows(contract, msPerRow) : spec.commit_rows,
    createdBy,
  };
}

export function bindingRequest(spec: JobSpec): BindingRequest {
  const { inputs = null, outputs = null, cast, missing } = spec.model;
  const { partitions, columns, where = null } = spec.input;
  return { inputs, outputs, passthrough: spec.output.columns, partitions, columns, where, cast, missing };
}

function autoCommitRows(contract: Contract, msPerRow: number): number {
  const rowBytes = outputColumns(contract).reduce((sum, { type }) => sum + bytesPerValue(type), 0);
  const inMemory = Math.max(1, Math.floor(spanBytesLimit / Math.max(1, rowBytes)));
  // A power of two: two measurements rarely disagree about it.
  const inTime = msPerRow === 0 ? defaultCommitRows : 2 ** Math.floor(Math.log2(spanMs / msPerRow));
  return Math.min(defaultCommitRows, inMemory, Math.max(slowestCommitRows, inTime));
}
