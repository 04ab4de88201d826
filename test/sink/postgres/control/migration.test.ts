import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { planToText } from "#src/plan/parse-plan.js";
import type { Plan, Span } from "#src/plan/plan.js";
import { spanAt, spanCount } from "#src/plan/spans.js";
import { projectFolder } from "../../../support/cli.js";
import { count, plainTable } from "../../../support/pg-amid.js";
import type { Database, PgRow } from "../../../support/pg-database.js";
import { usePostgres } from "../../../support/postgres.js";
import { beginRun } from "../../../support/sink-drive.js";
import { begun, carryOut, commitSpans, pgSink, planFor } from "../../../support/sinks.js";

const postgres = usePostgres();
const runId = "job-000000000000";

/** The control tables as the program of layout 1 made them. */
async function makeLayoutOne(database: Database): Promise<void> {
  await database.query(await readFile(join(projectFolder, "test/sink/postgres/control/layout-1.sql"), "utf8"));
  await database.query(plainTable);
}

/** Stores a plan as the program of layout 1 did. */
async function planAsBefore(database: Database, plan: Plan): Promise<string> {
  const text = planToText(plan);
  const planId = createHash("sha256").update(text).digest("hex");
  await database.query(
    `INSERT INTO infer_batch.runs (run_id, base, number, plan_id, job, target, mode, rows_planned, spans_planned, plan)
     VALUES ($1, $2, 1, $3, $4, 'scores.predictions', $5, $6, $7, $8)`,
    [plan.runId, plan.runId, planId, plan.job, plan.target["mode"], plan.input.rows, spanCount(plan), text],
  );
  return planId;
}

const rowsSql = ({ rowStart, rowEnd }: Span): string =>
  `INSERT INTO scores.predictions SELECT id, id / 4.0 FROM generate_series(${rowStart}, ${rowEnd - 1}) AS id`;

const controlRowSql = (planId: string, { index, rowStart, rowEnd }: Span): string =>
  `INSERT INTO infer_batch.spans (run_id, span, plan_id, row_start, row_end, rows, rejected, filtered, writer, worker,
     workers, program, provider, batch_size, on_bad_row, table_oid, table_files)
   SELECT '${runId}', ${index}, '${planId}', ${rowStart}, ${rowEnd}, ${rowEnd - rowStart}, 0, 0, 'old', 0, 1, 'old', 'cpu',
     1024, 'fail', 'scores.predictions'::regclass::oid, md5(pg_relation_filenode('scores.predictions')::text)`;

/** Commits a span as the program of layout 1 did. */
async function commitAsBefore(database: Database, planId: string, span: Span): Promise<void> {
  await database.query(`BEGIN; ${rowsSql(span)}; ${controlRowSql(planId, span)}; COMMIT`);
}

/** All that can be told of the control tables, their view and its rights. */
async function shapeOf(database: Database): Promise<PgRow[]> {
  return await database.query(`
    SELECT c.relname, 'column ' || a.attname AS what, concat_ws(' ', a.attnum, format_type(a.atttypid, a.atttypmod),
        a.attnotnull, pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)) AS how
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
      LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
      WHERE c.relnamespace = 'infer_batch'::regnamespace AND c.relkind IN ('r', 'v')
    UNION ALL SELECT c.relname, conname, pg_get_constraintdef(k.oid) FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
      WHERE c.relnamespace = 'infer_batch'::regnamespace
    UNION ALL SELECT relname, 'comment', obj_description(oid, 'pg_class') FROM pg_class
      WHERE relnamespace = 'infer_batch'::regnamespace AND relkind IN ('r', 'v')
    UNION ALL SELECT 'progress', 'definition', pg_get_viewdef('infer_batch.progress'::regclass) ORDER BY 1, 2`);
}

const versions = async (database: Database): Promise<unknown[]> =>
  (await database.query("SELECT version FROM infer_batch.version ORDER BY 1")).map(({ version }) => version);

/** A run that the program of layout 1 planned, with its first span committed. */
async function halfRunAsBefore(database: Database): Promise<{ plan: Plan; planId: string }> {
  await makeLayoutOne(database);
  await using sink = pgSink({ url: database.url });
  const plan = planFor(sink.planTarget);
  const planId = await planAsBefore(database, plan);
  await commitAsBefore(database, planId, spanAt(plan, 0));
  return { plan, planId };
}

