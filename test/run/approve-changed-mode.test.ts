import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, projectFolder } from "../support/cli.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { fewRows, heldNight, lastJson, nightlyJob } from "../support/nights.js";
import { writeRows } from "../support/parquet.js";
import { leftTables } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { statesIn } from "../support/pg-staged.js";
import { usePostgres } from "../support/postgres.js";
import { firstOf } from "../support/torture.js";

const postgres = usePostgres();

type Output = Pick<Required<SpecOverrides>, "output">;

const into = ({ url }: Database, settings: object): Output => ({
  output: { parquet: undefined, postgres: { url, table: "scores.predictions", timeouts: { lock: 1 }, ...settings } },
});

const append = { mode: "append" };
const upsert = { mode: "upsert", key: ["id"] };
const replace = { mode: "replace" };

/** Settings of a held run and later ones of its spec, what lets the table take the later ones, and what takes that back. */
const changes = [
  {
    name: "upsert to append",
    from: upsert,
    to: append,
    sql: "ALTER TABLE scores.predictions DROP CONSTRAINT predictions_pkey",
    back: "ALTER TABLE scores.predictions ADD CONSTRAINT predictions_pkey PRIMARY KEY (id)",
  },
  {
    name: "append to upsert",
    from: append,
    to: upsert,
    sql: "CREATE UNIQUE INDEX one ON scores.predictions (id)",
    back: "DROP INDEX scores.one",
  },
  { name: "append to replace", from: append, to: replace, sql: "SELECT", back: "SELECT" },
  { name: "replace to append", from: replace, to: append, sql: "SELECT", back: "SELECT" },
  {
    name: "replace to upsert",
    from: replace,
    to: upsert,
    sql: "CREATE UNIQUE INDEX one ON scores.predictions (id)",
    back: "DROP INDEX scores.one",
  },
  { name: "on_duplicate", from: upsert, to: { ...upsert, on_duplicate: "last" }, sql: "SELECT", back: "SELECT" },
  {
    name: "another key",
    from: upsert,
    to: { ...upsert, key: ["id", "score"] },
    sql: "CREATE UNIQUE INDEX one ON scores.predictions (id, score)",
    back: "DROP INDEX scores.one",
  },
];

const rowsOf = async (database: Database): Promise<unknown> => {
  const text = "SELECT count(*)::int AS rows, count(DISTINCT id)::int AS ids FROM scores.predictions";
  return (await database.query(text))[0];
};

postgres.describe("a held run into Postgres whose spec was given other settings for the table", () => {
  test.each(firstOf(changes, 2))(
    "approve ends with 66 until the spec again has the settings of the plan: $name",
    async (one) => {
      await using database = await postgres.server().createDatabase();
      const nights = await nightlyJob(scratch.path, into(database, one.from));
      const runId = await heldNight(nights);
      await database.query(one.sql);
      await nights.rewrite({ ...fewRows, ...into(database, one.to) });
      await expectEnd(
        nights.night("approve", "2026-11-21"),
        66,
        new RegExp(
          `^error: approving run ${runId}: output\\.postgres\\.(mode|key|on_duplicate) is .*, planned [^]*hint: restore what was planned, and run the same command again; or score again, as another run: infer-batch run \\S+ --param ds=\\S+ --new-run`,
        ),
      );
      expect(lastJson(await nights.night("status", "2026-11-21", "--json"))).toMatchObject({ status: "held" });
      expect(await rowsOf(database)).toEqual({ rows: 442, ids: 442 });
      expect(await database.query("SELECT kind FROM infer_batch.decisions WHERE run_id = $1", [runId])).toEqual([]);

      await database.query(one.back);
      await nights.rewrite({ ...fewRows, ...into(database, one.from) });
      expect((await expectEnd(nights.night("approve", "2026-11-21"), 0)).stdout).toContain(
        `${runId}: published, 50 rows`,
      );
    },
  );

  // Of each mode, and one that changes no mode.
  test.each(firstOf(changes.filter(({ name }) => /^(append|replace) to upsert|another key/.test(name))))(
    "a held run whose spec has changed can be discarded, which removes its rows: $name",
    async (one) => {
      await using database = await postgres.server().createDatabase();
      const nights = await nightlyJob(scratch.path, into(database, one.from));
      await heldNight(nights);
      await nights.rewrite({ ...fewRows, ...into(database, one.to) });
      await expectEnd(nights.night("discard", "2026-11-21"), 0);
      expect([await statesIn(database), await leftTables(database)]).toEqual([
        expect.arrayContaining(["published", "discarded"]),
        [],
      ]);
    },
  );

  test("approve ignores a changed on_duplicate in mode append, where it has no effect", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await nightlyJob(scratch.path, into(database, append));
    await heldNight(nights);
    await nights.rewrite({ ...fewRows, ...into(database, { ...append, on_duplicate: "last" }) });
    await expectEnd(nights.night("approve", "2026-11-21"), 0);
  });

  test("an approved run that its table refuses is not published in another mode; a new run in that mode takes its place", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await nightlyJob(scratch.path, into(database, append));
    await expectEnd(nights.night("run", "2026-11-20"), 0);
    await database.query("ALTER TABLE scores.predictions ADD PRIMARY KEY (id)");
    await expectEnd(nights.night("run", "2026-11-21"), 65);
    const { run_id: runId } = lastJson(await nights.night("status", "2026-11-21", "--json"));
    await nights.rewrite(into(database, upsert));
    for (const command of ["run", "approve"]) {
      await expectEnd(
        nights.night(command, "2026-11-21"),
        66,
        /preparing run .*mode is "upsert", planned "append".*[^]*infer-batch run .* --new-run/,
      );
    }
    await expectEnd(
      nights.night("run", "2026-11-21", "--new-run"),
      0,
      `planning a new run in place of ${String(runId)}: `,
    );
    expect(await rowsOf(database)).toEqual({ rows: 442, ids: 442 });
    expect([await statesIn(database), await leftTables(database)]).toEqual([
      expect.arrayContaining(["abandoned", "published"]),
      [],
    ]);
  });

  test("a held run without rows does not empty the table in mode replace", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await nightlyJob(scratch.path, into(database, append));
    await expectEnd(nights.night("run", "2026-11-20"), 0);
    const data = join(projectFolder, "fixtures/data/diabetes/*.parquet");
    await mkdir(join(scratch.path, "empty"));
    await writeRows(join(scratch.path, "empty/a.parquet"), `SELECT * FROM read_parquet('${data}') LIMIT 0`);
    const input = { path: "empty/*.parquet", min_rows: 0 };
    await nights.rewrite({ input });
    await expectEnd(nights.night("run", "2026-11-21"), 67);
    await nights.rewrite({ input, ...into(database, replace) });
    await expectEnd(nights.night("approve", "2026-11-21"), 66);
    expect(await rowsOf(database)).toEqual({ rows: 442, ids: 442 });
  });
});
