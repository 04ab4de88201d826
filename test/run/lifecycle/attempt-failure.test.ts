import { expect, test } from "vitest";
import { parseNotes, withBegun, withFailure } from "#src/run/lifecycle/recorded-run.js";

test("a target keeps the last 8 errors of a run, and the last 8 attempts, however often it is started", () => {
  let notes = parseNotes(undefined);
  for (let attempt = 1; attempt <= 20; attempt += 1) {
    const failure = { at: "2026-11-20T00:00:00.000Z", writer: `w${attempt}`, code: "BAD_ROW", spansCommitted: 0 };
    notes = withBegun(withFailure(notes, { ...failure, message: "x".repeat(5000) }), `w${attempt}`);
  }
  const text = JSON.stringify(notes);
  const { errors, begun } = parseNotes(JSON.parse(text));
  const latest = ["w13", "w14", "w15", "w16", "w17", "w18", "w19", "w20"];
  expect(errors.map(({ writer }) => writer)).toEqual(latest);
  expect(begun).toEqual(latest);
  expect(text.length).toBeLessThan(10_000);
});