postgres.describe("control tables of layout 1", () => {
  test("control tables that were migrated are those that are made anew", async () => {
    await using migrated = await postgres.server().createDatabase();
    await makeLayoutOne(migrated);
    await using fresh = await postgres.server().createDatabase();
    await fresh.query(plainTable);
    for (const { url } of [migrated, fresh]) {
      await using sink = pgSink({ url });
      await carryOut(sink, planFor(sink.planTarget));
    }
    expect(await shapeOf(migrated)).toEqual(await shapeOf(fresh));
    expect([await versions(migrated), await versions(fresh)]).toEqual([[1, 2], [2]]);
  });

  test("an unfinished run of layout 1 is migrated and continued, and each row is there once", async () => {
    await using database = await postgres.server().createDatabase();
    const { plan } = await halfRunAsBefore(database);
    await using sink = pgSink({ url: database.url });
    const stored = await sink.find(plan.runId);
    const run = await sink.open(stored ?? expect.fail("no run"));
    expect([...run.committed]).toEqual([1, 0, 0]);
    expect(await versions(database)).toEqual([1]); // reading a run writes nothing
    const writer = await beginRun(run);
    expect(await versions(database)).toEqual([1, 2]);
    await commitSpans(writer, stored ?? expect.fail("no run"));
    await writer.finish();
    expect(await count(database)).toBe(25);
    expect(
      await database.query(
        "SELECT run_id, params, staged, status FROM infer_batch.runs JOIN infer_batch.progress USING (run_id)",
      ),
    ).toEqual([{ run_id: runId, params: {}, staged: false, status: "complete" }]);
  });

  test("a plan that is damaged is migrated without its params", async () => {
    await using database = await postgres.server().createDatabase();
    await halfRunAsBefore(database);
    await database.query("UPDATE infer_batch.runs SET plan = left(plan, 100)");
    await using sink = pgSink({ url: database.url });
    await begun(sink, planFor(sink.planTarget, { runId: "job-000000000001" }));
    expect(await database.query("SELECT run_id, params FROM infer_batch.runs ORDER BY 1")).toEqual([
      { run_id: runId, params: null },
      { run_id: "job-000000000001", params: {} },
    ]);
  });

  test("the history of a job is read from layout 1, and a run whose plan is damaged does not hide the others", async () => {
    await using database = await postgres.server().createDatabase();
    const { plan } = await halfRunAsBefore(database);
    await using sink = pgSink({ url: database.url });
    const history = async (): Promise<unknown> => await sink.history?.({ job: plan.job, last: 5 });
    expect(await history()).toMatchObject([
      { runId, status: "unfinished", spansCommitted: 1, rows: 10, plan: { runId } },
    ]);
    expect(await versions(database)).toEqual([1]);
    await begun(sink, planFor(sink.planTarget, { runId: "job-000000000001" }));
    await database.query("UPDATE infer_batch.runs SET plan = left(plan, 100) WHERE run_id = $1", [runId]);
    expect(await history()).toMatchObject([
      { runId: "job-000000000001", status: "unfinished" },
      { runId, status: "damaged", plan: undefined },
    ]);
  });

  test("several attempts that migrate at once make one layout, and all go on", async () => {
    await using database = await postgres.server().createDatabase();
    const { plan } = await halfRunAsBefore(database);
    const sinks = Array.from({ length: 4 }, () => pgSink({ url: database.url }));
    try {
      const runs = await Promise.all(sinks.map((sink) => begun(sink, plan)));
      const outcomes = await Promise.all(runs.map(({ run, stored }) => commitSpans(run, stored)));
      expect(outcomes).toHaveLength(4);
      await Promise.all(runs.map(({ run }) => run.finish()));
      expect(await versions(database)).toEqual([1, 2]);
      expect(await count(database)).toBe(25);
    } finally {
      await Promise.all(sinks.map((sink) => sink[Symbol.asyncDispose]()));
    }
  });

  test("an attempt of layout 1 that is inside a span commits it, and the migration waits for that", async () => {
    await using database = await postgres.server().createDatabase();
    const { plan, planId } = await halfRunAsBefore(database);
    const span = spanAt(plan, 1);
    await using before = await postgres.server().open(database.name);
    await before.query(
      `BEGIN; SELECT 1 FROM infer_batch.runs LEFT JOIN infer_batch.spans USING (run_id); ${rowsSql(span)}`,
    );
    await using sink = pgSink({ url: database.url });
    const beginning = begun(sink, plan);
    for (let waiting = 0; waiting === 0; ) {
      const [row] = await database.query(
        "SELECT count(*)::int AS n FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted",
      );
      waiting = Number(row?.["n"]);
    }
    await before.query(`${controlRowSql(planId, span)}; COMMIT`);
    const { run, stored } = await beginning;
    expect([...run.committed]).toEqual([1, 1, 0]);
    await commitSpans(run, stored);
    await run.finish();
    expect(await count(database)).toBe(25);
  });

  test("an attempt of layout 1 that was at work before the migration commits its spans after it, and finishes", async () => {
    await using database = await postgres.server().createDatabase();
    const { plan, planId } = await halfRunAsBefore(database);
    await using sink = pgSink({ url: database.url });
    const { run, stored } = await begun(sink, plan);
    expect(await versions(database)).toEqual([1, 2]);
    await commitAsBefore(database, planId, spanAt(plan, 1));
    await commitSpans(run, stored);
    await database.query(`INSERT INTO infer_batch.finishes (run_id, writer) VALUES ('${runId}', 'old')`);
    await run.finish();
    expect(await count(database)).toBe(25);
    const again = await sink.open(stored);
    expect([...again.committed].map(Boolean)).toEqual([true, true, true]);
  });
});

