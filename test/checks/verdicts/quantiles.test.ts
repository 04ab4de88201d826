import { expect, test } from "vitest";
import { checkQuantiles } from "#src/checks/verdicts/quantile-check.js";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import { normals, numbersProfile } from "../../support/run-profiles.js";

/** Probabilities of a class that a model is sure of: near 1 in about a tenth of the rows, else near 0. */
const probabilities = (seed: number, rows = 3000): number[] =>
  normals(rows, { seed }).map((z) => 1 / (1 + Math.exp(-8 * (z - 1.28))));

function resultOf(now: readonly number[], before: readonly (readonly number[])[]): CheckResult {
  const earlier = before.map((values, index) => ({ runId: `night-${index}`, profile: numbersProfile(values) }));
  const [result] = checkQuantiles({ column: "p0", now: numbersProfile(now), earlier });
  if (result === undefined) {
    throw new Error("there is no result");
  }
  return result;
}

test("a quantile that lies where few values are does not warn when it jumps by chance", () => {
  const jumps = Array.from({ length: 20 }, (_, seed) => {
    const result = resultOf(probabilities(seed), [probabilities(seed + 100)]);
    expect(result).toMatchObject({ level: "pass", measured: 0 });
    const { p90, p90_before: before, range_before: range } = result.numbers;
    return Math.abs(Number(p90) - Number(before)) / Number(range);
  });
  expect(Math.max(...jumps)).toBeGreaterThan(5);
});

test("a quantile warns when the values between it and the earlier one are more than chance makes, in either run", () => {
  const more = probabilities(1).map((value, row) => (row % 8 === 0 ? 0.999 : value));
  for (const [now, before] of [
    [more, probabilities(2)],
    [probabilities(2), more],
  ] as const) {
    expect(resultOf(now, [before])).toMatchObject({ level: "warn", limit: 0.5 });
  }
});

test("the shift of a quantile can be derived from the numbers of its result", () => {
  const { numbers, measured } = resultOf(normals(2000, { mean: 1, seed: 1 }), [normals(1500, { seed: 2 })]);
  const number = (name: string): number => Number(numbers[name]);
  const due = [10, 50, 90].map((percent) => {
    const share = percent / 100;
    const deviation = Math.sqrt(share * (1 - share) * (1 / number("values_before") + 1 / number("values")));
    const shift = Math.abs(number(`p${percent}`) - number(`p${percent}_before`)) / number("range_before");
    return number(`rank_shift_p${percent}`) > 0.05 + 3 * deviation ? shift : 0;
  });
  expect(measured).toBe(Math.max(...due));
  expect(number("rank_shift_p50")).toBeCloseTo(0.34, 1);
  expect([number("values"), number("values_before")]).toEqual([2000, 1500]);
});

/** Numbers of which a percentage is 0. */
function zeros(percent: number): number[] {
  return normals(4000, { mean: 5 }).map((value, row) => (row % 100 < percent ? 0 : value));
}

test("a quantile at a value of many rows has moved by no rank while it stays within them", () => {
  expect(resultOf(zeros(12), [zeros(45)])).toMatchObject({ numbers: { rank_shift_p10: 0 } });
});

test("the run with the smallest shift counts", () => {
  const near = normals(2000, { mean: 0.2, seed: 3 });
  const result = resultOf(normals(2000, { seed: 1 }), [near, normals(2000, { mean: 3, seed: 2 })]);
  expect(result).toMatchObject({ level: "pass", against: "night-0" });
});

/** Mostly 1. */
const sure = (seed: number): number[] => normals(3000, { seed }).map((z) => (z < -1 ? Math.abs(z) / 10 : 1));

test("a run that has no interquartile range counts where no quantile has moved", () => {
  const result = resultOf(sure(1), [normals(3000, { seed: 2 }), sure(3)]);
  expect(result).toMatchObject({ level: "pass", measured: 0, against: "night-1", numbers: { range_before: 0 } });
  expect(resultOf(normals(3000, { mean: 9, seed: 1 }), [normals(3000, { seed: 2 }), sure(3)]).against).toBe("night-0");
});
