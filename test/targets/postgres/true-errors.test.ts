import { expect, test } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import { stopAt } from "../../support/pg-stop.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, carryOut, commitSpans, pgSink, planFor } from "../../support/sinks.js";

const postgres = usePostgres();

// What is asked after an error, in a transaction that it has aborted, must not take the error's place.
postgres.describe("an error of the server while the target is read", () => {
  test("a lock timeout is reported as such when a new run is admitted", async () => {
    await using database = await postgres.server().createDatabase();
    await using holder = await postgres.server().open(database.name);
    const timeouts = { connect: 5, statement: 60, lock: 1 };
    await using sink = pgSink({ url: database.url, postgres: { timeouts }, allowDuplicates: false });
    const plan = planFor(sink.planTarget);
    await carryOut(sink, plan);
    await holder.query("BEGIN; LOCK TABLE scores.predictions IN ACCESS EXCLUSIVE MODE");
    await expect(sink.create({ ...plan, runId: numberedRunId(plan.runId, 2) })).rejects.toMatchObject({
      code: "DATABASE",
      message: expect.stringContaining("lock timeout") as string,
    });
  });

  test("a missing permission is reported as such when an unfinished upsert is opened", async () => {
    await using database = await postgres.server().createDatabase();
    const upsert = { mode: "upsert", key: ["id"] } as const;
    await using sink = pgSink({ url: database.url, postgres: upsert });
    const { stored, run } = await begun(sink, planFor(sink.planTarget));
    await commitSpans(run, stored, (span) => span === 0);
    await database.query(`CREATE ROLE onlooker LOGIN; GRANT USAGE ON SCHEMA scores, infer_batch TO onlooker;
      GRANT SELECT ON ALL TABLES IN SCHEMA infer_batch, scores TO onlooker`);
    try {
      await using looking = pgSink({ url: postgres.server().url(database.name, "onlooker"), postgres: upsert });
      await looking.open(stored);
      using stop = stopAt("before", /^SELECT c\.oid::int8::float8 AS oid/);
      const opening = looking.open(stored).catch((error: unknown) => error);
      await stop.reached;
      await database.query("REVOKE SELECT ON pg_catalog.pg_class FROM PUBLIC");
      stop.go();
      expect(await opening).toMatchObject({
        code: "PERMISSION",
        message: expect.stringContaining("permission denied for table pg_class") as string,
      });
    } finally {
      await database.query("GRANT SELECT ON pg_catalog.pg_class TO PUBLIC; DROP OWNED BY onlooker; DROP ROLE onlooker");
    }
  });
});
