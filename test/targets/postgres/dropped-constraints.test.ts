import { expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import type { Sink } from "#src/targets/target.js";
import { modes } from "../../support/pg-amid.js";
import { leftTables } from "../../support/pg-crash.js";
import type { Database } from "../../support/pg-database.js";
import { changeAt, commitProfiled, holdStaged, moments, publishStaged, stagedSink } from "../../support/pg-staged.js";
import { decisionOf, stagedPlan } from "../../support/staged-plans.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, commitSpans, type PgSinkOptions, planFor } from "../../support/sinks.js";
import { decisionDocument } from "#src/stores/ledger.js";
import { firstOf, torture } from "../../support/torture.js";

const postgres = usePostgres();
const [append, upsert, replace, byRows] = modes;
const staged = modes.map(([mode, spec]) => [`staged ${mode}`, spec, true] as const);
const plain = [replace, byRows].map(([mode, spec]) => [mode, { ...spec, key: [] }, false] as const);
const cases = [...staged, ...plain].filter((_, index) => torture || index % 4 === 0);

type Spec = PgSinkOptions["postgres"];

async function attempt(database: Database, spec: Spec, isStaged: boolean, scoreOf?: (id: number) => number) {
  await using sink: Sink = stagedSink(database, spec);
  if (isStaged) {
    await publishStaged(sink, stagedPlan(sink.planTarget), scoreOf);
    return;
  }
  const { stored, run } = await begun(sink, planFor(sink.planTarget));
  await (scoreOf === undefined ? commitSpans(run, stored) : commitProfiled(run, stored, scoreOf));
  await run.finish();
}

async function rows(database: Database): Promise<unknown> {
  const [row] = await database.query(
    "SELECT count(*)::int AS rows, count(DISTINCT id)::int AS ids FROM scores.predictions",
  );
  return row;
}

const table = "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 NOT NULL, score real)";
const keyed = `${table}; CREATE UNIQUE INDEX keys ON scores.predictions (id)`;
/** Two rows of different spans have the same score. */
const twice = (id: number): number => (id === 15 ? 8 : id);
const refused = { code: "OUTPUT_REFUSED", exitCode: 65 };

postgres.describe("a constraint that is dropped from the target of an unfinished run", () => {
  test.each(cases)(
    "an attempt continues after a check that refused a row is dropped from the target: %s",
    async (_, spec, isStaged) => {
      await using database = await postgres.server().createDatabase();
      await database.query(`${keyed}; ALTER TABLE scores.predictions ADD CONSTRAINT c CHECK (id <> 15),
      ADD CONSTRAINT kept CHECK (id < 1000)`);
      await expect(attempt(database, spec, isStaged)).rejects.toMatchObject(refused);
      await expect(attempt(database, spec, isStaged)).rejects.toMatchObject(refused);
      await database.query("ALTER TABLE scores.predictions DROP CONSTRAINT c");
      await attempt(database, spec, isStaged);
      expect(await rows(database)).toEqual({ rows: 25, ids: 25 });
      const checks = await database.query(
        "SELECT conname FROM pg_constraint WHERE conrelid = 'scores.predictions'::regclass AND contype = 'c'",
      );
      expect(checks).toEqual([{ conname: "kept" }]);
      expect(await leftTables(database)).toEqual([]);
    },
  );

  test.each(cases)("a check that was altered is enforced in its new form: %s", async (_, spec, isStaged) => {
    await using database = await postgres.server().createDatabase();
    await database.query(`${keyed}; ALTER TABLE scores.predictions ADD CONSTRAINT c CHECK (id <> 15)`);
    await expect(attempt(database, spec, isStaged)).rejects.toMatchObject(refused);
    const change = (sql: string): Promise<unknown> =>
      database.query(
        `ALTER TABLE scores.predictions DROP CONSTRAINT c; ALTER TABLE scores.predictions ADD CONSTRAINT c ${sql}`,
      );
    await change("CHECK (id <> 5)"); // of a row that is staged
    await expect(attempt(database, spec, isStaged)).rejects.toMatchObject({
      code: expect.stringMatching(/^OUTPUT_(REFUSED|MISMATCH)$/) as string,
      message: expect.stringMatching(/\bc\b/) as string,
    });
    expect(await rows(database)).toEqual({ rows: 0, ids: 0 });
  });

  test.each(cases)("a check that was added is enforced when the rows are published: %s", async (_, spec, isStaged) => {
    for (const moment of moments.slice(0, isStaged ? 2 : 1)) {
      await using database = await postgres.server().createDatabase();
      await database.query(keyed);
      await using sink = stagedSink(database, spec);
      const add = (): Promise<unknown> =>
        database.query("ALTER TABLE scores.predictions ADD CONSTRAINT late CHECK (id <> 15)");
      const publishing = async (): Promise<void> => {
        if (isStaged) {
          const held = await holdStaged(sink, stagedPlan(sink.planTarget));
          await changeAt(moment, held, add);
          await held.run.finish();
          return;
        }
        const { stored, run } = await begun(sink, planFor(sink.planTarget));
        await commitSpans(run, stored);
        await add();
        await run.finish();
      };
      await expect(publishing()).rejects.toMatchObject({ message: expect.stringContaining("late") as string });
      expect(await rows(database)).toEqual({ rows: 0, ids: 0 });
    }
  });

  const unique = cases
    .filter(([, spec]) => spec.mode === "replace")
    .map(([mode, spec, is]) => [mode, { ...spec, key: [] }, is] as const);
  const uniqueness = [
    [
      "a unique constraint",
      "ALTER TABLE scores.predictions ADD UNIQUE (score)",
      "DROP CONSTRAINT predictions_score_key",
    ],
    ["a primary key", "ALTER TABLE scores.predictions ADD PRIMARY KEY (score)", "DROP CONSTRAINT predictions_pkey"],
    ["an exclusion", "ALTER TABLE scores.predictions ADD CONSTRAINT x EXCLUDE (score WITH =)", "DROP CONSTRAINT x"],
    ["a unique index", "CREATE UNIQUE INDEX one ON scores.predictions (score, (id > 0))", "DROP INDEX scores.one"],
  ] as const;
  test.each(uniqueness.flatMap(([what, sql, drop]) => unique.map((one) => [what, one[0], one, sql, drop] as const)))(
    "%s is dropped from its staging table, too: %s",
    async (_what, _mode, [, spec, isStaged], sql, drop) => {
      await using database = await postgres.server().createDatabase();
      await database.query(`${table}; ${sql}`);
      await expect(attempt(database, spec, isStaged, twice)).rejects.toMatchObject({ exitCode: 65 });
      await database.query(drop.startsWith("DROP INDEX") ? drop : `ALTER TABLE scores.predictions ${drop}`);
      await attempt(database, spec, isStaged, twice);
      expect(await rows(database)).toEqual({ rows: 25, ids: 25 });
    },
  );

  test("a foreign key is dropped from a staging table that is to be renamed, too", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(`${table}; CREATE TABLE scores.ids (id int8 PRIMARY KEY);
      INSERT INTO scores.ids SELECT n FROM generate_series(0, 14) n;
      ALTER TABLE scores.predictions ADD CONSTRAINT known FOREIGN KEY (id) REFERENCES scores.ids`);
    const spec = { ...replace[1], key: [] };
    await expect(attempt(database, spec, false)).rejects.toMatchObject(refused);
    await database.query("ALTER TABLE scores.predictions DROP CONSTRAINT known");
    await attempt(database, spec, false);
    expect(await rows(database)).toEqual({ rows: 25, ids: 25 });
  });

  test.each(cases)(
    "NOT NULL is dropped from its staging table, too, except from the key: %s",
    async (_, spec, isStaged) => {
      await using database = await postgres.server().createDatabase();
      await database.query(`${keyed}; ALTER TABLE scores.predictions ALTER score SET NOT NULL,
      ADD CONSTRAINT c CHECK (id <> 15)`);
      await expect(attempt(database, spec, isStaged)).rejects.toMatchObject(refused);
      await database.query(
        "ALTER TABLE scores.predictions ALTER score DROP NOT NULL, ALTER id DROP NOT NULL, DROP CONSTRAINT c",
      );
      await using sink = stagedSink(database, spec);
      const plan: Plan = (isStaged ? stagedPlan : planFor)(sink.planTarget);
      await begun(sink, plan);
      const staging = (await leftTables(database)).find((name) => name.includes("staging"));
      const columns = await database.query(
        "SELECT attname, attnotnull FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid WHERE relname = $1 AND attnum > 0 ORDER BY 1",
        [staging],
      );
      const isKey = spec.mode === "upsert"; // the staging table has the key of its own
      expect(columns).toEqual([
        { attname: "id", attnotnull: isKey },
        { attname: "score", attnotnull: false },
      ]);
      await attempt(database, spec, isStaged);
      expect(await rows(database)).toEqual({ rows: 25, ids: 25 });
    },
  );

  test.each(firstOf(staged, 2))(
    "a held run is approved after a check and an index were dropped: %s",
    async (_, spec) => {
      await using database = await postgres.server().createDatabase();
      await database.query(`${keyed}; ALTER TABLE scores.predictions ADD CONSTRAINT c CHECK (id <> 150);
      CREATE UNIQUE INDEX one ON scores.predictions (score)`);
      await using sink = stagedSink(database, spec);
      const { run } = await holdStaged(sink, stagedPlan(sink.planTarget));
      await database.query("ALTER TABLE scores.predictions DROP CONSTRAINT c; DROP INDEX scores.one");
      await run.create(decisionDocument, decisionOf("approved"));
      await run.finish();
      expect(await rows(database)).toEqual({ rows: 25, ids: 25 });
    },
  );

  test("attempts that write beside one that drops a constraint commit each row once", async () => {
    for (const [, spec] of [append, upsert]) {
      await using database = await postgres.server().createDatabase();
      await database.query(`${keyed}; ALTER TABLE scores.predictions ADD CONSTRAINT c CHECK (id <> 150)`);
      await using first = stagedSink(database, spec);
      const early = await begun(first, stagedPlan(first.planTarget));
      await database.query("ALTER TABLE scores.predictions DROP CONSTRAINT c");
      await Promise.all([commitProfiled(early.run, early.stored), ...[1, 2].map(() => attempt(database, spec, true))]);
      expect(await rows(database)).toEqual({ rows: 25, ids: 25 });
    }
  });
});
