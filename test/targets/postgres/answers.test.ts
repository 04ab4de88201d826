import { expect, test } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { Database } from "../../support/pg-database.js";
import { answerOf, answersIn, answersOf, inOrder } from "../../support/answers-contract.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, pgSink, planFor } from "../../support/sinks.js";

const postgres = usePostgres();

async function tableOf(database: Database): Promise<string> {
  const rows = await database.query("SELECT relname FROM pg_class WHERE relname ~ '^answers_[0-9a-f]{12}$'");
  return `infer_batch.${String(rows[0]?.["relname"])}`;
}

postgres.describe("answers that are kept in Postgres", () => {
  test("answers are kept in Postgres when the connection is cut in each of two inserts", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url, retrySeconds: 30 });
    const journal = (await begun(sink, planFor(sink.planTarget))).run.answers();
    await journal.keep([]); // makes the table
    // Ends its own connection twice: once before the row is there, once after it.
    await database.query(`CREATE SEQUENCE infer_batch.cuts;
      CREATE FUNCTION infer_batch.cut() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF nextval('infer_batch.cuts') <= 2 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
          RETURN NULL;
        END $$;
      CREATE TRIGGER cut AFTER INSERT ON ${await tableOf(database)} FOR EACH STATEMENT EXECUTE FUNCTION infer_batch.cut()`);
    await journal.keep(answersOf(1, 2));
    await journal.keep(answersOf(3));
    expect(await answersIn(journal)).toEqual(inOrder(answersOf(1, 2, 3)));
    const [cuts] = await database.query("SELECT last_value AS cuts FROM infer_batch.cuts");
    expect(Number(cuts?.["cuts"])).toBe(4);
  });

  test("a database that stays away ends an attempt that keeps answers with 75", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url, retrySeconds: 0.2 });
    const journal = (await begun(sink, planFor(sink.planTarget))).run.answers();
    await journal.keep(answersOf(1));
    await database.query(`CREATE FUNCTION infer_batch.cut() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
      CREATE TRIGGER cut AFTER INSERT ON ${await tableOf(database)} FOR EACH STATEMENT EXECUTE FUNCTION infer_batch.cut()`);
    await expect(journal.keep(answersOf(2))).rejects.toMatchObject({ code: "DATABASE", exitCode: 75 });
    expect(await answersIn(journal)).toEqual(answersOf(1));
  });

  test("answers are kept in a new table when a person has dropped that of an unfinished run", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url });
    const journal = (await begun(sink, planFor(sink.planTarget))).run.answers();
    await journal.keep(answersOf(1));
    await database.query(`DROP TABLE ${await tableOf(database)}`);
    expect(await answersIn(journal)).toEqual([]);
    await journal.keep(answersOf(2));
    expect(await answersIn(journal)).toEqual(answersOf(2));
  });

  test("a late attempt makes no table for the answers of a run that another one came after", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url });
    const plan = planFor(sink.planTarget);
    const { run } = await begun(sink, plan);
    await sink.create({ ...plan, runId: numberedRunId(plan.runId, 2) });
    await expect(run.answers().keep([])).rejects.toMatchObject({ code: "PLAN_CHANGED", exitCode: 66 });
    expect(
      await database.query("SELECT FROM pg_class WHERE relname LIKE 'answers!_%' ESCAPE '!' AND relkind = 'r'"),
    ).toEqual([]);
  });

  test("a role that may make no table for answers ends with 64, and the message names the schema", async () => {
    await using database = await postgres.server().createDatabase();
    const plan = await (async () => {
      await using sink = pgSink({ url: database.url });
      return (await begun(sink, planFor(sink.planTarget))).stored.plan;
    })();
    await database.query(`CREATE ROLE answers_scorer LOGIN;
      GRANT USAGE ON SCHEMA scores, infer_batch TO answers_scorer;
      GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA infer_batch, scores TO answers_scorer`);
    try {
      const url = new URL(database.url);
      url.username = "answers_scorer";
      await using sink = pgSink({ url: url.href });
      const { run } = await begun(sink, plan);
      await expect(run.answers().keep([])).rejects.toMatchObject({
        code: "PERMISSION",
        exitCode: 64,
        message: expect.stringMatching(/infer_batch\.answers_\w+: permission denied for schema infer_batch/),
      });
    } finally {
      await database.query("DROP OWNED BY answers_scorer; DROP ROLE answers_scorer");
    }
  });

  test("workers that keep the same answers in different orders do not end each other", async () => {
    await using database = await postgres.server().createDatabase();
    await using one = pgSink({ url: database.url });
    await using other = pgSink({ url: database.url });
    const plan = planFor(one.planTarget);
    const journals = [(await begun(one, plan)).run.answers(), (await begun(other, plan)).run.answers()];
    const answers = Array.from({ length: 900 }, (_, n) => answerOf(n));
    for (let round = 0; round < 5; round += 1) {
      const part = answers.slice(round * 180, round * 180 + 180);
      await Promise.all([journals[0]?.keep(part), journals[1]?.keep(part.toReversed())]);
    }
    expect(await answersIn(journals[0] ?? expect.fail())).toEqual(inOrder(answers));
  });
});
