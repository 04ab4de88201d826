import { describe, expect, test } from "vitest";
import { createTrace, type TraceEvent } from "#src/cli/profile.js";
import { createStageTimes, secondsByStage } from "#src/report/stage-times.js";
import { createTimeline } from "#src/report/attempt-record.js";

function eventsOf(text: string): TraceEvent[] {
  return (JSON.parse(text) as { traceEvents: TraceEvent[] }).traceEvents;
}

describe("a trace", () => {
  test("a trace has one line for a track, and more when its work overlaps", () => {
    const trace = createTrace();
    trace.addWork("decode", 0, 1);
    trace.addWork("infer", 1, 5);
    trace.addWork("pack", 1, 2);
    trace.addWork("infer", 2, 4);
    trace.addWork("infer", 4.5, 6);
    trace.addWork("wait", 2, 6);
    const other = { name: "Gemm", ph: "X", ts: 1, dur: 1, pid: 1, tid: 1000 };

    const events = eventsOf(trace.toJson([other]));

    const names = new Map(events.filter(({ ph }) => ph === "M").map(({ tid, args }) => [tid, args?.["name"]]));
    const pieces = events.filter(({ ph, tid }) => ph === "X" && tid < 1000);
    expect(pieces.map(({ name, ts, dur, tid }) => [names.get(tid), tid, name, ts, dur])).toEqual([
      ["feed", 1, "decode", 0, 1000],
      ["infer", 2, "infer", 1000, 4000],
      ["feed", 1, "pack", 1000, 1000],
      ["infer", 3, "infer", 2000, 2000],
      ["feed", 1, "wait", 2000, 4000],
      ["infer", 3, "infer", 4500, 1500],
    ]);
    expect(events.at(-1)).toEqual(other);
  });

  test("a trace stops growing at its limit, and counts what it left out", () => {
    const trace = createTrace(2);
    for (let at = 0; at < 5; at += 1) {
      trace.addWork("read", at, at + 1);
    }
    expect(trace.dropped).toBe(3);
    expect(eventsOf(trace.toJson([])).filter(({ ph }) => ph === "X")).toHaveLength(2);
  });
});

test("stage times add up, each stage can start at the end of the last, and onStage receives each piece", () => {
  let now = 100;
  const told: string[] = [];
  const times = createStageTimes(
    () => now,
    (stage, startedMs, endedMs) => told.push(`${stage} ${startedMs}-${endedMs}`),
  );
  let since = times.nowMs();
  now = 130;
  since = times.took("decode", since);
  now = 135;
  since = times.took("pack", since);
  times.took("infer", 110, 134);
  now = 145;
  times.took("decode", since);
  expect(told).toEqual(["decode 100-130", "pack 130-135", "infer 110-134", "decode 135-145"]);
  expect(secondsByStage(times)).toEqual({
    read: 0,
    decode: 0.04,
    pack: 0.005,
    infer: 0.024,
    encode: 0,
    commit: 0,
    wait: 0,
  });
});

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
