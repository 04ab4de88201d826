import { boundColumns, outputColumns } from "../binding/contract.js";
import { type ColumnType, showType } from "../columnar/types.js";
import type { NamedType, RunInfo } from "../report/attempt-record.js";
import { spanCount } from "../plan/spans.js";
import type { JobContext } from "../scoring/context.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import type { AttemptFacts } from "../publish/committed-by.js";
import { firstError, JobError } from "../util/errors.js";

/** Returns the facts of a plan that reports show. */
export function runFacts({ plan, planId }: StoredPlan): RunInfo {
  const { runId, input, commitRows, model } = plan;
  return {
    runId,
    planId,
    rows: input.rows,
    spans: spanCount(plan),
    commitRows,
    shards: input.shards.length,
    shardBytes: input.shards.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    modelUri: model.uri,
    modelSha256: model.sha256,
    modelVersion: model.version,
    modelOrigin: model.origin,
    inputColumns: namedTypes(boundColumns(plan.contract).filter(({ computed }) => computed !== true)),
    outputColumns: namedTypes(outputColumns(plan.contract)),
  };
}

/** Returns the columns with their types as reports show them, without duplicates. */
function namedTypes(columns: readonly { readonly name: string; readonly type: ColumnType }[]): NamedType[] {
  const types = new Map(columns.map(({ name, type }) => [name, showType(type)]));
  return [...types].map(([name, type]) => ({ name, type }));
}

export function attemptFacts({ spec, worker, program }: JobContext, provider: string): AttemptFacts {
  return {
    worker: worker.index,
    workers: worker.count,
    program,
    provider,
    onBadRow: spec.on_bad_row,
  };
}

const recorded = new WeakSet<JobError>();

/** Records a failure at the target, where `status` shows it. Nested calls record it once. */
export async function recordingFailure<T>(run: RunSink, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    const error = firstError(thrown);
    if (error instanceof JobError && !recorded.has(error) && run.state.kind !== "published") {
      recorded.add(error);
      await run.recordFailure?.(error);
    }
    throw error;
  }
}
