import { expect, test } from "vitest";
import { type AttemptRecord, reuseCostText } from "#src/report/attempt-record.js";

function attemptOf(rows: { scored: number; reused: number }, comparingMs: number, inferMs: number): AttemptRecord {
  const counts = { rowsScored: rows.scored, rowsReused: rows.reused };
  return { counts, comparingMs, stages: { ms: { infer: inferMs } } } as AttemptRecord;
}

test("an attempt is told that reuse took longer than it saved, by what the model took for the other rows", () => {
  const rows = { scored: 1000, reused: 900 };
  expect(reuseCostText(attemptOf(rows, 5000, 100))).toBe(
    "reuse took longer than it saved: comparing rows took 5.0 s, and the model would have scored those that were reused in 0.9 s; without reuse, the job is faster",
  );
  expect(reuseCostText(attemptOf(rows, 5000, 500))).toBeUndefined();
});

test("an attempt is told nothing of reuse that took less than a second more, or of which nothing is known", () => {
  expect(reuseCostText(attemptOf({ scored: 1000, reused: 900 }, 900, 1))).toBeUndefined();
  expect(reuseCostText(attemptOf({ scored: 1000, reused: 1000 }, 5000, 0))).toBeUndefined();
  expect(reuseCostText(attemptOf({ scored: 1000, reused: 0 }, 5000, 10))).toBeUndefined();
});
