import { rename } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { growingLake, missing } from "../support/lake-writers.js";
import { writeLakeJob } from "../support/lakes.js";
import { scratch } from "../support/job.js";
import { fewRows, heldNight, nightlyJob } from "../support/nights.js";
import { writePgSpec } from "../support/pg-job.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { scoreHere, workerOf } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();
const fixture = fixtureNamed("diabetes-mlp");

interface Jobs {
  readonly spec: string;
  readonly other: string;
}

/** Two jobs of one name and one database, for different tables. */
async function jobsIn(folder: string, database: Database, ds = "2026-11-20"): Promise<Jobs> {
  const other = join(folder, "other.yaml");
  const more = { commit_rows: 40, params: { ds } };
  const upsert = { table: "scores.others", mode: "upsert", key: ["id"] };
  await rename(await writePgSpec(folder, fixture, database, { ...more, output: { postgres: upsert } }), other);
  return { spec: await writePgSpec(folder, fixture, database, more), other };
}

const message =
  /^error: comparing the spec with the plan of this finished run: output\.postgres\.table .*scores\.others.*\n {2}hint: the finished predictions are untouched\n {4}if another job is called diabetes-mlp, too, give this job another name: the other one has run diabetes-mlp-\S+ for scores\.others\n {4}to score again/m;

