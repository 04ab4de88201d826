import { expect, test } from "vitest";
import type { StoredPlan } from "#src/targets/target.js";
import type { PostgresSink } from "#src/targets/postgres/sink.js";
import { connectionOf } from "#src/targets/postgres/connect.js";
import { openConnections, transact } from "#src/targets/postgres/connections.js";
import type { Database } from "../../support/pg-database.js";
import { plainTable } from "../../support/pg-amid.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, carryOut, commitSpans, pgSink, type PgSinkOptions, planFor } from "../../support/sinks.js";
import { alone, type BegunRun } from "../../support/sink-drive.js";

const postgres = usePostgres();

const runId = "job-000000000040";
const plan = (sink: PostgresSink) => planFor(sink.planTarget, { rows: 40, runId });
const sinkOf = (database: Database, spec: PgSinkOptions["postgres"]): PostgresSink =>
  pgSink({ url: database.url, postgres: spec ?? {} });

const replace = { mode: "replace", key: ["id"] } as const;
const byRows = { ...replace, swap: "delete_insert" } as const;
const upsert = { mode: "upsert", key: ["id"] } as const;

const mismatch = (text: RegExp): object => ({
  code: "OUTPUT_MISMATCH",
  message: expect.stringMatching(text) as string,
});
const damaged = (text: RegExp): object => ({ code: "OUTPUT_DAMAGED", message: expect.stringMatching(text) as string });
const usage = (text: RegExp): object => ({ code: "USAGE", message: expect.stringMatching(text) as string });

postgres.describe("plans that are refused and not stored", () => {
  const view = "CREATE VIEW scores.top AS SELECT * FROM scores.predictions";
  const partitioned =
    "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real) PARTITION BY HASH (id)";

  test.each<[string, PgSinkOptions["postgres"], string, RegExp]>([
    ["that may not make the missing table", { ...replace, create: false }, "CREATE SCHEMA scores", /no such table/],
    ["that would rename a partitioned table", replace, partitioned, /it is partitioned/],
    [
      "that would rename a table with a view",
      replace,
      `${plainTable}; ${view}`,
      /it cannot be swapped|view scores\.top/,
    ],
    [
      "whose key is no output column",
      { ...upsert, key: ["idd"] },
      plainTable,
      /`idd` is not an output column; .*; did you mean `id`\?/,
    ],
    ["whose key nothing keeps unique", upsert, plainTable.replace("PRIMARY KEY", ""), /no primary key or unique index/],
    ["whose key nothing keeps unique", byRows, plainTable.replace("PRIMARY KEY", ""), /no primary key or unique index/],
  ])("a plan is refused and not stored: one %s", async (_, spec, sql, says) => {
    await using database = await postgres.server().createDatabase();
    await database.query(sql);
    await using sink = sinkOf(database, spec);
    await expect(sink.create(plan(sink))).rejects.toMatchObject(mismatch(says));
    expect(await database.query("SELECT FROM infer_batch.runs")).toEqual([]);
  });
});

async function allCommitted(sink: PostgresSink): Promise<{ stored: StoredPlan; run: BegunRun }> {
  const standing = await begun(sink, plan(sink));
  await commitSpans(standing.run, standing.stored);
  return standing;
}

const keyGone: [string, PgSinkOptions["postgres"], string, object] = [
  "where nothing keeps the key unique now",
  byRows,
  "ALTER TABLE scores.predictions DROP CONSTRAINT predictions_pkey",
  mismatch(/no primary key or unique index/),
];

postgres.describe("finishes that are refused", () => {
  test.each<[string, PgSinkOptions["postgres"], string, object]>([
    [
      "where a span's control row is gone",
      { mode: "append" },
      "DELETE FROM infer_batch.spans WHERE span = 1",
      damaged(/span 1 of \d+ is no longer committed/),
    ],
    [
      "where a view would be left with the old rows",
      replace,
      "CREATE VIEW scores.top AS SELECT * FROM scores.predictions",
      mismatch(/view scores\.top/),
    ],
    keyGone,
  ])("the finish is refused %s", async (_, spec, sql, error) => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    await using sink = sinkOf(database, spec);
    const { run } = await allCommitted(sink);
    await database.query(sql);
    await expect(run.finish()).rejects.toMatchObject(error);
    expect(await database.query("SELECT FROM infer_batch.finishes")).toEqual([]);
  });
});

postgres.describe("a table with row-level security", () => {
  const guarded = `${plainTable}; ALTER TABLE scores.predictions ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own ON scores.predictions USING (id < 10); CREATE ROLE lowly LOGIN;
    GRANT USAGE, CREATE ON SCHEMA scores TO lowly; GRANT ALL ON scores.predictions TO lowly`;

  test.each([
    [{ mode: "append" } as const, "PERMISSION", /row-level security applies to this role/, /BYPASSRLS/],
    [upsert, "PERMISSION", /violates row-level security policy/, /./],
  ])("it is blamed, and no change of the table: %j", async (spec, code, says, hints) => {
    await using database = await postgres.server().createDatabase();
    await database.query(
      `${guarded}; DO $$ BEGIN EXECUTE 'GRANT CREATE ON DATABASE ' || current_database() || ' TO lowly'; END $$`,
    );
    try {
      await using sink = pgSink({ url: postgres.server().url(database.name, "lowly"), postgres: spec });
      await expect(carryOut(sink, plan(sink))).rejects.toMatchObject({
        code,
        message: expect.stringMatching(says) as string,
        hint: expect.stringMatching(hints) as string,
      });
    } finally {
      await database.query("DROP OWNED BY lowly CASCADE; DROP ROLE lowly");
    }
  });
});

