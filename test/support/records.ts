import { profileRows } from "#src/checks/profile/profile.js";
import type { OutputRows, RejectedRow } from "#src/columns/types.js";
import { type AttemptRecord, createAttemptRecord } from "#src/report/attempt-record.js";
import type { Outcome, RunReport } from "#src/report/report.js";

/** What each name in a record is, so that a test can tell where it got to. */
export interface Names {
  readonly job?: string;
  readonly modelUri?: string;
  readonly column?: string;
  readonly text?: string;
  readonly param?: string;
  /** What computes the model's trees. */
  readonly trees?: string | null;
}

/** A record of a worker that scored 3 rows in a second and rejected one; its clock stands still afterwards. */
export function recordOf({
  job = "daily",
  modelUri = "m.onnx",
  column = "score",
  text = "a",
  param = "x",
  trees = null,
}: Names = {}): AttemptRecord {
  let now = 1000;
  const record = createAttemptRecord({
    info: {
      job,
      worker: { index: 1, count: 4 },
      params: { ds: param },
      command: `infer-batch run ${job}.yaml --param ds=${param}`,
      versions: { "infer-batch": "0.1.0", node: "20.19.0" },
      output: "out",
    },
    nowMs: () => now,
    dateMs: () => Date.UTC(2026, 10, 21, 12),
  });
  record.setRun({
    runId: `${job}-0123456789ab`,
    planId: "c".repeat(64),
    rows: 10,
    spans: 2,
    commitRows: 5,
    shards: 3,
    shardBytes: 2048,
    modelUri,
    modelSha256: "d".repeat(64),
    inputColumns: [{ name: "f0", type: "float32" }],
    outputColumns: [{ name: column, type: "float32" }],
  });
  record.startScoring({ provider: "cpu", missing: [], trees: () => trees, sessions: 2, batchRows: () => 256 });
  record.stages.took("decode", now, now + 250);
  record.stages.took("infer", now, now + 1500);
  now += 500;
  record.addRows(4);
  const bytes = new TextEncoder().encode(text);
  const offsets = Uint32Array.of(0, bytes.length, bytes.length, bytes.length);
  const rows: OutputRows = {
    rowCount: 3,
    columns: [
      {
        name: column,
        type: "float32",
        column: { kind: "fixed", elementsPerValue: 1, data: Float32Array.of(0.5, 1.5, 2.5), valid: undefined },
      },
      { name: "label", type: "utf8", column: { kind: "bytes", offsets, bytes, valid: undefined } },
    ],
  };
  record.addSpan({
    rowCount: 3,
    profile: profileRows(rows, { predicted: rows.columns, carried: [], bins: 100 }),
    rejects: [rejectedRow],
    filtered: 1,
    reused: 3,
    byTrees: 3,
  });
  now += 500;
  record.finish();
  return record;
}

const rejectedRow: RejectedRow = { shard: "a.parquet", row: 3, columns: {}, column: "f0", reason: "null", value: null };

const report: RunReport = {
  runId: "daily-0123456789ab",
  status: "partial",
  verdict: null,
  rowsPlanned: 10,
  rowsScored: 3,
  rowsRejected: 1,
  rowsFiltered: 1,
  rowsReused: 3,
  rowsByTrees: 3,
  spansPlanned: 2,
  spansCommitted: 1,
  spansResumed: 0,
  shardsUnplanned: 0,
  inputWaitSeconds: 0,
  seconds: 1,
  batchSize: 256,
  provider: "cpu",
  providersMissing: [],
  trees: null,
  engineBusy: 0.75,
  stageSeconds: null,
  unitsReadAgain: {},
  output: "out",
};

export const partly: Outcome = { kind: "done", report };

export function failed(message: string): Outcome {
  return { kind: "failed", code: "DATABASE", message, hint: undefined, exitCode: 75 };
}
