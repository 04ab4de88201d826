import { describe, expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, heldNight, lastJson, nightlyJob } from "../support/nights.js";
import { rejectingJob } from "../support/rejecting-job.js";

describe("the rows of a run that is over", () => {
  test("a held run counts the rows of its output, before and after it is approved", async () => {
    const nights = await nightlyJob(scratch.path);
    const runId = await heldNight(nights);
    const rows = "50 rows, 392 filtered out";
    const held = await nights.night("run", "2026-11-21");
    expect(held.stdout).toBe(`${runId}: held, 50 rows wait for a decision (392 filtered out)\n`);
    const status = await nights.night("status", "2026-11-21");
    expect(status.stdout).toContain(`${runId}: held, 5 of 5 spans committed (${rows}); `);
    const approved = await nights.night("approve", "2026-11-21");
    expect(approved.stdout).toContain(`${runId}: published, ${rows} -> `);
    const again = await nights.night("approve", "2026-11-21", "--json");
    expect(lastJson(again)).toMatchObject({ already: true, rows: 50, rows_rejected: 0, rows_filtered: 392 });
    const done = await nights.night("run", "2026-11-21");
    expect(done.stdout).toMatch(/: already complete, 50 rows in \S+ \(392 filtered out\)\n$/);
  });

  test("approve says that it publishes no row", async () => {
    const nights = await nightlyJob(scratch.path);
    await nights.night("run", "2026-11-20");
    await nights.rewrite({ input: { where: fewRows.input.where.replace("50", "0") } });
    expect((await nights.night("run", "2026-11-21")).code).toBe(67);
    const { stdout } = await nights.night("approve", "2026-11-21");
    expect(stdout).toContain(": published, 0 rows, 442 filtered out -> ");
  });

  test("rejected rows are not counted as rows of the output", async () => {
    const { spec } = await rejectingJob(scratch.path);
    const done = await runHere(["run", spec]);
    expect(done.stdout).toMatch(/: already complete, 72 rows in \S+ \(18 rejected, 10 filtered out\)\n$/);
    const status = await runHere(["status", spec]);
    expect(status.stdout).toContain("published, 13 of 13 spans committed (72 rows, 18 rejected, 10 filtered out) -> ");
    expect(lastJson(await runHere(["status", spec, "--json"]))).toMatchObject({
      rows_planned: 100,
      rows_committed: 100,
      rows: 72,
      rows_rejected: 18,
      rows_filtered: 10,
    });
  });
});
