import { describe, expect, test } from "vitest";
import { deadlineNear, latenessOf, timeOfDayAt } from "#src/report/calls.js";

const at = (text: string): number => Date.parse(text);
const near = (now: string, timeZone = "UTC", time = "06:00"): string =>
  new Date(deadlineNear(at(now), { time, timeZone })).toISOString();

describe("the deadline of an attempt", () => {
  test.each([
    ["2026-11-23T02:00:00Z", "UTC", "2026-11-23T06:00:00.000Z"],
    ["2026-11-22T22:00:00Z", "UTC", "2026-11-23T06:00:00.000Z"],
    ["2026-11-23T07:30:00Z", "UTC", "2026-11-23T06:00:00.000Z"],
    ["2026-11-23T02:00:00Z", "Europe/Berlin", "2026-11-23T05:00:00.000Z"],
    ["2026-11-23T02:00:00Z", "America/New_York", "2026-11-23T11:00:00.000Z"],
    ["2026-11-23T02:00:00Z", "Asia/Kolkata", "2026-11-23T00:30:00.000Z"],
    ["2026-12-31T23:30:00Z", "UTC", "2027-01-01T06:00:00.000Z"],
  ])("the deadline 06:00 of an attempt that starts at %s, in %s, is %s", (start, zone, deadline) => {
    expect(near(start, zone)).toBe(deadline);
  });

  test("the deadline of an attempt that starts after midnight is in the evening before, if that is closest", () => {
    expect(near("2026-11-23T01:00:00Z", "UTC", "23:00")).toBe("2026-11-22T23:00:00.000Z");
    expect(near("2026-11-23T12:00:00Z", "UTC", "23:00")).toBe("2026-11-23T23:00:00.000Z");
  });

  test("the deadline follows the clocks of its time zone in the nights when they change", () => {
    expect(near("2026-03-28T23:00:00Z", "Europe/Berlin")).toBe("2026-03-29T04:00:00.000Z");
    expect(near("2026-10-24T23:00:00Z", "Europe/Berlin")).toBe("2026-10-25T05:00:00.000Z");
    expect(timeOfDayAt(at("2026-07-01T04:42:00Z"), "Europe/Berlin")).toBe("06:42");
  });
});

test.each([
  ["America/New_York", "2026-03-08T05:00:00Z", "02:30", "2026-03-08T07:30:00.000Z"], // 03:30 EDT
  ["Europe/Berlin", "2026-03-29T00:00:00Z", "02:30", "2026-03-29T01:30:00.000Z"], // 03:30 CEST
  ["Australia/Lord_Howe", "2026-10-03T15:00:00Z", "02:15", "2026-10-03T15:45:00.000Z"], // 02:45, half an hour later
])(
  "in %s, where the clocks skip it, the deadline of an attempt that starts at %s for %s is %s",
  (zone, start, time, due) => {
    expect(near(start, zone, time)).toBe(due);
  },
);

test.each([
  ["America/New_York", "2026-11-01T05:00:00Z", "01:30", "2026-11-01T05:30:00.000Z"], // EDT, before EST
  ["Europe/Berlin", "2026-10-25T00:00:00Z", "02:30", "2026-10-25T00:30:00.000Z"], // CEST, before CET
])(
  "in %s, where it comes twice, the deadline of an attempt that starts at %s for %s is the first, %s",
  (zone, start, time, due) => {
    expect(near(start, zone, time)).toBe(due);
  },
);

/** What a record says of an attempt that scored so many rows in so many seconds. */
const attempt = (done: number, seconds: number, rowsToScore: number | undefined = 1000) => ({
  rowsToScore,
  seconds,
  timeline: { widthMs: 1000, rows: [done / 2, done / 2], add() {} },
});

describe("an attempt before its deadline", () => {
  const deadlineMs = at("2026-11-23T06:00:00Z");
  const minutesBefore = (minutes: number): number => deadlineMs - minutes * 60_000;
  test("an attempt is late if its rows will not be scored in time at the rate so far", () => {
    // 100 of 1000 rows in 60 s: 9 minutes are left.
    expect(latenessOf(attempt(100, 60), { nowMs: minutesBefore(8), deadlineMs })).toEqual({
      deadlineMs,
      expectedEndMs: deadlineMs + 60_000,
    });
    expect(latenessOf(attempt(100, 60), { nowMs: minutesBefore(10), deadlineMs })).toBeUndefined();
  });

  test("an attempt is not forecast to be late in its first seconds, or before its rows are known", () => {
    const nowMs = minutesBefore(1);
    expect(latenessOf(attempt(1, 10), { nowMs, deadlineMs })).toBeUndefined();
    expect(latenessOf(attempt(0, 300), { nowMs, deadlineMs })).toBeUndefined();
    expect(latenessOf({ ...attempt(10, 300), rowsToScore: undefined }, { nowMs, deadlineMs })).toBeUndefined();
  });

  test("an attempt is late when the deadline has passed", () => {
    const passed = { deadlineMs, expectedEndMs: undefined };
    expect(latenessOf(attempt(0, 0, undefined), { nowMs: deadlineMs, deadlineMs })).toEqual(passed);
  });
});
