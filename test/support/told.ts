import type { RunId } from "#src/plan/plan.js";
import type { RecordedSpending } from "#src/publish/recorded-run.js";
import {
  addNote,
  isWorkedOn,
  lastFailure,
  recordBegun,
  recordedSpending,
  recordFailure,
  recordSpending,
  timeOfNote,
} from "#src/run/notes.js";
import { type Ledger, type RunNote, verdictDocument } from "#src/sink/ledger.js";
import type { Sink } from "#src/sink/port.js";
import type { JobError } from "#src/util/errors.js";

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

/** A ledger in memory. */
export function memoryLedger(): Ledger {
  const documents = new Map<string, string>();
  const read = (key: string): unknown => JSON.parse(documents.get(key) ?? "null");
  return {
    failure: "DISK",
    read: (runId, { name, parse }) => {
      const known = read(`${runId} ${name}`);
      return Promise.resolve(known === null ? undefined : parse(known));
    },
    create: (runId, { name }, value) => {
      const key = `${runId} ${name}`;
      documents.set(key, documents.get(key) ?? JSON.stringify(value));
      return Promise.resolve(read(key) as typeof value);
    },
    note: (runId, { name, parse }, change) => {
      const known = read(`${runId} ${name}`);
      const next = change(known === null ? undefined : parse(known));
      if (next !== undefined) {
        documents.set(`${runId} ${name}`, JSON.stringify(next));
      }
      return Promise.resolve();
    },
  };
}
