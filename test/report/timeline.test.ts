import { expect, test } from "vitest";
import { createTimeline } from "#src/report/attempt-record.js";

test("a timeline counts every row in few steps, however long a run takes", () => {
  const timeline = createTimeline();
  for (let second = 0; second < 36_000; second += 1) {
    timeline.add(second * 1000, 7);
  }
  expect(timeline.rows.length).toBeLessThanOrEqual(120);
  expect(timeline.rows.reduce((sum, rows) => sum + rows, 0)).toBe(36_000 * 7);
  const rates = timeline.rows.slice(0, -1).map((rows) => (rows * 1000) / timeline.widthMs);
  expect([Math.round(Math.min(...rates)), Math.round(Math.max(...rates))]).toEqual([7, 7]);
});

test("a timeline has steps without rows", () => {
  const timeline = createTimeline();
  timeline.add(0, 5);
  timeline.add(250, 1);
  expect([timeline.widthMs, timeline.rows]).toEqual([100, [5, 0, 1]]);
});
