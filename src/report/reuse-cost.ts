import type { AttemptRecord } from "./attempt-record.js";

/** Seconds that are worth a word. */
const mentionedSeconds = 1;

/**
 * Compares what reuse of predictions cost an attempt with what it saved: the time in the model that the rows which took
 * stored predictions would have needed, as long as those that were scored. Returns a message where it cost more.
 */
export function reuseCostText({
  counts: { rowsScored, rowsReused },
  comparingMs,
  stages: { ms },
}: Pick<AttemptRecord, "counts" | "comparingMs" | "stages">): string | undefined {
  const modelRows = rowsScored - rowsReused;
  if (rowsReused === 0 || modelRows <= 0) {
    return undefined;
  }
  const spent = comparingMs / 1000;
  const saved = (ms.infer / 1000 / modelRows) * rowsReused;
  return spent - saved < mentionedSeconds
    ? undefined
    : `reuse took longer than it saved: comparing rows took ${spent.toFixed(1)} s, and the model would have scored those that were reused in ${saved.toFixed(1)} s; without reuse, the job is faster`;
}
