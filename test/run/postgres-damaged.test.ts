import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { leftTables } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { tableFaults, writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { runSpec, scoreHere, workerOf } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf } from "../support/torture.js";

const postgres = usePostgres();
const fixture = fixtureNamed("diabetes-mlp");
const table = "scores.predictions";

type Mode = "append" | "upsert" | "replace";

/** 442 rows in 12 spans of 40, the last one of 2. */
async function specFor(folder: string, database: Database, mode: Mode): Promise<string> {
  const output = { postgres: { mode, key: mode === "append" ? [] : ["id"] } };
  return await writePgSpec(folder, fixture, database, { commit_rows: 40, output });
}

async function half(spec: string): Promise<void> {
  await scoreHere(spec, workerOf(0, 2));
}

async function whole(spec: string): Promise<void> {
  await scoreHere(spec);
}

/** Renders a table that a run has for itself unusable. `what`: of its name. */
function ownTable(statement: string, what: string): (database: Database) => Promise<unknown> {
  return async (database) => {
    const [row] = await database.query(
      "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE tablename LIKE $1",
      [`%${what}%`],
    );
    await database.query(statement.replace("{table}", String(row?.["name"])));
  };
}

const sql =
  (text: string) =>
  (database: Database): Promise<unknown> =>
    database.query(text);

interface Case {
  readonly what: string;
  readonly mode: Mode;
  readonly before: (spec: string) => Promise<void>;
  readonly damage: (database: Database) => Promise<unknown>;
  readonly says: RegExp;
  /** `status` does not count the rows of a staging table. */
  readonly untold?: true;
}

const emptied = /checking run .*: scores.predictions holds 0 rows, and the run has put 240 there/;
const dropped = /checking table scores.predictions: run .* has rows in it, and it is gone/;

const cases: readonly Case[] = [
  { what: "its table is emptied", mode: "append", before: half, damage: sql(`TRUNCATE ${table}`), says: emptied },
  { what: "its table is dropped", mode: "replace", before: whole, damage: sql(`DROP TABLE ${table}`), says: dropped },
  {
    what: "the table of its keys is dropped",
    mode: "upsert",
    before: half,
    damage: ownTable("DROP TABLE {table}", "keys"),
    says: /the table of the run's keys is gone/,
  },
  {
    what: "its staging table is dropped",
    mode: "replace",
    before: half,
    damage: ownTable("DROP TABLE {table}", "staging"),
    says: /checking table .*staging_\w+: run .* has rows in it, and it is gone/,
  },
  {
    what: "a row of its staging table is deleted",
    mode: "replace",
    before: half,
    damage: ownTable("DELETE FROM {table} WHERE id = 1", "staging"),
    says: /finishing run .*staging_\w+ holds 441 rows, its spans gave 442/,
    untold: true,
  },
  {
    what: "its plan is changed",
    mode: "replace",
    before: half,
    damage: sql("UPDATE infer_batch.runs SET plan = replace(plan, 'UTC', 'GMT')"),
    says: /reading run diabetes-mlp-\w+ from infer_batch.runs: its plan is damaged, or of another version/,
  },
  {
    what: "a control row is changed",
    mode: "upsert",
    before: half,
    damage: sql("UPDATE infer_batch.spans SET row_end = row_end - 1, rows = rows - 1 WHERE span = 1"),
    says: /reading infer_batch.spans: span 1 of run .* is not of its plan/,
  },
  // The same in other modes.
  { what: "its table is emptied", mode: "upsert", before: half, damage: sql(`TRUNCATE ${table}`), says: emptied },
  { what: "its table is dropped", mode: "append", before: half, damage: sql(`DROP TABLE ${table}`), says: dropped },
  { what: "its table is dropped", mode: "upsert", before: whole, damage: sql(`DROP TABLE ${table}`), says: dropped },
];

postgres.describe("a run in Postgres that is damaged", () => {
  test.each(firstOf(cases, 7))(
    "a damaged run in Postgres is refused by run, reported by status, and replaced by a new run: $what ($mode)",
    async (one) => {
      await using database = await postgres.server().createDatabase();
      const spec = await specFor(scratch.path, database, one.mode);
      await one.before(spec);
      await one.damage(database);

      const status = await runHere(["status", spec]);
      const refused = await expectEnd(runSpec(spec), 66);
      expect(refused.stderr).toMatch(one.says);
      expect(refused.stderr).toMatch(/hint: .*--new-run/);
      if (one.untold === undefined) {
        expect([status.code, status.stderr]).toEqual([66, refused.stderr]);
        const planned =
          one.what === "its plan is changed" ? "its plan is gone or unreadable" : "12 spans planned (442 rows)";
        expect(status.stdout).toContain(`: damaged, ${planned} -> `);
      }

      const { code, stderr, summary } = await runSpec(spec, { args: ["--new-run"] });
      expect([code, summary], stderr).toMatchObject([0, { status: "complete", spans_resumed: 0, rows_scored: 442 }]);
      expect(await tableFaults(database, fixture)).toEqual([]);
      expect(await leftTables(database)).toEqual([]);
      expect((await scoreHere(spec)).status).toBe("already_complete");
    },
  );

  test("a run in Postgres that was damaged by TRUNCATE before more spans has a hint that gives each row once, with and without rows of other runs", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await specFor(scratch.path, database, "append");
    await half(spec);
    // An attempt that goes on, as it cannot see what became of the rows before: nothing looks until the finish.
    await database.query(`CREATE FUNCTION public.empty_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_advisory_xact_lock(1); -- commits overlap: each must count the ones before it
        IF (SELECT count(*) FROM infer_batch.spans) >= 8 THEN RAISE EXCEPTION 'stop' USING ERRCODE = '23514'; END IF; RETURN NEW; END $$;
      CREATE TRIGGER empty_once BEFORE INSERT ON infer_batch.spans FOR EACH ROW EXECUTE FUNCTION public.empty_once();
      BEGIN; CREATE TABLE public.kept AS SELECT * FROM ${table}; TRUNCATE ${table}; INSERT INTO ${table} SELECT * FROM public.kept; COMMIT`);
    await expectEnd(runSpec(spec), 65); // two more spans are committed, into the new files
    await database.query(
      `DROP TRIGGER empty_once ON infer_batch.spans; DELETE FROM ${table} WHERE id IN (SELECT id FROM public.kept)`,
    );

    await expectEnd(
      runSpec(spec),
      66,
      /holds 80 rows, and the run has put 320 there/,
      /it was emptied during the run\. 80 of its rows are of spans that were committed since\. To score all rows again: TRUNCATE "scores"\."predictions", then infer-batch run \S+ --new-run; where other rows must stay, delete those of this run instead, and add --allow-duplicates\. If rows were removed on purpose: UPDATE /,
    );
    await expectEnd(runSpec(spec, { args: ["--new-run"] }), 64, /keeps the rows of the runs before/);

    await database.query(`INSERT INTO ${table} (id, score) VALUES (-1, 0); DELETE FROM ${table} WHERE id <> -1`);
    await expectEnd(runSpec(spec, { args: ["--new-run"] }), 64);
    const { code, stderr, summary } = await runSpec(spec, { args: ["--new-run", "--allow-duplicates"] });
    expect([code, summary], stderr).toMatchObject([0, { status: "complete", rows_scored: 442 }]);
    await database.query(`DELETE FROM ${table} WHERE id = -1`);
    expect(await tableFaults(database, fixture)).toEqual([]);
  });
});
