import { expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import type { PostgresSink } from "#src/targets/postgres/sink.js";
import { spanCount } from "#src/run/plan/spans.js";
import type { Plan } from "#src/run/plan/plan.js";
import { count, modes, plainTable, runOf } from "../../../support/pg-amid.js";
import type { Database } from "../../../support/pg-database.js";
import { usePostgres } from "../../../support/postgres.js";
import { begun, carryOut, commitSpans, pgSink, type PgSinkOptions, planFor } from "../../../support/sinks.js";
import { decisionOf, stagedPlan, verdictOf } from "../../../support/staged-plans.js";
import { toldAt } from "../../../support/told.js";
import { decisionDocument, verdictDocument } from "#src/stores/ledger.js";

const postgres = usePostgres();

const append = { mode: "append" } as const;
const planOf = (sink: PostgresSink): Plan => planFor(sink.planTarget, { rows: 40, runId: runOf(40) });

async function attempt(
  database: Database,
  spec: PgSinkOptions["postgres"] & object = append,
  { after = 0, sql = "SELECT 1" } = {},
): Promise<JobError | undefined> {
  await using sink = pgSink({ url: database.url, postgres: spec, retrySeconds: 1, allowDuplicates: false });
  try {
    const { stored, run } = await begun(sink, planOf(sink));
    try {
      await commitSpans(run, stored, (span) => span < after);
      await database.query(sql);
      await commitSpans(run, stored);
      await run.finish();
    } catch (error) {
      await toldAt(sink, stored.plan.runId).failed(error as JobError);
      throw error;
    }
  } catch (error) {
    return error as JobError;
  }
  return undefined;
}

const damaged = { code: "OUTPUT_DAMAGED", exitCode: 66 };
const looksFirst = { ...damaged, hint: expect.stringMatching(/look for them (there first|before)/) as string };

const losses = [
  ["rows of spans are deleted", 4, "DELETE FROM infer_batch.spans WHERE span IN (1, 2)"],
  ["all control rows are deleted", 2, "DELETE FROM infer_batch.spans; DELETE FROM infer_batch.runs"],
  ["the table of spans is dropped", 2, "DROP TABLE infer_batch.spans CASCADE"],
  ["the control schema is dropped", 2, "DROP SCHEMA infer_batch CASCADE"],
  ["the control schema is dropped at the end", 4, "DROP SCHEMA infer_batch CASCADE"],
] as const;

postgres.describe("control rows or tables that are gone", () => {
  test.each(losses)("where %s during a run of append, no later attempt doubles a row", async (_, after, sql) => {
    await using database = await postgres.server().createDatabase();
    expect(await attempt(database, append, { after, sql })).toMatchObject(damaged);
    const there = await count(database);
    for (let again = 0; again < 2; again += 1) {
      expect(await attempt(database)).toMatchObject(damaged);
      expect(await count(database)).toBe(there);
    }
  });

  test("the hint says how to go on with rows that are not in the table", async () => {
    await using database = await postgres.server().createDatabase();
    const sql =
      "DELETE FROM infer_batch.spans WHERE span IN (1, 2); DELETE FROM scores.predictions WHERE id / 10 IN (1, 2)";
    expect(await attempt(database, append, { after: 4, sql })).toMatchObject(looksFirst);
    const error = await attempt(database);
    expect(error).toMatchObject(looksFirst);
    expect(error?.message).toContain("span 1 and 1 more of run");
    await database.query(/DELETE FROM "\w+"\.documents [^;]*/.exec(error?.hint ?? "")?.[0] ?? "");
    expect(await attempt(database)).toBeUndefined();
    expect(await count(database)).toBe(40);
  });

  test("a run whose control rows are restored is continued", async () => {
    await using database = await postgres.server().createDatabase();
    await attempt(database, append, {
      after: 4,
      sql: "CREATE TABLE kept AS TABLE infer_batch.spans; DELETE FROM infer_batch.spans",
    });
    await database.query("INSERT INTO infer_batch.spans SELECT * FROM kept");
    expect(await attempt(database)).toBeUndefined();
    expect(await count(database)).toBe(40);
  });

  test.each(modes.slice(1))("where rows of spans are deleted, no attempt ends with 75: %s", async (_, spec) => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    const sql = "DELETE FROM infer_batch.spans WHERE span IN (1, 2)";
    const starts = { ...damaged, hint: expect.stringContaining("start over with --new-run") as string };
    expect(await attempt(database, spec, { after: 4, sql })).toMatchObject(starts);
    expect(await attempt(database, spec)).toMatchObject(starts);
    await using sink = pgSink({ url: database.url, postgres: spec });
    await carryOut(sink, planFor(sink.planTarget, { rows: 40, runId: `${runOf(40)}-r2` }));
    expect(await count(database)).toBe(40);
  });

  test("rows of spans that are deleted between two attempts are no duplicate key of the input: replace", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    const stop = new JobError("SIGTERM", "stopped");
    await using sink = pgSink({ url: database.url, postgres: modes[2][1] });
    const { stored, run } = await begun(sink, planOf(sink));
    await commitSpans(run, stored, (span) => span < 2);
    await toldAt(sink, stored.plan.runId).failed(stop);
    await database.query("DELETE FROM infer_batch.spans WHERE span = 1");
    expect(await attempt(database, modes[2][1])).toMatchObject(damaged);
  });

  test.each([
    ["spans", "DELETE FROM infer_batch.spans WHERE span = 1"],
    ["its plan and spans", "DELETE FROM infer_batch.spans; DELETE FROM infer_batch.runs"],
    ["the version", "DELETE FROM infer_batch.version"],
    ["the table `version`", "DROP TABLE infer_batch.version"],
    ["the table `runs`", "DROP TABLE infer_batch.runs CASCADE"],
  ])("a finished run that lacks %s is damaged, and its rows stay", async (_, sql) => {
    await using database = await postgres.server().createDatabase();
    expect(await attempt(database)).toBeUndefined();
    await database.query(sql);
    expect(await attempt(database)).toMatchObject(damaged);
    expect(await count(database)).toBe(40);
  });
});

