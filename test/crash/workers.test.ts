import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { expectFinished, inspectWreck } from "../support/crash.js";
import { outliveKills } from "../support/crew.js";
import { goldenRows } from "../support/golden.js";
import { httpProxy } from "../support/http-proxy.js";
import { scratch, writeSpec } from "../support/job.js";
import { partNames } from "../support/output.js";
import type { PgRow } from "../support/pg-database.js";
import { tableFaults, writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { runInS3, upload } from "../support/s3-job.js";
import { s3OutputJob } from "../support/s3-output.js";
import { useS3 } from "../support/s3.js";
import { torture } from "../support/torture.js";
import { runWatched } from "../support/watched.js";
import { fixtureNamed } from "../support/world.js";

const timeout = 1_200_000;
const fixture = fixtureNamed("digits-lightgbm");
const commitRows = 20;
const name = "four workers, again and again one of them killed and started again, score every row once";

test.runIf(torture)(`${name}: files`, { timeout }, async () => {
  const spec = await writeSpec(scratch.path, fixture, { commit_rows: commitRows, engine: { batch_size: 20 } });
  const out = join(scratch.path, "out");
  const expected = { golden: await goldenRows(fixture), commitRows };

  const statuses = await outliveKills({
    run: (args, onStart) =>
      // Waits before each call that makes something durable: the run takes as long as the kills do.
      runWatched(spec, { CRASH_ROOT: out, CRASH_PAUSE: torture ? "500" : "25" }, { args, onStart }),
    countSpans: async () => (await partNames(out)).length,
    inspect: async () => void (await inspectWreck(out, expected, "")),
  });

  await expectFinished(out, expected);
  expect(statuses.filter((status) => status !== "partial").length).toBeGreaterThan(0);
});

const s3 = useS3();
const postgres = usePostgres();

/** Without a key a row that comes twice is there twice. Adding rows takes the time that the kills need. */
const slowTable = `CREATE SCHEMA scores;
  CREATE TABLE scores.predictions (id int8, label int8, ${Array.from({ length: 10 }, (_, digit) => `probabilities_${digit} real`).join(", ")});
  CREATE FUNCTION scores.wait() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_sleep(${torture ? 2 : 0.4}); RETURN NULL; END $$;
  CREATE TRIGGER wait AFTER INSERT ON scores.predictions EXECUTE FUNCTION scores.wait()`;

/** In one statement: attempts are at work. */
const counts = `SELECT (SELECT count(*) FROM scores.predictions)::int AS rows,
  (SELECT count(DISTINCT id) FROM scores.predictions)::int AS ids,
  (SELECT coalesce(sum(rows), 0) FROM infer_batch.spans)::int AS told,
  (SELECT count(*) FROM infer_batch.spans)::int AS spans`;

s3.describe("in a store,", () => {
  postgres.describe("", () => {
    test(`${name}: from S3 into Postgres`, { timeout }, async () => {
      await using database = await postgres.server().createDatabase();
      await database.query(slowTable);
      const bucket = await s3.server().createBucket();
      await upload(bucket, join(projectFolder, "fixtures/data", fixture.table), "lake/");
      const spec = await writePgSpec(scratch.path, fixture, database, {
        input: { path: `s3://${bucket.name}/lake/*.parquet`, spool: { path: "spool" } },
        output: { postgres: { mode: "append" } },
        retry: { max_seconds: 60 },
        commit_rows: torture ? 8 : commitRows,
      });

      const look = async (): Promise<PgRow> => {
        const [there] = await database.query("SELECT to_regclass('infer_batch.spans') IS NOT NULL AS yes");
        const [row = {}] = there?.["yes"] === true ? await database.query(counts) : [];
        return row;
      };

      const statuses = await outliveKills({
        run: (args, onStart) =>
          runInS3(["run", spec, "--no-progress", ...args], { port: s3.server().port, onStart, ownProcess: true }),
        countSpans: async () => Number((await look())["spans"] ?? 0),
        async inspect() {
          const { rows, ids, told } = await look();
          expect([ids, told]).toEqual([rows, rows]);
        },
      });

      expect(await tableFaults(database, fixture)).toEqual([]);
      expect(await database.query("SELECT status, rows_committed FROM infer_batch.progress")).toEqual([
        { status: "complete", rows_committed: String(fixture.rows) },
      ]);
      expect(await database.query("SELECT count(*)::int AS finishes FROM infer_batch.finishes")).toEqual([
        { finishes: 1 },
      ]);
      expect(statuses.filter((status) => status !== "partial").length).toBeGreaterThan(0);
    });
  });

  test.runIf(torture)(`${name}: from S3 into S3`, { timeout }, async () => {
    await using proxy = await httpProxy(s3.server().port);
    const bucket = await s3.server().createBucket();
    await upload(bucket, join(projectFolder, "fixtures/data/diabetes"), "in/");
    const job = await s3OutputJob(
      scratch.path,
      { bucket, port: proxy.port },
      { input: { path: `s3://${bucket.name}/in/*.parquet`, spool: { path: "spool" } }, commit_rows: torture ? 5 : 10 },
    );
    proxy.delayMs = torture ? 400 : 40; // an attempt reads what each part says of itself

    const statuses = await outliveKills({
      run: (args, onStart) =>
        runInS3(["run", job.spec, "--no-progress", ...args], { port: proxy.port, onStart, ownProcess: true }),
      countSpans: async () => (await job.names()).filter((path) => path.endsWith(".parquet")).length,
      inspect: () => job.expectSound(),
    });

    await job.expectDone();
    expect(statuses.filter((status) => status !== "partial").length).toBeGreaterThan(0);
  });
});
