import type { RunId } from "#src/run/plan/plan.js";
import type { RecordedSpending } from "#src/run/lifecycle/recorded-run.js";
import {
  addNote,
  isWorkedOn,
  lastFailure,
  recordBegun,
  readSpending,
  recordFailure,
  recordSpending,
  timeOfNote,
} from "#src/run/attempt.js";
import { type RunNote, verdictDocument } from "#src/stores/ledger.js";
import type { Attempt } from "#src/flow/opened-job.js";
import type { Sink } from "#src/targets/target.js";
import type { JobError } from "#src/base/errors.js";

/** What an attempt tells of a run at its target, and reads there. */
export function toldAt(sink: Pick<Sink, "ledger">, runId: RunId, writer = "w") {
  const target = sink as Sink;
  const attempt = { writer, dateMs: Date.now, isDead: () => false } as unknown as Attempt;
  return {
    add: (note: RunNote, text: string) => addNote(target, attempt, { runId, note, text }),
    timeOf: (note: RunNote) => timeOfNote(target, runId, note),
    failed: (error: JobError, spansCommitted = 0) => recordFailure(target, attempt, runId, { error, spansCommitted }),
    begun: () => recordBegun(target, attempt, runId),
    lastFailure: () => lastFailure(target, runId),
    isWorkedOn: () => isWorkedOn(target, attempt, runId),
    spent: (spending: RecordedSpending) => recordSpending(target, runId, spending),
    spending: () => readSpending(target, runId),
    verdict: () => target.ledger.read(runId, verdictDocument),
  };
}