postgres.describe("control tables of layout 1 that a role may not migrate", () => {
  test("a role that does not own the control tables gets the SQL to run, and continues when the owner has run it", async () => {
    await using database = await postgres.server().createDatabase();
    const { plan } = await halfRunAsBefore(database);
    await database.query(`DO $$ BEGIN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'migrant') THEN DROP OWNED BY migrant CASCADE; DROP ROLE migrant; END IF;
      END $$; CREATE ROLE migrant LOGIN; GRANT USAGE ON SCHEMA infer_batch, scores TO migrant;
      GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA infer_batch, scores TO migrant`);
    const open = (): ReturnType<typeof pgSink> => pgSink({ url: postgres.server().url(database.name, "migrant") });
    await using refused = open();
    const error = await begun(refused, plan).then(
      () => expect.fail("it began"),
      (thrown: unknown) => thrown as { message: string; code: string; exitCode: number; hint: string },
    );
    expect(error).toMatchObject({
      code: "PERMISSION",
      exitCode: 64,
      message: expect.stringMatching(
        /^migrating control schema infer_batch to layout 2: role migrant does not own table infer_batch\.\w+\n/,
      ) as string,
      hint: expect.stringContaining("docs/postgres.md") as string,
    });
    expect(await versions(database)).toEqual([1]);

    await database.query(error.message.slice(error.message.indexOf("\n\nBEGIN;")));
    await database.query("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA infer_batch TO migrant");
    await using sink = open();
    await carryOut(sink, plan);
    expect([await count(database), await versions(database)]).toEqual([25, [1, 2]]);
  });

  test("a migration by another role gives owner and grants of the control tables to the new ones", async () => {
    await using database = await postgres.server().createDatabase();
    const { plan } = await halfRunAsBefore(database);
    await database.query(`DO $$ BEGIN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'steward') THEN DROP OWNED BY steward, migrant CASCADE; DROP ROLE steward, migrant; END IF;
      END $$; DROP ROLE IF EXISTS migrant; CREATE ROLE steward; CREATE ROLE migrant LOGIN;
      GRANT USAGE ON SCHEMA infer_batch, scores TO migrant; GRANT INSERT ON scores.predictions TO migrant;
      GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA infer_batch TO migrant`);
    for (const table of [
      "version",
      "runs",
      "attempts",
      "spans",
      "rejects",
      "finishes",
      "errors",
      "swaps",
      "progress",
    ]) {
      await database.query(`ALTER TABLE infer_batch.${table} OWNER TO steward`);
    }
    await database.query("GRANT USAGE ON SCHEMA infer_batch TO steward");
    {
      await using superuser = pgSink({ url: database.url });
      await begun(superuser, plan);
    }
    await using sink = pgSink({ url: postgres.server().url(database.name, "migrant") });
    await carryOut(sink, plan);
    expect(await count(database)).toBe(25);
    const owners = await database.query("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'infer_batch'");
    expect(owners).toEqual([{ tableowner: "steward" }]);
    await database.query("SET ROLE migrant; SELECT * FROM infer_batch.progress; RESET ROLE");
  });
});
