import type { RunId } from "#src/run/plan/plan.js";
import type { RecordedSpending } from "#src/run/lifecycle/recorded-run.js";
import {
  addNote,
  isWorkedOn,
  lastFailure,
  recordBegun,
  recordedSpending,
  recordFailure,
  recordSpending,
  timeOfNote,
} from "#src/run/attempt.js";
import { type RunNote, verdictDocument } from "#src/stores/ledger.js";
import type { Sink } from "#src/targets/target.js";
import type { JobError } from "#src/base/errors.js";

/** What an attempt tells of a run at its target, and reads there. */
export function toldAt(sink: Pick<Sink, "ledger">, runId: RunId, writer = "w") {
  const target = sink as Sink;
  const attempt = { sink: target, writer, dateMs: Date.now };
  return {
    add: (note: RunNote, text: string) => addNote(attempt, { runId, note, text }),
    timeOf: (note: RunNote) => timeOfNote(attempt, runId, note),
    failed: (error: JobError, spansCommitted = 0) => recordFailure(attempt, runId, { error, spansCommitted }),
    begun: () => recordBegun(attempt, runId),
    lastFailure: () => lastFailure(target, runId),
    isWorkedOn: () => isWorkedOn({ sink: target, isDead: () => false }, runId),
    spent: (spending: RecordedSpending) => recordSpending(target, runId, spending),
    spending: () => recordedSpending(target, runId),
    verdict: () => target.ledger.read(runId, verdictDocument),
  };
}
