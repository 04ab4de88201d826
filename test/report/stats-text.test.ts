import { expect, test } from "vitest";
import { statsText } from "#src/report/stats-text.js";
import { numbersProfile, runProfile, textsProfile } from "../support/run-profiles.js";

test.each([
  [20, "the run was planned without checks"],
  [0, "no row was scored"],
])("the statistics of a run of %i rows without features say that %s", (rows, why) => {
  const text = statsText({ profile: runProfile({ rows }), state: "published", challenger: undefined });
  expect(text).toContain(`\nfeatures: not profiled, because ${why}`);
});

test("the statistics of whole numbers below 10^15 have no exponent", () => {
  const days = Array.from({ length: 100 }, (_, index) => 20_260_901 + (index % 30));
  const codes = days.map((day) => day * 1e6);
  const outputs = { day: numbersProfile(days, "int64"), code: numbersProfile(codes, "int64") };
  const text = statsText({ profile: runProfile({ outputs }), state: "published" });
  expect(text).toMatch(/\n *day .* 20260901 .* 20260930 /);
  expect(text).toMatch(/\n *code .* 20260901000000 .* 20260930000000 /);
  expect(text).not.toMatch(/\de\+?\d/);
});

test.each([
  ["float32", [18.9, 18.9, 0.1, 16777216, -0], "18.9 (40%), 0 (20%), 0.1 (20%)"],
  ["float64", [18.9, 18.9, 0.1], "18.9 (66.7%), 0.1 (33.3%)"],
] as const)("the most frequent values of a %s column have six digits", (type, values, expected) => {
  const outputs = { x: numbersProfile(values.map(Math.fround), type) };
  expect(statsText({ profile: runProfile({ outputs }), state: "published" })).toContain(`  ${expected}\n`);
});

test("a frequent value that begins or ends with a blank is in quotes", () => {
  const profile = runProfile({ outputs: { x: textsProfile({ "north ": 3, south: 1 }) } });
  expect(statsText({ profile, state: "published" })).toContain('"north " (75%), south (25%)');
});
