import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, nightlyJob } from "../support/nights.js";

test("infer-batch checks judges the published nights as if each were tonight, and names what would have held one", async () => {
  const nights = await nightlyJob(scratch.path, { checks: { on_fail: "warn" } });
  const none = await nights.night("checks", "2026-11-20");
  expect([none.code, none.stderr]).toEqual([64, expect.stringContaining("none is published")]);
  await nights.night("run", "2026-11-20");
  await nights.night("run", "2026-11-21");
  await nights.rewrite({ ...fewRows, checks: { on_fail: "warn" } });
  expect((await nights.night("run", "2026-11-22")).code).toBe(0);

  const shown = await nights.night("checks", "2026-11-22");
  expect([shown.code, shown.stderr]).toEqual([0, ""]);
  const [head, , run] = shown.stdout.split("\n");
  expect(head).toBe(
    "3 nights, 2026-11-20 to 2026-11-22, each judged as if it were tonight with factor 4: 1 held, 1 warned",
  );
  expect(run).toMatch(/^ {2}\(the run\) +1 +1 .*2026-11-22/);
  const last = lastJson(await nights.night("checks", "2026-11-22", "--last", "1", "--json"));
  expect(last).toMatchObject({
    factor: 4,
    nights: [{ date: "2026-11-22", outcome: "hold", nights_known: 2 }],
    columns: [{ column: null, role: "run", nights_held: 1, farthest: { check: "rows", date: "2026-11-22" } }],
  });
});

test("the factor above which a night would have passed is that of its column, and a limit has none", async () => {
  const own = { on_fail: "warn", inputs: { age: { factor: 10 } }, outputs: { score: { range: [0, 10] } } };
  const nights = await nightlyJob(scratch.path, { checks: own });
  await nights.night("run", "2026-11-20");
  await nights.rewrite({ checks: own, input: { columns: { age: "age * 1000" } } });
  expect((await nights.night("run", "2026-11-21")).code).toBe(0);

  const { columns } = lastJson(await nights.night("checks", "2026-11-21", "--json")) as {
    columns: { column: string; farthest: { times: number; check: string } }[];
  };
  const shown = await nights.night("checks", "2026-11-21");
  const lineOf = (column: string): string =>
    shown.stdout.split("\n").find((line) => line.includes(` ${column} `)) ?? "";
  const timesOf = (column: string): number => columns.find((each) => each.column === column)?.farthest.times ?? 0;
  expect(lineOf("age")).toContain(`factor ${Number((10 * timesOf("age")).toPrecision(2))} `);
  expect(timesOf("score")).toBeGreaterThan(1);
  expect(lineOf("score")).toContain("out of range");
  expect(lineOf("score")).not.toContain("factor");
});
