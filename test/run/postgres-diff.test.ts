import { expect, test } from "vitest";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import type { Database } from "../support/pg-database.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();

type PgOutput = NonNullable<NonNullable<Parameters<typeof writePgSpec>[3]>["output"]>;

interface Job {
  /** Runs the job for a date, over other rows on each of the two. */
  readonly night: (date: "2026-11-20" | "2026-11-21") => Promise<CliResult>;
  readonly diff: (...args: string[]) => Promise<CliResult>;
}

/** Two nights: 442 rows without id 7; then without ids 3 and 4, and with 5 other scores. */
async function jobIn(folder: string, database: Database, output: PgOutput, overrides: object = {}): Promise<Job> {
  const inputs = {
    "2026-11-20": { where: "id <> 7" },
    "2026-11-21": { where: "id <> 3 and id <> 4", columns: { s1: "s1 + if(id % 100 = 0, 1, 0)" } },
  };
  const rewrite = (input: object): Promise<string> =>
    writePgSpec(folder, fixtureNamed("diabetes-mlp"), database, {
      params: { ds: "${today}" },
      commit_rows: 100,
      ...overrides,
      input,
      output,
    });
  const spec = await rewrite({});
  return {
    async night(date) {
      await rewrite(inputs[date]);
      return await runHere(["run", spec, "--param", `ds=${date}`]);
    },
    diff: (...args) => runHere(["diff", spec, ...args, "--json"]),
  };
}

function reported(found: CliResult): Record<string, unknown> {
  expect(found.code, found.stderr).toBe(0);
  return lastJson(found);
}

const nights = ["--param", "ds=2026-11-21", "--against", "ds=2026-11-20"];

/** SQL for what every so many rows move by. */
function moved(every: number, what: string): string {
  return `CASE WHEN i % ${every} = 0 THEN ${what} ELSE 0 END`;
}

const difference = {
  rows_a: 441,
  rows_b: 440,
  rows_gone: 2,
  rows_added: 1,
  rows_compared: 439,
  rows_changed: 5,
  outputs: { score: { rows_beyond_tolerance: 5 } },
};

