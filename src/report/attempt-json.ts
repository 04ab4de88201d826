import type { AttemptRecord } from "./attempt-record.js";
import { rounded } from "./report.js";
import { serverFields } from "./server-report.js";
import { spendingFields } from "./spending/spending-report.js";
import { secondsByStage } from "./stage-times.js";

/** What an attempt did, as plain JSON, for the manifest of the run and for pings. */
export function attemptJson(record: AttemptRecord): Readonly<Record<string, unknown>> {
  const { info, counts, engine } = record;
  return {
    worker: info.worker.index,
    workers: info.worker.count,
    started_at: new Date(record.startedMs).toISOString(),
    input_wait_seconds: rounded(record.inputWaitSeconds),
    seconds: rounded(record.seconds),
    rows_scored: counts.rowsScored,
    rows_rejected: counts.rowsRejected,
    rejects_by_reason: Object.fromEntries(record.rejectReasons),
    rows_filtered: counts.rowsFiltered,
    rows_reused: counts.rowsReused,
    rows_by_trees: counts.rowsByTrees,
    spans_committed: counts.spansCommitted,
    batch_size: engine?.batchRows() ?? null,
    provider: engine?.provider ?? null,
    providers_missing: engine?.missing ?? [],
    trees: engine?.trees() ?? null,
    engine_busy: rounded(record.engineBusy),
    stage_seconds: secondsByStage(record.stages),
    units_read_again: Object.fromEntries(record.unitsReadAgain),
    ...(engine?.server === undefined ? {} : { server: serverFields(engine.server()) }),
    ...(engine?.spending === undefined ? {} : { spending: spendingFields(engine.spending()) }),
    scores: record.scores(),
    versions: info.versions,
  };
}