postgres.describe("two jobs of one name for different tables", () => {
  test("no command shows the other job's run as this job's: they end with 66 and say what run says", async () => {
    await using database = await postgres.server().createDatabase();
    const { spec, other } = await jobsIn(scratch.path, database);
    await expectEnd(runHere(["run", other, "--quiet"]), 0);
    const { stderr } = await runHere(["run", spec, "--quiet"]);
    expect(stderr).toMatch(message);
    for (const command of ["status", "stats", "rejects", "validate", "plan"]) {
      expect(await runHere([command, spec]), command).toMatchObject({ code: 66, stdout: "", stderr });
    }
    const diff = await runHere(["diff", spec, "--against", "scores.others", "--key", "id"]);
    expect([diff.code, diff.stderr]).toEqual([66, stderr]);

    const { stdout } = await expectEnd(runHere(["status", spec, other]), 66);
    expect(stdout).toMatch(/job\.yaml +error +comparing the spec with the plan of this finished run: output\.postgres/);
    expect(stdout).toMatch(/other\.yaml +diabetes-mlp-\S+ +published/);
    for (const command of ["status", "stats", "rejects", "validate"]) {
      expect((await runHere([command, other])).code, command).toBe(0);
    }
  });

  test.skipIf(missing !== undefined)(
    "a chain of runs is that of one table, or each would lack the other's",
    async () => {
      await using database = await postgres.server().createDatabase();
      const lake = await growingLake("delta", scratch.path);
      const run = async (table: string, ...options: readonly string[]): ReturnType<typeof runHere> => {
        const more = { output: { columns: ["id"], postgres: { url: database.url, table } } };
        const job = { table: lake.table, columns: ["x", "id"], input: { since: "last_run" }, more };
        return await runHere(["run", await writeLakeJob(scratch.path, job), "--quiet", ...options]);
      };
      await lake.act("append 0 100");
      await expectEnd(run("one"), 0);
      await lake.act("append 100 50");
      await expectEnd(run("other"), 66, "public.one", "another name", "--new-run");
      await expectEnd(run("one"), 0);
      await lake.act("append 150 10");
      await database.query("ALTER TABLE one RENAME COLUMN score TO other_score");
      await expectEnd(run("one"), 64); // with its range stored, and no plan
      await expectEnd(run("other"), 66, "public.one");
      await database.query("ALTER TABLE one RENAME COLUMN other_score TO score");
      await expectEnd(run("one"), 0);
      expect(await database.query("SELECT count(*)::int4 AS rows FROM one")).toEqual([{ rows: 160 }]);
      await expectEnd(run("other", "--new-run", "--allow-duplicates"), 0); // all rows, and the chain goes on there
      expect(await database.query("SELECT count(*)::int4 AS rows FROM other")).toEqual([{ rows: 160 }]);
    },
  );

  test("status and run do not offer to finish the other job's run", async () => {
    await using database = await postgres.server().createDatabase();
    const { other } = await jobsIn(scratch.path, database);
    await scoreHere(other, workerOf(0, 2));
    const next = await jobsIn(scratch.path, database, "2026-11-21");
    expect((await runHere(["status", next.other])).stdout).toContain("is not finished; to finish it:");
    expect((await runHere(["status", next.spec])).stdout).not.toContain("is not finished");
    expect((await runHere(["run", next.spec])).stderr).not.toContain("is not finished");
  });

  test.each(["approve", "discard"])("%s, run and plan leave alone a held run of the other job", async (command) => {
    await using database = await postgres.server().createDatabase();
    const output = (table: string): object => ({
      parquet: undefined,
      postgres: { url: database.url, table, timeouts: { lock: 1 } },
    });
    const nights = await nightlyJob(scratch.path, { output: output("scores.others") });
    await heldNight(nights);
    await nights.rewrite({ output: output("scores.predictions") });
    for (const refusing of [command, "run", "plan", "status"]) {
      const refused = await nights.night(refusing, "2026-11-21");
      expect([refused.code, refused.stderr], refusing).toEqual([66, expect.stringContaining("output.postgres.table")]);
    }
    await nights.rewrite({ output: output("scores.others") });
    await expectEnd(nights.night(command, "2026-11-21"), 0);
  });

  test("run --new-run of one job leaves alone rows that the other one has not published yet, until their table is gone", async () => {
    await using database = await postgres.server().createDatabase();
    const append = { table: "scores.others", mode: "append" };
    const other = join(scratch.path, "other.yaml");
    const write = async (target: object): Promise<string> =>
      await writePgSpec(scratch.path, fixture, database, { commit_rows: 40, output: { postgres: target } });
    await rename(await write(append), other);
    const spec = await write({ mode: "append" });
    await scoreHere(other, workerOf(0, 2));

    await expectEnd(
      runHere(["run", spec, "--new-run"]),
      66,
      /opening run diabetes-mlp-\S+-r2: run diabetes-mlp-\S+ for scores\.others has committed spans and is not published\n {2}hint: if another job is called diabetes-mlp, too, give this job another name; else name scores\.others/,
    );
    await expectEnd(runHere(["run", other, "--quiet"]), 0);
    const rows = "SELECT count(*)::int AS n, count(DISTINCT id)::int AS ids FROM scores.others";
    expect(await database.query(rows)).toEqual([{ n: 442, ids: 442 }]);
    expect(await database.query("SELECT run_id FROM infer_batch.runs")).toHaveLength(1);

    await database.query("DELETE FROM infer_batch.finishes; ALTER TABLE scores.others RENAME TO moved");
    await expectEnd(
      runHere(["run", spec]),
      66,
      /or, if scores\.others is gone, abandon this run, and start over: infer-batch run .* --new-run\n/,
    );
    await database.query("CREATE VIEW scores.others AS SELECT * FROM scores.moved"); // for those who knew the old name
    await expectEnd(runHere(["run", spec, "--new-run"]), 0, "planning a new run in place of");
  });

  test("run --new-run of one job leaves alone the other one's run that is approved or held, and may follow a discarded one", async () => {
    await using database = await postgres.server().createDatabase();
    const output = (table: string): object => ({
      parquet: undefined,
      postgres: { url: database.url, table, mode: "append", timeouts: { lock: 1 } },
    });
    const nights = await nightlyJob(scratch.path, { output: output("scores.others") });
    const runId = await heldNight(nights);
    const refuse = async (state: string): Promise<void> => {
      await nights.rewrite({ output: output("scores.predictions") });
      await expectEnd(
        nights.night("run", "2026-11-21", "--new-run"),
        66,
        `run ${runId} for scores.others ${state} and is not published`,
      );
      await nights.rewrite({ output: output("scores.others") });
    };
    await refuse("has committed spans");
    await database.query("ALTER TABLE scores.others ADD CONSTRAINT few CHECK (id >= 50) NOT VALID");
    await expectEnd(nights.night("approve", "2026-11-21", "--not-normal"), 65);
    await refuse("is approved");
    await database.query("ALTER TABLE scores.others DROP CONSTRAINT few");
    expect((await expectEnd(nights.night("approve", "2026-11-21", "--not-normal"), 0)).stdout).toContain(
      `${runId}: published`,
    );

    await nights.rewrite({ ...fewRows, output: output("scores.others") });
    await expectEnd(nights.night("run", "2026-11-22"), 67);
    await expectEnd(nights.night("discard", "2026-11-22"), 0);
    await nights.rewrite({ output: output("scores.predictions") });
    for (const command of ["run", "status"]) {
      const elsewhere = await nights.night(command, "2026-11-22");
      expect([elsewhere.code, elsewhere.stderr], command).toEqual([
        66,
        expect.stringMatching(
          /plan of this discarded run: [^]*for scores\.others; else score again, into scores\.predictions at .*: infer-batch run .* --param ds=2026-11-22 --new-run\n$/,
        ),
      ]);
    }
    await expectEnd(nights.night("run", "2026-11-22", "--new-run"), 0);
  });
});
