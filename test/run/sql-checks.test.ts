import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { usePostgres } from "../support/postgres.js";

interface SqlJob {
  readonly sql: Readonly<Record<string, string>>;
  /** Rows of the input, as a SELECT of id, k and x. */
  readonly select?: string;
  readonly input?: object;
  readonly output?: object;
  readonly checks?: object;
}

/** Eight rows with the scores 0 to 7. */
const eight = "SELECT i AS id, 'k' || (i % 2) AS k, i::FLOAT AS x FROM range(8) t(i)";

async function smallSqlJob(
  folder: string,
  { sql, select = eight, input, output, checks }: SqlJob,
): ReturnType<typeof smallJob> {
  return await smallJob(folder, {
    model: identity,
    select,
    commit_rows: 3,
    ...(input === undefined ? {} : { input }),
    output: { columns: ["id", "k"], ...output },
    checks: { sql, ...checks },
  });
}

async function runSql(folder: string, job: SqlJob): Promise<CliResult> {
  return await runHere(["run", (await smallSqlJob(folder, job)).spec]);
}

test("conditions of checks.sql that are true of the whole output pass", async () => {
  const sql = {
    all: "count(*) = 8 and count(k) = 8 and sum(score) = 28 and avg(score) = 3.5 and min(score) = 0 and max(score) = 7",
    share: "avg(case when score > 5 then 1 else 0 end) between 0.2 and 0.3",
    truths: "sum(k = 'k1') = 4 -- booleans count as 1 and 0",
    some: "count(nullif(id, 3)) = 7 and max(score) - min(score) > 6.5",
    mixed: "abs(sum(score) - sum(id)) < 1e-9 or false",
  };
  await expectEnd(runSql(scratch.path, { sql }), 0);
});

test("numbers in a condition of checks.sql keep all their digits", async () => {
  const sql = {
    whole: "sum(id + 9007199254740986 = 9007199254740993) = 1 and sum(id) < 1e20",
    decimal: "sum(id + 0.1234567890123456789 = 1.1234567890123456789) = 1",
  };
  await expectEnd(runSql(scratch.path, { sql }), 0);
});

test("conditions of checks.sql do not count rows that input.where leaves out, whole spans of them included", async () => {
  const sql = { one: "count(*) = 1 and sum(score) = 7", two: "min(id) = 7" };
  await expectEnd(runSql(scratch.path, { sql, input: { where: "id = 7" } }), 0);
  await expectEnd(
    runSql(join(scratch.path, "none"), {
      sql: { one: "count(*) = 0 and max(score) is null" },
      input: { where: "id > 7" },
    }),
    0,
  );
});

test("a condition of checks.sql that is false holds the run, and the message has its aggregates", async () => {
  const sql = { high: "avg(case when score > 5 then 1 else 0 end) < 0.2", fine: "count(*) > 0" };
  await expectEnd(
    runSql(scratch.path, { sql }),
    67,
    /1 of \d+ checks failed\n {2}high: avg\(case when score > 5 then 1 else 0 end\) < 0\.2 is false: avg\(…\) is 0\.25\n/,
  );
});

test.each([
  [
    "avg(case when score > 99 then score end) < 1",
    "one: avg(case when score > 99 then score end) < 1 is NULL: avg(…) is NULL\n",
  ],
  [
    "max(log(score - 3)) > 0",
    "max(log(score - 3)) > 0 is NULL: max(log((score - 3))) is undefined (Out of Range Error: cannot take logarithm of",
  ],
  ["cast(concat('x', count(*)) as int) > 0", "> 0 is Conversion Error: Could not convert string 'x8"],
  ["max(case when id = 3 then 'nan'::double else score end) > 1", "> 1 is NULL: max(…) is NaN\n"],
])("a condition of checks.sql that is not true holds the run: %s", async (condition, message) => {
  await expectEnd(runSql(scratch.path, { sql: { one: condition } }), 67, message);
});

test("a condition of checks.sql that cannot be checked is an error of the spec, with its place, before anything is scored", async () => {
  await expectEnd(
    runSql(scratch.path, { sql: { one: "count(*) > 0", two: "avg(scores) > 1" } }),
    64,
    /job\.yaml:\d+:\d+: checks\.sql: binding checks\.sql\.two: there is no output column `scores`; did you mean `score`\?/,
  );
});

test("conditions of checks.sql are decided over the rows of all workers", async () => {
  const { spec } = await smallSqlJob(scratch.path, { sql: { one: "sum(score) = 28 and count(*) = 9" } });
  await expectEnd(runHere(["run", spec, "--worker", "1/2"]), 0);
  await expectEnd(
    runHere(["run", spec, "--worker", "0/2"]),
    67,
    "one: sum(score) = 28 and count(*) = 9 is false: sum(score) is 28, count(*) is 8\n",
  );
});

test("a held run keeps its verdict when a condition of checks.sql changes, and a new run takes the new condition", async () => {
  const job = { sql: { one: "count(*) < 8" } };
  const { spec, rewrite } = await smallSqlJob(scratch.path, job);
  await expectEnd(runHere(["run", spec]), 67);
  const base = { commit_rows: 3, output: { columns: ["id", "k"] } };
  await rewrite({ ...base, checks: { sql: { one: "count(*) = 8" } } });
  await expectEnd(runHere(["run", spec]), 67); // the verdict is final
  await expectEnd(runHere(["run", spec, "--new-run"]), 0);
});

const postgres = usePostgres();
postgres.describe("checks.sql of rows for Postgres", () => {
  test.each(["append", "upsert", "replace"])("conditions of checks.sql hold a run of mode %s", async (mode) => {
    await using database = await postgres.server().createDatabase();
    const key = mode === "append" ? [] : ["id"];
    const output = { parquet: undefined, postgres: { url: database.url, table: "scores", mode, key } };
    const held = await expectEnd(
      runSql(scratch.path, { sql: { one: "sum(score) = 27", two: "sum(score) = 28" }, output }),
      67,
      "one: sum(score) = 27 is false: sum(score) is 28",
    );
    expect(held.stderr).not.toContain("two:");
  });
});
