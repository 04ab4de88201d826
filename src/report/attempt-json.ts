import type { AttemptRecord } from "./attempt-record.js";
import { rounded } from "./report.js";
import { secondsByStage } from "./stage-times.js";

/** What an attempt did, as plain JSON: for the manifest of the run that it finishes, and for whoever is called. */
export function attemptJson(record: AttemptRecord): Readonly<Record<string, unknown>> {
  const { about, counts, engine } = record;
  return {
    worker: about.worker.index,
    workers: about.worker.count,
    started_at: new Date(record.startedMs).toISOString(),
    input_wait_seconds: rounded(record.inputWaitSeconds),
    seconds: rounded(record.seconds),
    rows_scored: counts.rowsScored,
    rows_rejected: counts.rowsRejected,
    rejects_by_reason: Object.fromEntries(record.rejectReasons),
    rows_filtered: counts.rowsFiltered,
    rows_deduplicated: counts.rowsDeduplicated,
    spans_committed: counts.spansCommitted,
    batch_size: engine?.batchRows() ?? null,
    provider: engine?.provider ?? null,
    providers_missing: engine?.missing ?? [],
    engine_busy: rounded(record.engineBusy),
    stage_seconds: secondsByStage(record.stages),
    units_read_again: Object.fromEntries(record.unitsReadAgain),
    scores: record.scores(),
    versions: about.versions,
  };
}
