import { expect, test } from "vitest";
import { type RunStats, statsJson, statsText as linesOf } from "#src/report/stats-text.js";
import { normals, numbersProfile, runProfile, textsProfile, vectorsProfile } from "../support/run-profiles.js";

const statsText = (stats: RunStats, width?: number): string => linesOf(stats, width).join("\n");

test.each([
  [20, "the run was planned without checks"],
  [0, "no row was scored"],
])("the statistics of a run of %i rows without features say that %s", (rows, why) => {
  const text = statsText({ profile: runProfile({ rows }), earlier: [], state: "published", comparison: undefined });
  expect(text).toContain(`\nfeatures: not profiled, because ${why}`);
});

test("the statistics of whole numbers below 10^15 have no exponent", () => {
  const days = Array.from({ length: 100 }, (_, index) => 20_260_901 + (index % 30));
  const codes = days.map((day) => day * 1e6);
  const outputs = { day: numbersProfile(days, "int64"), code: numbersProfile(codes, "int64") };
  const text = statsText({ profile: runProfile({ outputs }), earlier: [], state: "published" });
  expect(text).toMatch(/\n *day .* 20260901 .* 20260930 /);
  expect(text).toMatch(/\n *code .* 20260901000000 .* 20260930000000 /);
  expect(text).not.toMatch(/\de\+?\d/);
});

test.each([
  ["float32", [18.9, 18.9, 0.1, 16777216, -0], "18.9 (40%), 0 (20%), 0.1 (20%)"],
  ["float64", [18.9, 18.9, 0.1], "18.9 (66.7%), 0.1 (33.3%)"],
] as const)("the most frequent values of a %s column have six digits", (type, values, expected) => {
  const outputs = { x: numbersProfile(values.map(Math.fround), type) };
  expect(statsText({ profile: runProfile({ outputs }), earlier: [], state: "published" })).toContain(`  ${expected}\n`);
});

test("a frequent value that begins or ends with a blank is in quotes", () => {
  const profile = runProfile({ outputs: { x: textsProfile({ "north ": 3, south: 1 }) } });
  expect(statsText({ profile, earlier: [], state: "published" })).toContain('"north " (75%), south (25%)');
});

test("stats shows tonight beside the usual nights: the median of their NULLs, medians, shares of values and norms", () => {
  const columns = (mean: number, share: number, length: number): Parameters<typeof runProfile>[0] => ({
    rows: 100 + mean,
    outputs: {
      score: numbersProfile([null, ...normals(99, { mean, deviation: 0.01 })]),
      label: textsProfile({ a: share, b: 100 - share }),
      vector: vectorsProfile([[length, 0]]),
    },
  });
  const earlier = [columns(3, 50, 3), columns(1, 20, 1), columns(2, 40, 2)].map((night, at) =>
    runProfile(night, at + 1),
  );
  const tonight = runProfile(columns(9, 80, 9), 9);

  const text = statsText({ profile: tonight, earlier, state: "held" });
  const { outputs, earlier: before } = statsJson({ profile: tonight, earlier, state: "held" }) as {
    outputs: Record<string, { usual: unknown }>;
    earlier: unknown;
  };

  expect(text).toContain("\nusual is the median of 3 published nights, 2026-11-01 to 2026-11-03: 102 rows\n");
  expect(text).toMatch(/\n {2}column .* NULL {2}usual NULL .* p50 {2}usual p50 /);
  expect(text).toMatch(/\n {2}score .* 1% +1% .* (?:8\.99|9)\S* +(?:1\.99|2)\S* /);
  expect(text).toMatch(/\n {2}label .* a \(80%, usually 40%\), b \(20%, usually 60%\)\n/);
  expect(text).toMatch(/\n {2}vector .* 2 dimensions, median norm 9\S* \(usually 2\S*\), 0% zero\n/);
  expect(before).toHaveLength(3);
  expect(outputs["score"]?.usual).toMatchObject({
    nights: 3,
    null_share: 0.01,
    numbers: { mean: expect.closeTo(2, 1) },
  });
  expect(outputs["label"]?.usual).toMatchObject({
    values: [
      { value: "a", share: 0.4 },
      { value: "b", share: 0.6 },
    ],
  });
});

test("a value that was too rare to have a name on earlier nights has the share that it had there", () => {
  const rare = textsProfile({ a: 90, b: 10 });
  const night = runProfile({ outputs: { label: { ...rare, names: new Map() } as typeof rare } }, 1);
  const tonight = runProfile({ outputs: { label: textsProfile({ a: 50, b: 50 }) } }, 9);
  expect(statsText({ profile: tonight, earlier: [night], state: "held" })).toMatch(
    / {2}a \(50%, usually 90%\), b \(50%, usually 10%\)\n/,
  );
});

test("without an earlier night that has a column, stats has no usual numbers", () => {
  const text = statsText({
    profile: runProfile({ outputs: { score: numbersProfile([1]) } }),
    earlier: [runProfile({ outputs: { score: textsProfile({ a: 1 }) } }, 1)],
    state: "held",
  });
  expect(text).not.toMatch(/usual (?:NULL|p50)/);
});
