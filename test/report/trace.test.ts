import { describe, expect, test } from "vitest";
import { createTrace, type TraceEvent } from "#src/cli/profile.js";

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
