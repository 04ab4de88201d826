import { expect, test } from "vitest";
import { lineProgress, type Progress } from "#src/report/progress.js";

function watched(): {
  readonly lines: string[];
  readonly at: (ms: number, act: (progress: Progress) => void) => void;
} {
  // Not from 0: a monotonic clock starts anywhere.
  const startMs = 123_456;
  let nowMs = startMs;
  const lines: string[] = [];
  const progress = lineProgress(
    (line) => lines.push(line),
    () => nowMs,
  );
  return {
    lines,
    at(ms, act) {
      nowMs = startMs + ms;
      act(progress);
    },
  };
}

test("a run of a few seconds writes no progress line", () => {
  const { lines, at } = watched();
  at(0, (progress) => progress.start(100));
  at(9_999, (progress) => progress.scored(50));
  expect(lines).toEqual([]);
});

test("a progress line comes every ten seconds, with rate and time left", () => {
  const { lines, at } = watched();
  at(0, (progress) => progress.start(1_000_000));
  at(5_000, (progress) => progress.scored(100_000));
  at(10_000, (progress) => progress.scored(100_000));
  at(15_000, (progress) => progress.scored(100_000));
  at(19_999, (progress) => progress.scored(1));
  at(20_000, (progress) => progress.scored(99_999));
  expect(lines).toMatchInlineSnapshot(`
    [
      "200,000 rows of 1,000,000 scored, 20 k rows/s, about 40 s left",
      "400,000 rows of 1,000,000 scored, 20 k rows/s, about 30 s left",
    ]
  `);
});

test("a long batch gives one progress line, and the next ten seconds count from it", () => {
  const { lines, at } = watched();
  at(0, (progress) => progress.start(100));
  at(65_000, (progress) => progress.scored(1));
  at(66_000, (progress) => progress.scored(1));
  at(74_999, (progress) => progress.scored(1));
  expect(lines).toHaveLength(1);
  at(75_000, (progress) => progress.scored(1));
  expect(lines).toHaveLength(2);
});

test("the last rows give no progress line", () => {
  const { lines, at } = watched();
  at(0, (progress) => progress.start(100));
  at(60_000, (progress) => progress.scored(100));
  at(60_001, (progress) => progress.stop());
  expect(lines).toEqual([]);
});
