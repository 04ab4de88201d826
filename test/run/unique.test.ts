import { test } from "vitest";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { usePostgres } from "../support/postgres.js";

interface UniqueJob {
  /** Rows of the input, as a SELECT of id, k and x. */
  readonly select: string;
  readonly checks: object;
  readonly output?: object;
}

/** Scores rows in spans of three, so that keys repeat across spans. */
async function runUnique(folder: string, { select, checks, output }: UniqueJob): Promise<CliResult> {
  const { spec } = await smallJob(folder, {
    model: identity,
    select,
    commit_rows: 3,
    output: { columns: ["id", "k"], ...output },
    checks,
  });
  return await runHere(["run", spec]);
}

const rows = (ids: string): string =>
  `SELECT id, coalesce(id % 2, 0) AS k, 1::FLOAT AS x FROM (SELECT unnest([${ids}]) AS id)`;

test("a run with a key that repeats is held, and the message has keys to look for", async () => {
  await expectEnd(
    runUnique(scratch.path, { select: rows("1, 2, 3, 4, 5, 2, 3, 3"), checks: { unique: ["id"] } }),
    67,
    "id: 3 rows repeat a key, such as 2; 3",
  );
});

test("a NULL in a key holds the run, also where no key repeats", async () => {
  await expectEnd(
    runUnique(scratch.path, { select: rows("1, NULL, 3, 4, NULL"), checks: { unique: ["id", "k"] } }),
    67,
    "id, k: 2 rows have a NULL in their key",
  );
});

test("a key of several columns that is unique passes", async () => {
  const checks = { unique: ["k", "id"] };
  await expectEnd(runUnique(scratch.path, { select: rows("1, 2, 3, 4, 5"), checks }), 0);
});

test("a key that repeats only warns with on_fail: warn", async () => {
  const checks = { unique: ["k"], on_fail: "warn" };
  await expectEnd(
    runUnique(scratch.path, { select: rows("1, 2, 3, 4"), checks }),
    0,
    "checks: k: 2 rows repeat a key, such as 0; 1",
  );
});

test.each([
  [["ids"], "there is no output column `ids`; did you mean `id`?"],
  [["tags"], "`tags` is list<int32>, which cannot be part of a key"],
])("a key that cannot be checked is an error of the spec, before anything is scored: %s", async (unique, message) => {
  const select = "SELECT 1 AS id, [1] AS tags, 2 AS k, 1::FLOAT AS x";
  const output = { columns: ["id", "tags"] };
  await expectEnd(runUnique(scratch.path, { select, checks: { unique }, output }), 64, message);
});

const postgres = usePostgres();
postgres.describe("checks.unique of rows for Postgres", () => {
  test.each(["append", "replace"])("a run with a key that repeats is held: %s", async (mode) => {
    await using database = await postgres.server().createDatabase();
    const output = { parquet: undefined, postgres: { url: database.url, table: "scores", mode } };
    const checks = { unique: ["id", "k"] };
    await expectEnd(
      runUnique(scratch.path, { select: rows("1, 2, 3, 4, 5, 2, 3, NULL, NULL"), checks, output }),
      67,
      "id, k: 2 rows repeat a key, such as 2, 0; 3, 1; 2 rows have a NULL in their key",
    );
  });

  test("the rows of other runs in the table are not counted", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(
      "CREATE TABLE scores (id int, k int, score real); INSERT INTO scores VALUES (1, 1, 1), (1, 1, 1)",
    );
    const output = { parquet: undefined, postgres: { url: database.url, table: "scores", mode: "append" } };
    await expectEnd(runUnique(scratch.path, { select: rows("1, 2"), checks: { unique: ["id"] }, output }), 0);
  });

  test("checks.unique of rows for Postgres is refused in mode append with on_fail: warn, because its rows cannot be distinguished from those of other runs", async () => {
    const output = { parquet: undefined, postgres: { url: "postgres://x/y", table: "scores", mode: "append" } };
    await expectEnd(
      runUnique(scratch.path, {
        select: rows("1"),
        checks: { unique: ["id"], on_fail: "warn" },
        output,
      }),
      64,
      "checks.unique",
    );
  });
});
