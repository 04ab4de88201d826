import { expect, test } from "vitest";
import type { Plan } from "#src/plan/plan.js";
import { runProfileOf, runProfileText } from "#src/publish/profile-text.js";
import type { StoredPlan } from "#src/sink/port.js";
import type { PostgresSink } from "#src/sink/postgres/sink.js";
import type { Database } from "../../support/pg-database.js";
import { keysIn, sinkAt, warningPlan } from "../../support/pg-keys.js";
import { usePostgres } from "../../support/postgres.js";
import { commitSealed, shownFeatures, wholeSealed } from "../../support/sealed-spans.js";
import type { BegunRun } from "../../support/sink-drive.js";
import { begun } from "../../support/sinks.js";
import { decisionOf, stagedPlan, verdictOf } from "../../support/staged-plans.js";
import { until } from "../../support/waiting.js";

const postgres = usePostgres();

/** Makes a role that logs in, and may read the tables and, if `writes`, score. A role of an earlier test is replaced. */
async function makeRole(database: Database, role: string, { writes = false } = {}): Promise<void> {
  await database.query(`DO $$ BEGIN
      IF EXISTS (SELECT FROM pg_roles WHERE rolname = '${role}') THEN DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}; END IF;
    END $$;
    CREATE ROLE ${role} LOGIN; GRANT USAGE ON SCHEMA scores, infer_batch TO ${role};
    GRANT SELECT${writes ? ", INSERT" : ""} ON ALL TABLES IN SCHEMA infer_batch TO ${role};
    GRANT SELECT${writes ? ", INSERT" : ""} ON scores.predictions TO ${role}`);
  if (writes) {
    await database.query(`GRANT CREATE ON SCHEMA infer_batch TO ${role}`);
  }
}

/** Opens a sink as a role, with all that it warns of. */
function sinkOf(database: Database, role?: string, mode?: "replace"): ReturnType<typeof sinkAt> {
  return sinkAt(role === undefined ? database.url : postgres.server().url(database.name, role), mode);
}

/** Makes the control tables and the target by a run of other params. */
async function makeTables(database: Database): Promise<void> {
  await using sink = sinkOf(database).sink;
  const { run, stored } = await begun(sink, { ...warningPlan(sink), runId: "job-111111111111" as Plan["runId"] });
  await commitSealed(run, stored, [0, 1, 2]);
  await run.finish();
}

async function publish(run: BegunRun): Promise<void> {
  await run.judge(verdictOf("hold"));
  await run.decide(decisionOf("approved"));
  await run.finish();
}

/** What is published of the features of a run. */
async function publishedFeatures(sink: PostgresSink, stored: StoredPlan): Promise<unknown> {
  return (await (await sink.open(stored)).profile()).published?.features;
}

