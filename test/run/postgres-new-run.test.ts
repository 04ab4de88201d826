import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { refusalOf } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import type { Database } from "../support/pg-database.js";
import { tableFaults, writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { runSpec, scoreHere, workerOf } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf } from "../support/torture.js";

const postgres = usePostgres();
const fixture = fixtureNamed("diabetes-mlp");
const id = "diabetes-mlp-4f53cda18c2b";

type Mode = "append" | "upsert" | "replace";
const modes: readonly Mode[] = ["append", "upsert", "replace"];

/** 442 rows in 12 spans of 40, the last one of 2. */
async function specFor(folder: string, database: Database, mode: Mode, more: object = {}): Promise<string> {
  const output = { postgres: { mode, key: mode === "append" ? [] : ["id"] } };
  return await writePgSpec(folder, fixture, database, { commit_rows: 40, output, ...more });
}

async function statuses(database: Database): Promise<string[]> {
  const rows = await database.query("SELECT run_id, status FROM infer_batch.progress ORDER BY planned_at");
  return rows.map(({ run_id, status }) => `${String(run_id).slice(id.length)} ${String(status)}`);
}

async function countRows(database: Database): Promise<unknown> {
  return (await database.query("SELECT count(*)::int AS n, count(DISTINCT id)::int AS ids FROM scores.predictions"))[0];
}

postgres.describe("--new-run into Postgres", () => {
  test.each(firstOf(["upsert", "replace"] as const))(
    "--new-run over a finished run in Postgres replaces its rows: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const spec = await specFor(scratch.path, database, mode);
      await scoreHere(spec);
      await database.query("UPDATE scores.predictions SET score = -1");
      expect(await scoreHere(spec, { newRun: true })).toMatchObject({
        runId: `${id}-r2`,
        status: "complete",
        rowsScored: 442,
        spansResumed: 0,
      });
      expect(await tableFaults(database, fixture)).toEqual([]);
      expect(await scoreHere(spec)).toMatchObject({ runId: `${id}-r2`, status: "already_complete" });
      expect(await statuses(database)).toEqual([" complete", "-r2 complete"]);
    },
  );

  test("--new-run in append is refused over the rows of an earlier run, unless duplicates are allowed", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await specFor(scratch.path, database, "append");
    const first = await runSpec(spec, { args: ["--new-run"] });
    expect([first.code, first.summary?.status], first.stderr).toEqual([0, "complete"]);
    await expectEnd(
      runSpec(spec, { args: ["--new-run"] }),
      64,
      `error: opening a new run: output.postgres.mode is append, and scores.predictions keeps the rows of the runs before
  hint: use mode upsert or replace, which accept new runs; or empty the table; or delete those rows, or accept each row twice, and add --allow-duplicates
`,
    );
    expect(await statuses(database)).toEqual([" complete"]);

    const { code, summary } = await runSpec(spec, { args: ["--new-run", "--allow-duplicates"] });
    expect([code, summary]).toMatchObject([0, { status: "complete", rows_scored: 442 }]);
    expect(await countRows(database)).toEqual({ n: 884, ids: 442 });
    expect((await scoreHere(spec)).status).toBe("already_complete");

    await database.query("TRUNCATE scores.predictions");
    expect((await runSpec(spec, { args: ["--new-run"] })).summary).toMatchObject({ status: "complete" });
    expect(await tableFaults(database, fixture)).toEqual([]);
  });

  test("in append, a run that failed before it committed a row is corrected, though the table has rows of others", async () => {
    await using database = await postgres.server().createDatabase();
    const write = (ds: string, age = "age") =>
      specFor(scratch.path, database, "append", { params: { ds }, commit_rows: 1000, input: { columns: { age } } });
    await expectEnd(runSpec(await write("2026-01-01")), 0);
    await expectEnd(runSpec(await write("2026-01-02", "CASE WHEN id = 5 THEN NULL ELSE age END")), 65);
    await expectEnd(runSpec(await write("2026-01-02")), 0);
    expect(await countRows(database)).toEqual({ n: 884, ids: 442 });
    await expectEnd(runSpec(await write("2026-01-02"), { args: ["--new-run"] }), 64);
  });

  test.each(firstOf(modes))(
    "--new-run abandons a run whose pins do not hold, and scores its committed rows again: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      await scoreHere(await specFor(scratch.path, database, mode), workerOf(0, 2));
      const changed = await specFor(scratch.path, database, mode, { model: { cast: "lossy" } });
      const flags = mode === "append" ? "--new-run --allow-duplicates" : "--new-run";
      expect(await refusalOf(scoreHere(changed))).toMatch(
        new RegExp(
          `^66 PLAN_CHANGED\n.*model.cast.*\nhint: restore .*\n.*to abandon this run.*: infer-batch run \\S+ ${flags}$`,
        ),
      );
      expect(await scoreHere(changed, { newRun: true, allowDuplicates: true })).toMatchObject({
        runId: `${id}-r2`,
        status: "complete",
        rowsScored: 442,
      });
      expect(await statuses(database)).toEqual([" abandoned", "-r2 complete"]);
      if (mode === "append") {
        expect(await countRows(database)).toEqual({ n: 682, ids: 442 });
      } else {
        expect(await tableFaults(database, fixture)).toEqual([]);
      }
    },
  );

  test.each([
    { planned: "append", now: "upsert", flags: "--new-run", end: "replaces them" },
    { planned: "upsert", now: "append", flags: "--new-run --allow-duplicates", end: "adds to them" },
  ] as const)(
    "the hint for --new-run follows the mode of the spec, not of the plan: from $planned to $now",
    async ({ planned, now, flags, end }) => {
      await using database = await postgres.server().createDatabase();
      await scoreHere(await specFor(scratch.path, database, planned));
      const changed = await specFor(scratch.path, database, now);
      expect(await refusalOf(scoreHere(changed))).toMatch(
        new RegExp(
          `output.postgres.mode is "${now}", planned "${planned}".*\nhint: the finished .*\n.* ${end}: infer-batch run \\S+ ${flags}$`,
        ),
      );
    },
  );

  test("--new-run resumes an unfinished run whose pins hold", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await specFor(scratch.path, database, "append");
    await scoreHere(spec, workerOf(1, 2));
    expect(await scoreHere(spec, { newRun: true, allowDuplicates: true })).toMatchObject({
      runId: id,
      status: "complete",
      spansResumed: 6,
    });
    expect(await tableFaults(database, fixture)).toEqual([]);
  });
});

