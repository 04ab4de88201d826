import type { Plan, PlannedShard, RunId } from "#src/run/plan/plan.js";
import { emptyContract } from "./batches.js";

/** A plan over shards of these many rows; `s0`, `s1`, … are their names. */
export function planOf(rowCounts: readonly number[], commitRows: number): Plan {
  const shards = rowCounts.map(
    (rows, index): PlannedShard => ({ uri: `s${index}`, sizeBytes: 100 + index, fingerprint: `mtime:${index}`, rows }),
  );
  return {
    format: "infer-batch-plan",
    version: 1,
    runId: "job-000000000000" as RunId,
    job: "job",
    params: {},
    timezone: "UTC",
    input: { format: "parquet", shards, rows: rowCounts.reduce((sum, rows) => sum + rows, 0) },
    model: { uri: "model.onnx", sha256: "0".repeat(64) },
    request: {
      inputs: null,
      outputs: null,
      passthrough: [],
      partitions: {},
      columns: {},
      where: null,
      cast: "exact",
      missing: "bad_row",
    },
    contract: emptyContract,
    target: { kind: "parquet", uri: "out" },
    commitRows,
    staged: false,
    dateParam: null,
    checks: null,
    createdBy: "infer-batch 0.0.0",
  };
}