postgres.describe("diff in Postgres", () => {
  test("diff compares two runs of a table that is replaced, as long as the earlier table is kept", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, { postgres: { mode: "replace", keep_previous: 1 } });
    await expectEnd(job.night("2026-11-20"), 0);
    await expectEnd(job.night("2026-11-21"), 0);
    const found = await job.diff(...nights, "--key", "id");
    expect(reported(found)).toMatchObject(difference);
    await database.query(
      (
        await database.query(
          "SELECT format('DROP TABLE scores.%I', relname) AS drop FROM pg_class WHERE relname LIKE 'predictions\\_\\_%' AND relkind = 'r'",
        )
      )
        .map((row) => String(row["drop"]))
        .join("; "),
    );
    await expectEnd(job.diff(...nights), 64, "no table has its rows now");
  });

  test("diff tells runs in one table apart by output.lineage, and refuses runs that cannot be told apart", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, { lineage: true, postgres: { mode: "append" } });
    await expectEnd(job.night("2026-11-20"), 0);
    await expectEnd(job.night("2026-11-21"), 0);
    const found = await job.diff(...nights);
    expect(reported(found)).toMatchObject({ ...difference, key: ["id"], not_compared: {} });

    await using other = await postgres.server().createDatabase();
    const mixed = await jobIn(scratch.path, other, { postgres: { mode: "append" } });
    await mixed.night("2026-11-20");
    await mixed.night("2026-11-21");
    await expectEnd(mixed.diff(...nights), 64, "cannot be told from those of other runs");
  });

  test("diff says how many rows of a run later runs have overwritten, and refuses a run without a row left", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, { lineage: true, postgres: { mode: "upsert", key: ["id"] } });
    await expectEnd(job.night("2026-11-20"), 0);
    await expectEnd(job.night("2026-11-21"), 0);
    const found = await job.diff(...nights);
    expect(reported(found)).toMatchObject({ rows_a: 2, rows_b: 440 });
    expect(found.stderr.match(/comparing run .*/g)).toEqual([
      expect.stringMatching(/: 439 of 441 rows are no longer in scores\.predictions/),
    ]);
    await database.query("DELETE FROM scores.predictions WHERE id IN (3, 4)");
    await expectEnd(job.diff(...nights), 64, "441 of 441 rows are no longer in scores.predictions");
  });

  test("diff compares by the key of the table, before other columns that the spec names", async () => {
    await using database = await postgres.server().createDatabase();
    const output = { lineage: true, postgres: { mode: "upsert", key: ["id"] } };
    const job = await jobIn(scratch.path, database, output, { checks: { unique: ["id", "score"] } });
    await expectEnd(job.night("2026-11-20"), 0);
    await expectEnd(job.night("2026-11-21"), 0);
    expect(reported(await job.diff(...nights))).toMatchObject({ key: ["id"], rows_a: 2, rows_b: 440 });
  });

  test("diff compares a held run with the table that readers see", async () => {
    await using database = await postgres.server().createDatabase();
    const output = { postgres: { mode: "upsert", key: ["id"] } };
    const job = await jobIn(scratch.path, database, output, { checks: { outputs: { score: { range: [0, 1] } } } });
    await expectEnd(job.night("2026-11-21"), 67);
    await database.query(
      "CREATE TABLE scores.seen AS SELECT id, 0::real AS score FROM generate_series(0, 9) AS t (id)",
    );
    const found = await job.diff("--param", "ds=2026-11-21", "--against", "scores.seen");
    expect(reported(found)).toMatchObject({
      a: "scores.seen",
      b: expect.stringMatching(/^diabetes-mlp-/),
      rows_a: 10,
      rows_b: 440,
      rows_gone: 2,
      rows_changed: 8,
    });
  });

  test("diff compares two tables of any types, and treats NULL as a key", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, {});
    const types =
      "k text, n numeric, d numeric(20,2), t timestamptz, day date, v real[], j jsonb, b boolean, s varchar(9)";
    const same = `E'a,"b\\r\\nc'::text, 1.5, 2.25, timestamptz '2026-01-01 00:00:00+02', date '2026-01-01', '{1,2}'::real[], '{"a": 1}'::jsonb, true, E'x\\n\\\\N'`;
    await database.query(`CREATE SCHEMA scores; CREATE TABLE scores.one (${types}); CREATE TABLE scores.other (${types});
      INSERT INTO scores.one VALUES (${same}), (NULL, 1, 1, NULL, NULL, '{0,1}', NULL, false, NULL), ('gone', 'NaN', 1, NULL, NULL, NULL, NULL, NULL, NULL);
      INSERT INTO scores.other VALUES (${same}), (NULL, 2, 1, NULL, NULL, '{1,0}', NULL, true, '')`);
    const found = await job.diff("--table", "scores.other", "--against", "scores.one", "--key", "k");
    expect(reported(found)).toMatchObject({
      rows_gone: 1,
      rows_added: 0,
      rows_compared: 2,
      rows_changed: 1,
      outputs: {
        n: { rows_beyond_tolerance: 1, largest_difference: 1 },
        d: { rows_beyond_tolerance: 0 },
        b: { rows_equal: 1 },
        v: { kind: "vectors" },
      },
    });
    await expectEnd(
      job.diff("--table", "scores.none", "--against", "scores.one", "--key", "k"),
      64,
      "comparing scores.none: there is no such table",
    );
  });

  test("diff matches numeric keys of any length exactly, with NaN among them, and against other scales and integers", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, {});
    const ids = "SELECT 123456789012345670 + i AS id, i::real AS score FROM generate_series(0, 9) AS t (i)";
    const casts = { plain: "numeric", long: "numeric(20,0)", scaled: "numeric(24,4)", whole: "bigint" };
    await database.query(
      `CREATE SCHEMA scores; ${Object.entries(casts)
        .map(([name, type]) => `CREATE TABLE scores.${name} AS SELECT id::${type} AS id, score FROM (${ids}) AS t`)
        .join("; ")}; INSERT INTO scores.long VALUES ('NaN', 1); INSERT INTO scores.plain VALUES ('NaN', 1)`,
    );
    const diff = async (one: string, other: string) =>
      reported(await job.diff("--table", `scores.${one}`, "--against", `scores.${other}`, "--key", "id"));
    const exact = { rows_compared: 10, rows_changed: 0, keys_repeated: 0 };
    expect(await diff("plain", "long")).toMatchObject({ ...exact, rows_compared: 11 });
    expect(await diff("plain", "scaled")).toMatchObject({ ...exact, rows_gone: 0, rows_added: 1 });
    expect(await diff("whole", "long")).toMatchObject({ ...exact, rows_gone: 1, rows_added: 0 });
  });

  test("diff refuses numeric keys against text keys, and takes those with a fraction and without one as equal", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, {});
    await database.query(`CREATE SCHEMA scores;
      CREATE TABLE scores.plain AS SELECT id, 1.5::real AS score FROM (VALUES (0.5), (100), (1000.00), (-2.50), (0)) AS t (id);
      CREATE TABLE scores.scaled AS SELECT id::numeric(12,6) AS id, score FROM scores.plain;
      CREATE TABLE scores.texts AS SELECT id::text AS id, score FROM scores.plain`);
    const diff = (...tables: readonly [string, string]) =>
      job.diff("--table", `scores.${tables[0]}`, "--against", `scores.${tables[1]}`, "--key", "id");
    expect(reported(await diff("plain", "scaled"))).toMatchObject({ rows_compared: 5, rows_gone: 0, rows_added: 0 });
    for (const [b, a, kinds] of [
      ["plain", "texts", "VARCHAR in A and a number in B"],
      ["texts", "scaled", "a number in A and VARCHAR in B"],
    ] as const) {
      await expectEnd(diff(b, a), 64, `key column id is ${kinds}`);
    }
  });

  test("diff counts and measures changed decimals, dates and timestamps of tables as Postgres itself does", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, {});
    const days = (every: number): string => `(${moved(every, "i % 90")}) * interval '1 day'`;
    await database.query(`CREATE SCHEMA scores;
      CREATE TABLE scores.one AS SELECT i AS k, (i * 12345678901.37)::numeric(20,2) AS price, (i * 7)::numeric(9,1) AS short,
        date '1900-01-01' + i AS day, timestamp '2026-01-01' + i * interval '1 second' AS at, 0.5::numeric(5,2) AS odd
        FROM generate_series(1, 2000) AS t (i);
      CREATE TABLE scores.other AS SELECT k, (price + ${moved(3, "(i % 5) * 0.01")})::numeric(20,2) AS price,
        (short + ${moved(7, "0.001")})::numeric(12,4) AS short, (day + ${days(11)})::date AS day,
        at + ${days(13)} + (${moved(17, "1")}) * interval '1 microsecond' AS at,
        (CASE WHEN i = 9 THEN 'NaN' WHEN i = 10 THEN NULL ELSE odd END)::numeric(5,2) AS odd
        FROM (SELECT *, k AS i FROM scores.one) AS t`);
    const joined = "FROM scores.one AS a JOIN scores.other AS b USING (k)";
    const [expected = {}] = await database.query(`SELECT
      count(*) FILTER (WHERE (a.price, a.short, a.day, a.at, a.odd) IS DISTINCT FROM (b.price, b.short, b.day, b.at, b.odd))::int AS changed,
      count(*) FILTER (WHERE abs(a.price - b.price) > 0.01)::int AS price, max(abs(a.price - b.price))::float8 AS largest,
      count(*) FILTER (WHERE a.short <> b.short)::int AS short, max(abs(a.short - b.short))::float8 AS least,
      count(*) FILTER (WHERE a.day = b.day)::int AS days, max(abs(a.day - b.day)) * 86400 AS shift,
      count(*) FILTER (WHERE a.at = b.at)::int AS moments, max(abs(extract(epoch FROM b.at - a.at)))::float8 AS at ${joined}`);
    const diff = async (...args: string[]) =>
      reported(await job.diff("--table", "scores.other", "--against", "scores.one", "--key", "k", ...args));
    expect(await diff()).toMatchObject({
      rows_changed: expected["changed"],
      not_compared: {},
      outputs: {
        short: { kind: "numbers", rows_beyond_tolerance: expected["short"], largest_difference: expected["least"] },
        day: { kind: "times", rows_equal: expected["days"], largest_shift_seconds: expected["shift"] },
        at: { kind: "times", rows_equal: expected["moments"], largest_shift_seconds: expected["at"] },
        // NaN is no decimal: the column is compared as floats.
        odd: { kind: "numbers", rows_beyond_tolerance: 2, largest_difference: 0 },
      },
    });
    expect(await diff("--tolerance", "0.01")).toMatchObject({
      outputs: { price: { rows_beyond_tolerance: expected["price"], largest_difference: expected["largest"] } },
    });
  });
});
