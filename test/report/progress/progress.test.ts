import { expect, test } from "vitest";
import { barText, lineProgress, type Progress } from "#src/report/progress.js";

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

test("a progress bar fits the terminal, and leaves out the bar first, then the rate and the rows", () => {
  const [done, total, rowsPerSecond] = [1_234_567, 4_000_000, 61_728];
  const rate = { add() {}, done, rowsPerSecond, secondsLeft: () => (total - done) / rowsPerSecond };
  expect([120, 80, 60, 40, 20, 5].map((columns) => barText(rate, total, columns))).toEqual([
    "█████████░░░░░░░░░░░░░░░░░░░░░ 30% | 1,234,567/4,000,000 rows | 62 k rows/s | 45 s left",
    "███████░░░░░░░░░░░░░░░ 30% | 1,234,567/4,000,000 rows | 62 k rows/s | 45 s left",
    "30% | 1,234,567/4,000,000 rows | 62 k rows/s | 45 s left",
    "███████░░░░░░░░░░░░░░░░ 30% | 45 s left",
    "30% | 45 s left",
    "30%",
  ]);
});

test("the time left follows the rate of the last 30 seconds, and not a slow start", () => {
  const { lines, at } = watched();
  at(0, (progress) => progress.start(501_000));
  at(60_000, (progress) => progress.scored(1000)); // a minute to load the model
  for (let second = 61; second <= 100; second += 1) {
    at(second * 1000, (progress) => progress.scored(10_000));
  }
  expect(lines.at(-1)).toBe("401,000 rows of 501,000 scored, 10 k rows/s, about 10 s left");
});
