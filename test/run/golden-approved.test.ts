import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { nightlyJob } from "../support/nights.js";
import { expectEnd } from "../support/cli.js";

test("a run whose model was published by an approval does not warn that it is the first run with this model", async () => {
  const nights = await nightlyJob(scratch.path, { checks: { sql: { no_rows: "count(*) = 0" } } });
  const found: unknown[] = [];
  for (const date of ["2026-11-20", "2026-11-21"]) {
    const { code, stderr } = await nights.night("run", date);
    found.push([code, stderr.includes("first run with")]);
    await expectEnd(nights.night("approve", date), 0);
  }
  expect(found).toEqual([
    [67, true],
    [67, false],
  ]);
});