postgres.describe("an attempt that is refused while it works", () => {
  test.each([
    ["gone", "DELETE FROM infer_batch.attempts; DELETE FROM infer_batch.runs"],
    ["another one", "UPDATE infer_batch.runs SET plan_id = 'x'"],
  ])("a span is refused when the plan is %s", async (what, sql) => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database, { mode: "append" });
    const { stored, run } = await begun(sink, plan(sink));
    await database.query(sql);
    await expect(commitSpans(run, stored)).rejects.toMatchObject(damaged(new RegExp(`the plan of run .* is ${what}$`)));
    expect(await database.query("SELECT FROM scores.predictions")).toEqual([]);
  });

  test("an attempt does not begin when the control tables are of another layout", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database, { mode: "append" });
    const { runId: base } = (await sink.create(plan(sink))).plan;
    await database.query("UPDATE infer_batch.version SET version = version + 1");
    const later = {
      code: "OUTPUT_DAMAGED",
      message: expect.stringMatching(/its tables have layout 2, and this program knows 1$/) as string,
    };
    await expect(sink.find(base)).rejects.toMatchObject(later);
    await expect(sink.create(plan(sink))).rejects.toMatchObject(later);
  });

  test("an attempt is refused by the later run's name when that has removed its table", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database, replace);
    const { stored, run } = await begun(sink, plan(sink));
    await commitSpans(run, stored, (span) => span === 0);
    await carryOut(sink, planFor(sink.planTarget, { rows: 40, runId: `${runId}-r2` }));
    const superseded = {
      code: "PLAN_CHANGED",
      message: expect.stringMatching(/run job-000000000040-r2 came after/) as string,
    };
    await expect(sink.open(stored)).rejects.toMatchObject(superseded);
    await expect(commitSpans(run, stored)).rejects.toMatchObject(superseded);
  });

  test("an attempt finds that the server rolled its transaction back, which COMMIT does not report as an error", async () => {
    await using database = await postgres.server().createDatabase();
    const timeouts = { connect: 5, statement: 30, lock: 1 };
    await using connections = openConnections(connectionOf({ url: database.url }, {}), timeouts);
    const work = transact({ connections, timeouts, warn: () => {} }, async (session) => {
      await session.query("CREATE TABLE public.t ()");
      await session.query("SELECT 1 / 0").catch(() => undefined);
    });
    await expect(work).rejects.toThrow("the server answered COMMIT with ROLLBACK");
  });

  test("an attempt does not begin when the plan's text was changed", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database, { mode: "append" });
    const { runId: base } = (await sink.create(plan(sink))).plan;
    await database.query("UPDATE infer_batch.runs SET plan = replace(plan, 'UTC', 'GMT')");
    await expect(sink.find(base)).rejects.toMatchObject(damaged(/its plan is damaged/));
  });

  test("an attempt does not begin when the staging table with its spans is gone", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database, replace);
    const { stored, run } = await begun(sink, plan(sink));
    await commitSpans(run, stored, (span) => span === 0);
    const taken = await sink.open(stored);
    const [staging] = await database.query("SELECT tablename FROM pg_tables WHERE tablename LIKE '%staging%'");
    await database.query(`DROP TABLE scores."${String(staging?.["tablename"])}"`);
    await expect(taken.begin(alone)).rejects.toMatchObject(damaged(/the staging table is gone/));
  });
});

postgres.describe("rollbacks that are refused", () => {
  test("a rollback is refused in another mode than replace", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database, { mode: "append" });
    await expect(sink.table.rollBack()).rejects.toMatchObject(usage(/output\.postgres\.mode is append/));
  });

  test("a rollback is refused where no run has ever been", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    await using sink = sinkOf(database, replace);
    await expect(sink.table.rollBack()).rejects.toMatchObject(usage(/no run has replaced it/));
  });

  test.each<[string, PgSinkOptions["postgres"], string, object]>([
    ["where the table is gone", replace, "DROP TABLE scores.predictions", usage(/there is no such table/)],
    [
      "where a view would be left with the rows that go",
      replace,
      "CREATE VIEW scores.top AS SELECT * FROM scores.predictions",
      mismatch(/view scores\.top/),
    ],
    keyGone,
  ])("a rollback is refused %s", async (_, spec, sql, error) => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    await using sink = sinkOf(database, spec);
    await carryOut(sink, plan(sink));
    await database.query(sql);
    await expect(sink.table.rollBack()).rejects.toMatchObject(error);
  });
});
