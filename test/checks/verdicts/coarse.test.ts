import { expect, test } from "vitest";
import { type ColumnProfile, profileColumn } from "#src/checks/profiles/column-profile.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { Verdict } from "#src/checks/verdicts/verdict.js";
import { coarseText, columnNotes } from "#src/publish/compared-text.js";
import { fullLimits, nightsBefore, normals, numbersProfile, runProfile } from "../../support/run-profiles.js";

const night = (x: ColumnProfile): Parameters<typeof runProfile>[0] => ({ outputs: { x } });

function verdictOn(now: ColumnProfile, before = now): Verdict {
  return judge({ run: runProfile(night(now)), baseline: nightsBefore(8, () => night(before)) }, defaultChecks);
}

/** Numbers around a mean, but for one in twenty, which is anywhere between 1e-6 and 1e6, in 32 bins. */
function withTail(mean: number, seed = 1): ColumnProfile {
  const data = Float64Array.from(normals(2000, { mean, deviation: 0.3, seed }), (value, row) =>
    row % 20 === 0 ? 10 ** (((row * 7) % 1200) / 100 - 6) : value,
  );
  const column = { kind: "fixed", elementsPerValue: 1, data, valid: undefined } as const;
  return profileColumn({ type: "float64" }, column, { ...fullLimits, bins: 32 });
}

test("a verdict lists an output with a fifth of its rows in one wide bin, and the text about it is not among the notes on columns", () => {
  const verdict = verdictOn(withTail(5.6), withTail(5, 2));
  expect(verdict.outcome).toBe("publish");
  expect(verdict.coarse).toMatchObject([{ column: "x", rows: 2000 }]);
  expect(columnNotes(verdict)).toEqual([]);
  expect(verdict.coarse?.map((column) => coarseText(column))).toEqual([
    "the PSI of x is coarse: 95.3% of the rows are in one bin, 2 to 8, and a change within it is not seen",
  ]);
});

test("points in time of one day are in one bin, which the verdict says", () => {
  const times = normals(2000).map((z) => 1.79e12 + 43_200_000 + z * 10_000_000);
  expect(verdictOn(numbersProfile(times)).coarse).toHaveLength(1);
});

test("a PSI of narrow bins, of zeros or of values that are counted one by one is not called coarse", () => {
  const many = normals(2000, { mean: 5 });
  const others = [
    many,
    normals(4000).map((value, row) => (row % 10 === 0 ? value : 0)),
    many.map((value, row) => (row % 3 === 0 ? value : 1)),
    many.map((_, row) => 30_000 + (row % 3)),
  ];
  for (const values of others) {
    expect(verdictOn(numbersProfile(values))).not.toHaveProperty("coarse");
  }
  const whole = numbersProfile(
    Array.from({ length: 2000 }, (_, row) => (row % 2 === 0 ? 3 : row)),
    "int64",
  );
  expect(verdictOn(whole)).not.toHaveProperty("coarse");
});

test("a bin of a run whose values are counted is not called coarse, although those of the other run are not", () => {
  const [many, one] = [withTail(0.3), numbersProfile(normals(2000).map(() => 5))];
  expect(verdictOn(withTail(5.6), many).coarse).toMatchObject([{ run: "this" }]);
  expect(verdictOn(one, many).coarse).toMatchObject([{ run: "earlier" }]);
  expect(verdictOn(many, one).coarse).toMatchObject([{ run: "this" }]);
});

test("the range of a coarse bin ends where the values of the run end", () => {
  const shares = normals(2000).map((z, row) =>
    row % 20 === 0 ? 10 ** (-1 - ((row * 7) % 1200) / 100) : Math.min(0.9 + z / 50, 0.9987),
  );
  const column = { kind: "fixed", elementsPerValue: 1, data: Float64Array.from(shares), valid: undefined } as const;
  const profile = profileColumn({ type: "float64" }, column, { ...fullLimits, bins: 16 });
  expect(verdictOn(profile).coarse).toMatchObject([
    { values: `0.125 to ${Number(Math.max(...shares).toPrecision(6))}` },
  ]);
});
