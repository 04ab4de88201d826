import { expect, test } from "vitest";
import { drawRows } from "#src/run/preview.js";
import { expectEnd, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";

test("drawing rows draws each row once, the same ones for a seed, however many are drawn at a time", () => {
  const whole = drawRows(50, 3);
  expect(whole.more(60).toSorted((one, other) => one - other)).toEqual(Array.from({ length: 50 }, (_, row) => row));
  expect(whole.more(1)).toEqual([]);
  const parts = drawRows(50, 3);
  expect([...parts.more(7), ...parts.more(1), ...parts.more(50)]).toEqual(whole.rows);
  expect(drawRows(50, 4).more(50)).not.toEqual(whole.rows);
});

test("each row, and each pair of neighbours, is drawn equally often over many seeds", () => {
  const [all, wanted, seeds] = [20, 5, 20_000];
  const counts = new Float64Array(all);
  let pairs = 0;
  for (let seed = 1; seed <= seeds; seed += 1) {
    const drawn = new Set(drawRows(all, seed).more(wanted));
    for (const row of drawn) {
      counts[row] = (counts[row] ?? 0) + 1;
      pairs += drawn.has(row + 1) ? 1 : 0;
    }
  }
  const expected = (seeds * wanted) / all;
  const chiSquare = counts.reduce((sum, found) => sum + (found - expected) ** 2 / expected, 0);
  expect(chiSquare).toBeLessThan(43.8); // 19 degrees of freedom, p = 0.001; the seeds are fixed
  const expectedPairs = (seeds * (all - 1) * wanted * (wanted - 1)) / (all * (all - 1));
  expect(Math.abs(pairs - expectedPairs)).toBeLessThan(4 * Math.sqrt(expectedPairs));
});

test("rows are drawn from a table of 100 million without a list of them", () => {
  const drawn = drawRows(100_000_000, 1).more(10_000);
  expect(new Set(drawn).size).toBe(10_000);
  const tenths = new Float64Array(10);
  for (const row of drawn) {
    const tenth = Math.floor(row / 10_000_000);
    tenths[tenth] = (tenths[tenth] ?? 0) + 1;
  }
  for (const rows of tenths) {
    expect(Math.abs(rows - 1000)).toBeLessThan(120); // four standard deviations
  }
});

const rows = 200_000;
const select = `SELECT range AS id, (range * 7919 % 10007 + 1)::FLOAT AS x FROM range(${rows})`;
/** One row in 24 of the planned ones would be sampled: 41 of those that are left, too few for a PSI. */
const kept = { where: "id % 200 = 0" };
const nightly = {
  params: { ds: "${today}" },
  checks: {},
  output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
};

test("a feature whose unit has changed is noticed in a run of few filtered rows of many", async () => {
  const { spec, rewrite } = await smallJob(scratch.path, { model: identity, select });
  const run = (date: string): ReturnType<typeof runHere> => runHere(["run", spec, "--param", `ds=${date}`]);
  await rewrite({ ...nightly, input: kept });
  await expectEnd(run("2026-11-20"), 0);
  await rewrite({ ...nightly, input: { ...kept, columns: { x: "(x / 1000)::FLOAT" } } });
  await expectEnd(run("2026-11-21"), 0, /WARN: checks: x: median .*÷1000: thousands\?/);
});