async function staging(database: Database): Promise<string> {
  const [row] = await database.query("SELECT tablename FROM pg_tables WHERE tablename ~ '^staging_'");
  return `infer_batch.${String(row?.["tablename"])}`;
}

postgres.describe("spans that a server has lost with their rows", () => {
  const lose = "DELETE FROM infer_batch.spans WHERE span > 0";

  test.each(["judging", "approving", "finishing"])(
    "they are scored again, and not published without them: before %s",
    async (moment) => {
      await using database = await postgres.server().createDatabase();
      await using sink = pgSink({ url: database.url, postgres: append });
      const { stored, run } = await begun(sink, stagedPlan(sink.planTarget));
      await commitSpans(run, stored);
      const steps = [
        ["judging", () => run.create(verdictDocument, verdictOf("publish"))],
        ["approving", () => run.create(decisionDocument, decisionOf("approved", "checks"))],
        ["finishing", () => run.finish()],
      ] as const;
      for (const [step, work] of steps) {
        if (step !== moment) {
          await work();
          continue;
        }
        await database.query(`${lose}; DELETE FROM ${await staging(database)} WHERE id >= 10;
        DELETE FROM infer_batch.documents`);
        await expect(work()).rejects.toMatchObject({
          code: "DATABASE",
          hint: expect.stringContaining("scores these rows again") as string,
        });
        break;
      }
      const later = await begun(sink, stored.plan);
      await commitSpans(later.run, later.stored);
      for (const [, work] of [
        ["", () => later.run.create(verdictDocument, verdictOf("publish"))],
        ["", () => later.run.create(decisionDocument, decisionOf("approved", "checks"))],
        ["", () => later.run.finish()],
      ] as const) {
        await work();
      }
      expect(await count(database)).toBe(stored.plan.input.rows);
      expect(spanCount(stored.plan)).toBeGreaterThan(1);
    },
  );

  test("a run of upsert scores them again", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = modes[1][1];
    const keys = `DO $$ DECLARE t text; BEGIN SELECT tablename INTO t FROM pg_tables WHERE tablename ~ '^keys_';
      EXECUTE format('DELETE FROM infer_batch.%I WHERE infer_batch_span > 0', t); END $$`;
    const sql = `${lose}; DELETE FROM scores.predictions WHERE id >= 10; ${keys}`;
    expect(await attempt(database, spec, { after: 4, sql })).toMatchObject({ code: "DATABASE" });
    expect(await attempt(database, spec)).toBeUndefined();
    expect(await count(database)).toBe(40);
  });

  test("control rows alone that are gone keep the run from being judged", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url, postgres: append });
    const { stored, run } = await begun(sink, stagedPlan(sink.planTarget));
    await commitSpans(run, stored);
    await database.query(lose);
    await expect(run.create(verdictDocument, verdictOf("publish"))).rejects.toMatchObject(damaged);
    expect(await database.query("SELECT FROM infer_batch.verdicts")).toEqual([]);
  });
});