postgres.describe("several workers into Postgres", () => {
  test.each(firstOf(modes))("workers share a run into Postgres, and the last one finishes it: %s", async (mode) => {
    await using database = await postgres.server().createDatabase();
    const spec = await specFor(scratch.path, database, mode);
    expect(await scoreHere(spec, workerOf(2, 3))).toMatchObject({ status: "partial", rowsScored: 122 });
    expect(await scoreHere(spec, workerOf(0, 3))).toMatchObject({ status: "partial", spansResumed: 4 });
    expect(await scoreHere(spec, workerOf(1, 3))).toMatchObject({ status: "complete", spansResumed: 8 });
    expect(await tableFaults(database, fixture)).toEqual([]);
    expect((await scoreHere(spec, workerOf(0, 3))).status).toBe("already_complete");

    const { stdout } = await runHere(["status", spec, "--json"]);
    const { workers } = JSON.parse(stdout) as { workers: { worker: number; workers: number; spans: number }[] };
    expect(workers.map(({ worker, workers: count, spans }) => [worker, count, spans])).toEqual([
      [0, 3, 4],
      [1, 3, 4],
      [2, 3, 4],
    ]);
    expect(
      await database.query("SELECT DISTINCT program, provider, batch_size, on_bad_row FROM infer_batch.spans"),
    ).toEqual([
      { program: expect.stringMatching(/^infer-batch \d/), provider: "cpu", batch_size: 40, on_bad_row: "fail" },
    ]);
  });

  test.each(firstOf(modes.toReversed()))(
    "two workers at once, and one that takes over the spans of a missing one, leave each row once: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const spec = await specFor(scratch.path, database, mode);
      const both = await Promise.all(
        [0, 1].map((index) => runSpec(spec, { ownProcess: true, args: ["--worker", `${index}/3`] })),
      );
      expect(both.map(({ code, stderr }) => (code === 0 ? 0 : stderr))).toEqual([0, 0]);
      expect(both.map(({ summary }) => summary?.status)).toEqual(["partial", "partial"]);
      const { code, stderr, summary } = await runSpec(spec, { args: ["--worker", "0/3", "--steal"] });
      expect([code, summary?.status], stderr).toEqual([0, "complete"]);
      expect(await tableFaults(database, fixture)).toEqual([]);
    },
  );
});

postgres.describe("a row filter and a computed column", () => {
  test.each(firstOf(modes.toReversed()))(
    "a row filter and a computed column give the same rows in Postgres as in files: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const spec = await specFor(scratch.path, database, mode, {
        input: { where: "id % 3 = 0", columns: { bmi: "bmi + 0" } },
      });
      const expected = (await goldenRows(fixture)).filter((row) => BigInt(String(row["id"])) % 3n === 0n);
      expect(await scoreHere(spec)).toMatchObject({
        status: "complete",
        rowsScored: expected.length,
        rowsFiltered: 442 - expected.length,
      });
      const rows = await database.query("SELECT id, score FROM scores.predictions ORDER BY id");
      expect(
        differences(
          rows.map(({ id: key, score }) => ({ id: BigInt(String(key)), score })),
          expected,
        ),
      ).toEqual([]);
      expect(await database.query("SELECT rows_committed, rows_filtered FROM infer_batch.progress")).toEqual([
        { rows_committed: String(expected.length), rows_filtered: String(442 - expected.length) },
      ]);
    },
  );
});

postgres.describe("an unfinished run of other params", () => {
  test("run and status name an unfinished run of other params, with the command that finishes it", async () => {
    await using database = await postgres.server().createDatabase();
    const withDay = (ds: string): Promise<string> => specFor(scratch.path, database, "upsert", { params: { ds } });
    const yesterday = await scoreHere(await withDay("2026-01-01"), workerOf(0, 2));
    const spec = await withDay("2026-01-02");
    const told = `run ${yesterday.runId} in scores.predictions is not finished; to finish it: infer-batch run ${spec} --param ds=2026-01-01`;
    expect((await runHere(["status", spec])).stdout).toContain(told);
    await expectEnd(runSpec(spec), 0, told);

    await expectEnd(
      runSpec(spec, { args: ["--param", "ds=2026-01-01"] }),
      66,
      /^error: writing to scores.predictions: run .* was planned after .*, and has published to this table$/m,
    );
    expect(await tableFaults(database, fixture)).toEqual([]);
    const finish = await runSpec(spec, { args: ["--param", "ds=2026-01-01", "--allow-older"] });
    expect([finish.code, finish.summary?.status]).toEqual([0, "complete"]);
    expect((await runHere(["status", spec])).stdout).not.toContain("is not finished");
  });
});