postgres.describe("the key of a run in Postgres", () => {
  test.each([
    ["as after a kill", (key: string) => `CREATE TABLE ${key} (key text); INSERT INTO ${key} VALUES ('lost')`],
    [
      "with another key",
      (key: string) => `CREATE TABLE ${key} (key text); INSERT INTO ${key} VALUES (repeat('A', 43) || '=')`,
    ],
  ])(
    "a role that may only read tells the features of a published run while its key is there: %s",
    async (_how, sql) => {
      await using database = await postgres.server().createDatabase();
      await using sink = sinkOf(database).sink;
      const { run, stored } = await begun(sink, stagedPlan(sink.planTarget));
      await commitSealed(run, stored, [0, 1, 2]);
      const [key = expect.fail("no key")] = await keysIn(database);
      await publish(run);
      await makeRole(database, "key_reader");
      await database.query(sql(key));
      await using reader = sinkOf(database, "key_reader").sink;
      expect(await publishedFeatures(reader, stored)).toEqual(shownFeatures);
      expect(await publishedFeatures(sink, stored)).toEqual(shownFeatures);
    },
  );

  test("an attempt tells the features of a run that is published, and whose key is dropped, while it reads the key", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database).sink;
    const { run, stored } = await begun(sink, stagedPlan(sink.planTarget));
    await commitSealed(run, stored, [0, 1, 2]);
    const [key = expect.fail("no key")] = await keysIn(database);
    await using other = await postgres.server().open(database.name);
    await other.query(`BEGIN; LOCK TABLE ${key} IN ACCESS EXCLUSIVE MODE`);
    const found = run.profile();
    await until(async () => (await database.query("SELECT FROM pg_locks WHERE NOT granted")).length > 0);
    const text = runProfileText(runProfileOf(stored.plan, { profile: wholeSealed, rejected: 0 }));
    await other.query(`INSERT INTO infer_batch.finishes (run_id, writer, target, publication, profile, model_sha256)
      VALUES ('${stored.plan.runId}', 'other', 'scores.predictions', 1, '${text}', ''); DROP TABLE ${key}; COMMIT`);
    expect((await found).published?.features).toEqual(shownFeatures);
  });

  test("roles that may commit spans can read the key, and no other role can, despite default privileges", async () => {
    await using database = await postgres.server().createDatabase();
    await makeTables(database);
    for (const role of ["key_first", "key_second"]) {
      await makeRole(database, role, { writes: true });
    }
    await makeRole(database, "key_reader");
    await database.query(
      `ALTER DEFAULT PRIVILEGES FOR ROLE key_first IN SCHEMA infer_batch GRANT ALL ON TABLES TO key_reader, PUBLIC, key_second`,
    );
    await using first = sinkOf(database, "key_first").sink;
    const { run, stored } = await begun(first, warningPlan(first));
    await commitSealed(run, stored, [0]);
    const [key = expect.fail("no key")] = await keysIn(database);
    const [{ acl } = { acl: "" }] = await database.query(
      `SELECT string_agg(CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee) END || ' ' || privilege_type, ', ' ORDER BY 1) AS acl
        FROM pg_class c, aclexplode(relacl) WHERE c.oid = '${key}'::regclass AND grantee <> relowner AND NOT EXISTS
          (SELECT FROM pg_roles WHERE oid = grantee AND rolsuper)`,
    );
    expect(acl).toBe("key_second SELECT");
    await using opened = sinkOf(database, "key_second");
    const { sink: second, warnings } = opened;
    const other = await begun(second, stored.plan);
    await commitSealed(other.run, stored, [1, 2]);
    expect((await other.run.profile()).profile).toEqual(wholeSealed);
    await other.run.finish();
    expect(await publishedFeatures(second, stored)).toEqual(shownFeatures);
    // It cannot drop the key; the role that owns it does so when it runs the next time.
    expect(warnings).toEqual([
      expect.stringMatching(`table ${key} still has the key .*: key_first, which owns it, must drop`),
    ]);
    await run.finish();
    expect(await keysIn(database)).toEqual([]);
  });

  test("a role that may not read the key of a run that cannot be held goes on without features, and says why", async () => {
    await using database = await postgres.server().createDatabase();
    await using first = sinkOf(database).sink;
    const { run, stored } = await begun(first, warningPlan(first));
    await commitSealed(run, stored, [0]);
    const [key = expect.fail("no key")] = await keysIn(database);
    await makeRole(database, "key_second", { writes: true });
    await database.query(`REVOKE ALL ON ${key} FROM key_second`);
    await using opened = sinkOf(database, "key_second");
    const { sink, warnings } = opened;
    const other = await begun(sink, stored.plan);
    await commitSealed(other.run, stored, [1, 2]);
    await other.run.finish();
    expect(warnings).toEqual([
      expect.stringContaining(`key_second lacks the privilege SELECT on ${key}`),
      expect.stringContaining("permission denied for table profile_key_"),
      expect.stringContaining("still has the key"),
    ]);
    await run.finish();
    expect(await keysIn(database)).toEqual([]);
  });

  test("a role that may not read the key of an approved run does not publish it without features", async () => {
    await using database = await postgres.server().createDatabase();
    await using first = sinkOf(database).sink;
    const { run, stored } = await begun(first, stagedPlan(first.planTarget));
    await commitSealed(run, stored, [0, 1, 2]);
    await run.judge(verdictOf("hold"));
    const [key = expect.fail("no key")] = await keysIn(database);
    await makeRole(database, "key_second", { writes: true });
    await database.query(`REVOKE ALL ON ${key} FROM key_second`);
    await using opened = sinkOf(database, "key_second");
    const held = await opened.sink.open(stored);
    await held.decide(decisionOf("approved"));
    await expect(held.profile()).rejects.toMatchObject({
      exitCode: 64,
      message: expect.stringContaining("permission denied for table profile_key_"),
    });
    expect(opened.warnings).toEqual([]);
    await run.finish();
    expect(await publishedFeatures(first, stored)).toEqual(shownFeatures);
  });

  test("a role that may not make the key of a run that cannot be held goes on without features, and says why", async () => {
    await using database = await postgres.server().createDatabase();
    await makeTables(database);
    await makeRole(database, "key_second", { writes: true });
    await database.query("REVOKE CREATE ON SCHEMA infer_batch FROM key_second");
    await using opened = sinkOf(database, "key_second");
    const { sink, warnings } = opened;
    const { run, stored } = await begun(sink, warningPlan(sink));
    await commitSealed(run, stored, [0, 1, 2]);
    await run.finish();
    expect(warnings).toEqual([
      expect.stringContaining(
        "key_second lacks the privilege CREATE on schema infer_batch, so the run is published without",
      ),
    ]);
    expect(await publishedFeatures(sink, stored)).toBeUndefined();
  });

  test("a role that may not make the key of a run that may be held ends before it is scored", async () => {
    await using database = await postgres.server().createDatabase();
    await makeTables(database);
    await makeRole(database, "key_second", { writes: true });
    await database.query(`REVOKE CREATE ON SCHEMA infer_batch FROM key_second;
      GRANT CREATE ON SCHEMA scores TO key_second; ALTER TABLE scores.predictions OWNER TO key_second`);
    await using opened = sinkOf(database, "key_second", "replace");
    const { sink, warnings } = opened;
    await expect(begun(sink, stagedPlan(sink.planTarget))).rejects.toMatchObject({
      exitCode: 64,
      message: expect.stringContaining("permission denied for schema infer_batch"),
    });
    expect(warnings).toEqual([]);
  });

  test("a role that discards a run whose key belongs to another role warns of the key and of the table with the staged rows", async () => {
    await using database = await postgres.server().createDatabase();
    await using owner = sinkOf(database).sink;
    const { run, stored } = await begun(owner, stagedPlan(owner.planTarget));
    await commitSealed(run, stored, [0, 1, 2]);
    await run.judge(verdictOf("hold"));
    await makeRole(database, "key_second", { writes: true });
    await using opened = sinkOf(database, "key_second");
    const { sink, warnings } = opened;
    const held = await sink.open(stored);
    await held.tidy?.();
    expect(warnings).toEqual([]); // the run needs its key
    await held.decide(decisionOf("discarded"));
    await held.tidy?.();
    expect(warnings.toSorted()).toEqual([
      expect.stringMatching(/^table infer_batch\.profile_key_\S* still has the key .*, which owns it, must drop it$/),
      expect.stringMatching(/^table infer_batch\.\S* still has rows of the run: \S*, which owns it, must drop it$/),
    ]);
    await run.tidy?.();
    expect(await keysIn(database)).toEqual([]);
    await held.tidy?.();
    expect(warnings).toHaveLength(2);
  });

  test("a key that is locked when its run is published is tried once, and named once", async () => {
    await using database = await postgres.server().createDatabase();
    await using opened = sinkOf(database);
    const { sink, warnings } = opened;
    const { run, stored } = await begun(sink, warningPlan(sink));
    await commitSealed(run, stored, [0, 1, 2]);
    const [key = expect.fail("no key")] = await keysIn(database);
    await using other = await postgres.server().open(database.name);
    await other.query("BEGIN");
    await other.query(`LOCK TABLE ${key} IN ACCESS SHARE MODE`);
    await run.finish();
    expect(warnings).toEqual([expect.stringContaining(`table ${key} is no longer needed, and could not be dropped`)]);
    await other.query("ROLLBACK");
    await run.finish();
    expect(await keysIn(database)).toEqual([]);
  });
});
