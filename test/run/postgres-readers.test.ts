import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { fewRows, heldNight, lastJson, nightsInTable } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";
import { firstOf } from "../support/torture.js";
import { expectEnd } from "../support/cli.js";

const postgres = usePostgres();
const inPage = { report: { html: "page-${ds}.html" }, output: { lineage: true } };

postgres.describe("a held run whose table has the rows of a run for a later date", () => {
  test.each(firstOf(["append", "replace", "upsert"]))(
    "a held run names the run that was published last by now, and commands that work: %s",
    async (mode) => {
      const readers = (last: string, held: string): string =>
        mode === "replace"
          ? `eaders still have the run of ${last}`
          : `he table has nothing of ${held}; the last published run is that of ${last}`;
      await using database = await postgres.server().createDatabase();
      const nights = await nightsInTable(scratch.path, database, mode, inPage);
      const page = (): Promise<string> => readFile(join(scratch.path, "page-2026-11-21.html"), "utf8");
      await heldNight(nights);
      expect(await page()).toMatch(new RegExp(`<h1>HELD. .${readers("20 Nov", "21 Nov")}.</h1>`));
      await nights.rewrite({});
      await expectEnd(nights.night("run", "2026-11-22"), 0);
      await nights.rewrite(fewRows);
      const held = await nights.night("run", "2026-11-21");
      expect([held.code, await page()]).toEqual([
        67,
        expect.stringMatching(new RegExp(`<h1>HELD. .${readers("22 Nov", "21 Nov")}.</h1>`)),
      ]);
      const status = await nights.night("status", "2026-11-21");
      const others = await nights.night("status", "2026-11-22");
      expect(status.stdout).toContain(readers("2026-11-22", "2026-11-21"));
      expect(held.stderr).toContain(readers("2026-11-22", "2026-11-21"));
      const { commands } = lastJson(await nights.night("status", "2026-11-21", "--json")) as { commands: string[] };
      const [approve = "", discard = "", newRun = ""] = commands;
      const isRefused = mode !== "append";
      expect(discard).toContain("infer-batch discard");
      for (const text of [held.stderr, status.stdout, await page()]) {
        expect([text.includes(approve), text.includes(newRun)]).toEqual([true, true]);
      }
      expect(others.stdout).toContain(approve);
      const warning = "publishing this one takes --allow-older";
      expect([held.stderr, status.stdout, await page()].map((text) => text.includes(warning))).toEqual([
        isRefused,
        isRefused,
        isRefused,
      ]);
      if (mode === "upsert") {
        const refused = await nights.night("approve", "2026-11-21");
        const hint =
          "hint: the newer rows stay; if rows of this older run may replace those with the same keys, or no key is in both runs: run the same command with --allow-older\n";
        expect([refused.code, refused.stderr]).toEqual([66, expect.stringContaining(hint)]);
      }
      await expectEnd(nights.night("approve", "2026-11-21", ...(isRefused ? ["--allow-older"] : [])), 0);
    },
  );

  test("after a rollback, readers have the run before the one that was put back", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, "replace", inPage);
    for (const date of ["2026-11-19", "2026-11-20"]) {
      await expectEnd(nights.night("run", date), 0);
    }
    await expectEnd(nights.night("rollback", "2026-11-20"), 0);
    await nights.rewrite(fewRows);
    await expectEnd(nights.night("run", "2026-11-21"), 67, "readers still have the run of 2026-11-19");
  });

  test.each([
    ["upsert", "he table has nothing of 2026-11-22; the last published run is that of 2026-11-21, which has no rows"],
    ["replace", "eaders still have the run of 2026-11-21, which has no rows"],
  ])("a held run says that the run before it was published without rows: %s", async (mode, expected) => {
    await using database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, mode, inPage);
    await expectEnd(nights.night("run", "2026-11-20"), 0);
    await nights.rewrite({ input: { where: "id < 0" }, checks: { on_fail: "warn" } });
    await expectEnd(nights.night("run", "2026-11-21"), 0);
    await nights.rewrite({ ...fewRows, checks: { sql: { enough: "count(*) > 100" } } });
    await expectEnd(nights.night("run", "2026-11-22"), 67, expected);
  });

  test("a held run names the run of the same date whose rows are in the table", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, "upsert", inPage);
    const runIds: unknown[] = [];
    for (const date of ["2026-11-19", "2026-11-20", "2026-11-21"]) {
      runIds.push(lastJson(await nights.night("run", date, "--json"))["run_id"]);
    }
    await nights.rewrite(fewRows);
    const held = await nights.night("run", "2026-11-20", "--new-run", "--allow-older");
    const expected = `the table still has run ${String(runIds[1])} of 2026-11-20; the last published run is that of 2026-11-21`;
    expect([held.code, held.stderr]).toEqual([67, expect.stringContaining(expected)]);
    const discarded = await nights.night("discard", "2026-11-20");
    expect([discarded.code, discarded.stderr + discarded.stdout]).toEqual([0, expect.stringContaining(expected)]);
  });
});

postgres.describe("a published run that a person wants to discard", () => {
  test.each(firstOf(["append", "upsert"]))(
    "discard of a published run says how to score it again: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const nights = await nightsInTable(scratch.path, database, mode, inPage);
      const done = await nights.night("run", "2026-11-20", "--json");
      const { code, stderr } = await nights.night("discard", "2026-11-20");
      const again = `infer-batch run ${nights.spec} --param ds=2026-11-20 --new-run`;
      const append = `delete its rows from scores.predictions at \\S+, those with run_id ${String(lastJson(done)["run_id"])}, then score again: ${again} --allow-duplicates`;
      const upsert = `score again, which replaces its predictions: ${again}`;
      expect([code, stderr]).toEqual([66, expect.stringMatching(`hint: ${mode === "append" ? append : upsert}\n`)]);
      if (mode === "append") {
        await database.query(`DELETE FROM scores.predictions WHERE run_id = '${String(lastJson(done)["run_id"])}'`);
      }
      const options = mode === "append" ? ["--allow-duplicates"] : [];
      await expectEnd(nights.night("run", "2026-11-20", "--new-run", ...options), 0);
      expect(await database.query("SELECT count(*)::int AS n FROM scores.predictions")).toEqual([{ n: 442 }]);
    },
  );
});
