import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { refusalOf, spoiltJob, watching } from "../support/faulty.js";
import { scratch, scratchFolder } from "../support/job.js";
import { partNames } from "../support/output.js";
import { expectAllThere, nameOfRejects, reject, rejectNames, spoil } from "../support/rejects.js";
import { runSpec, scoreHere } from "../support/score.js";
import { firstOf } from "../support/torture.js";
import { expectEnd } from "../support/cli.js";

describe("max_rejects", () => {
  /** Row 10 of each span of 100 is bad: 5 of 442 rows. */
  const spoilt = [10, 110, 210, 310, 410].map((row) => spoil(row, "bmi", "NULL", "null", null));
  const settings = { on_bad_row: "reject", commit_rows: 100, engine: { batch_size: 20 } };

  test.each([
    { limit: 3, says: /4 rows could not be scored, max_rejects is 3; the last: .*row \d+, column `\w+` is/ },
    {
      limit: "0.9%",
      says: /4 rows could not be scored, max_rejects is 0\.9% of 442 rows, 3; the last: .*row \d+, column `\w+` is/,
    },
  ])(
    "a run that exceeds max_rejects ($limit) ends with 65, and the same command finishes it once the limit is raised",
    async ({ limit, says }) => {
      const job = await spoiltJob(scratch.path, "diabetes-mlp", spoilt, { ...settings, max_rejects: limit });

      await expectEnd(runSpec(job.spec), 65, says);
      const kept = (await partNames(job.out)).length;
      expect(kept).toBeGreaterThan(0);
      expect(await readdir(job.out)).not.toContain("_SUCCESS");
      // Rows that earlier attempts set aside count: one row less than there are is still too little.
      await job.rewrite({ ...settings, max_rejects: 4 });
      await expect(scoreHere(job.spec)).rejects.toThrow(/5 rows could not be scored, max_rejects is 4/);
      await job.rewrite({ ...settings, max_rejects: 5 });
      const report = await scoreHere(job.spec);
      expect(report.spansResumed).toBeGreaterThanOrEqual(kept);
      await expectAllThere(job, spoilt);
    },
  );

  test.each([5, "1.14%", "100%"])(
    "a run with exactly as many rejected rows as max_rejects (%s) allows is finished",
    async (limit) => {
      const job = await spoiltJob(scratch.path, "diabetes-mlp", spoilt, { ...settings, max_rejects: limit });

      await scoreHere(job.spec);

      await expectAllThere(job, spoilt);
    },
  );

  test.each([
    { when: "all is committed", committed: 5, at: "before rename _manifest.json #1" },
    { when: "spans are pending", committed: 2, worker: "0/2" },
  ])(
    "max_rejects counts rows that another attempt rejected when $when, also after on_bad_row has changed",
    async (attempt) => {
      const { committed, at = "never", worker = "0/1" } = attempt;
      const job = await spoiltJob(scratch.path, "diabetes-mlp", spoilt.slice(0, committed), {
        ...settings,
        max_rejects: 5,
      });
      const first = await runSpec(job.spec, { ...watching(job.out, { CRASH_AT: at }), args: ["--worker", worker] });
      expect(first.signal ?? first.summary?.status, first.stderr).toBe(worker === "0/1" ? "SIGKILL" : "partial");
      expect(await partNames(job.out)).toHaveLength(committed);
      const before = await partNames(job.out);

      for (const on_bad_row of ["reject", "fail"]) {
        await job.rewrite({ ...settings, on_bad_row, max_rejects: committed - 1 });
        expect(await refusalOf(scoreHere(job.spec))).toMatch(
          `65 TOO_MANY_REJECTS\nscoring: ${committed} rows could not be scored, max_rejects is ${committed - 1}\n`,
        );
        expect(await partNames(job.out)).toEqual(before);
      }
      await job.rewrite({ ...settings, on_bad_row: "fail", max_rejects: committed });
      const { stderr } = await expectEnd(runSpec(job.spec), 0);
      expect(stderr).toMatch(`${committed} rows stay rejected: an earlier attempt with on_bad_row: reject`);
      await expectAllThere(job, spoilt.slice(0, committed));
    },
  );

  test("defaults to one row of a thousand", async () => {
    const job = await spoiltJob(scratch.path, "digits-lightgbm", [], { on_bad_row: "reject" });
    await scoreHere(job.spec);
    await using other = await scratchFolder();
    const two = [spoil(1, "pixel_0_4", "NULL", "null", null), spoil(2, "pixel_0_4", "NULL", "null", null)];
    const spoiltToo = await spoiltJob(other.path, "digits-lightgbm", two, { on_bad_row: "reject" });

    await expect(scoreHere(spoiltToo.spec)).rejects.toThrow(/max_rejects is 0\.1% of 1797 rows, 1/);
  });

  test("a percentage above 0 allows one row of a table in which it is less than a row", async () => {
    const job = await spoiltJob(scratch.path, "diabetes-mlp", spoilt.slice(0, 2), settings);
    expect(await refusalOf(scoreHere(job.spec))).toMatch(
      "2 rows could not be scored, max_rejects is 0.1% of 442 rows, 1",
    );

    await using other = await scratchFolder();
    const single = await spoiltJob(other.path, "diabetes-mlp", spoilt.slice(0, 1), { ...settings, max_rejects: "0%" });
    expect(await refusalOf(scoreHere(single.spec))).toMatch(
      "1 row could not be scored, max_rejects is 0% of 442 rows, 0",
    );
    await single.rewrite(settings);
    await scoreHere(single.spec);
    await expectAllThere(single, spoilt.slice(0, 1));
  });
});

const spoilt = [100, 101, 300].map((row) => spoil(row, "bmi", "NULL", "null", null));
const settings = { ...reject, commit_rows: 80 };
const run = "diabetes-mlp-4f53cda18c2b";
const rejectsOf = (span: number): unknown => nameOfRejects(span, run);

const moments = [
  "after link _rejects/part-00001 #1",
  "torn write control/tmp/part-00001-jsonl #1",
  "before link part-00001 #1",
];

test.each(firstOf(moments, 2))(
  "a kill between a span's rejects and its part (%s) loses and repeats no row",
  async (at) => {
    const job = await spoiltJob(scratch.path, "diabetes-mlp", spoilt, settings);
    const killed = await runSpec(job.spec, watching(job.out, { CRASH_AT: at }));
    expect(killed.signal, killed.stderr).toBe("SIGKILL");
    expect((await partNames(job.out)).some((name) => name.startsWith("part-00001"))).toBe(false);
    await scoreHere(job.spec);

    await expectAllThere(job, spoilt);
    expect(await rejectNames(job.out)).toEqual([rejectsOf(1), rejectsOf(3)]);
  },
);

test("a kill between a span's rejects and its part leaves no stale file if the next attempt rejects no rows", async () => {
  const job = await spoiltJob(scratch.path, "diabetes-mlp", spoilt, settings);
  const killed = await runSpec(job.spec, watching(job.out, { CRASH_AT: "before link part-00003 #1" }));
  expect(killed.signal).toBe("SIGKILL");
  await writeFile(join(job.out, "_rejects", `part-00004.${run}.${"0".repeat(16)}.jsonl`), "{}\n");

  await scoreHere(job.spec);

  await expectAllThere(job, spoilt);
  expect(await rejectNames(job.out)).toEqual([rejectsOf(1), rejectsOf(3)]);
});
