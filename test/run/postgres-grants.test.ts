import { expect, test } from "vitest";
import type { CliResult } from "../support/cli.js";
import { scratch, scratchFolder } from "../support/job.js";
import { lastJson, nightlyJob, type Nights } from "../support/nights.js";
import { leftTables } from "../support/pg-crash.js";
import { tableFaults, writePgSpec } from "../support/pg-job.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { scoreHere } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";
import { expectEnd } from "../support/cli.js";

const postgres = usePostgres();
const fixture = fixtureNamed("diabetes-mlp");

/** What a mode needs, as docs/privileges.md lists it, each with what Postgres says where it is missing. */
type Grants = readonly (readonly [grant: string, said: string, role?: "keeper"])[];

const schemas: Grants = [
  ["USAGE ON SCHEMA scores", "permission denied for schema scores"],
  ["USAGE ON SCHEMA infer_batch", "permission denied for schema infer_batch"],
  ["SELECT ON ALL TABLES IN SCHEMA infer_batch", "permission denied for table"],
  ["INSERT ON ALL TABLES IN SCHEMA infer_batch", "permission denied for table"],
];
const onTarget = (...privileges: readonly string[]): Grants =>
  privileges.map((privilege) => [`${privilege} ON scores.predictions`, "permission denied for table predictions"]);
const temporary = ["TEMPORARY ON DATABASE @", "permission denied to create temporary tables"] as const;
const creating = ["CREATE ON DATABASE @", "permission denied for database"] as const;

const asScorer = (database: Database): string => postgres.server().url(database.name, "scorer");

/** What PUBLIC may do is not the role's own. */
async function makeScorer(database: Database): Promise<void> {
  await database.query(`DO $$ BEGIN
      IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'scorer') THEN
        DROP OWNED BY scorer, keeper CASCADE; DROP ROLE scorer, keeper;
      END IF;
    END $$;
    CREATE ROLE scorer LOGIN; CREATE ROLE keeper;
    REVOKE ALL ON DATABASE ${database.name} FROM PUBLIC; GRANT CONNECT ON DATABASE ${database.name} TO scorer`);
}

const giveAll = async (database: Database, grants: Grants): Promise<void> => {
  for (const [grant, , role = "scorer"] of grants) {
    await database.query(`GRANT ${grant.replace("@", database.name)} TO ${role}`);
  }
};

postgres.describe("with tables made beforehand, no more is needed and no less is enough", () => {
  test.each([
    ["append", { mode: "append", key: [] }, [...schemas, ...onTarget("INSERT")]],
    [
      "append, with checks",
      { mode: "append", key: [] },
      [...schemas, ...onTarget("INSERT"), ["CREATE ON SCHEMA infer_batch", "permission denied for schema infer_batch"]],
      { checks: {} },
    ],
    [
      "append, with checks that only warn",
      { mode: "append", key: [] },
      [...schemas, ...onTarget("INSERT")],
      { checks: { on_fail: "warn" } },
    ],
    [
      "upsert",
      { mode: "upsert" },
      [
        ...schemas,
        ...onTarget("SELECT", "INSERT", "UPDATE"),
        ["CREATE ON SCHEMA infer_batch", "permission denied for schema infer_batch"],
        temporary,
      ],
    ],
    [
      "replace, swap: delete_insert",
      { mode: "replace", swap: "delete_insert" },
      [
        ...schemas,
        ...onTarget("SELECT", "INSERT", "UPDATE", "DELETE"),
        ["CREATE ON SCHEMA scores", "permission denied for schema scores"],
      ],
    ],
    [
      "replace",
      { mode: "replace" },
      [
        ...schemas,
        ["keeper", "permission denied for schema scores"],
        // The tables that take turns are the owner's, who must be allowed to have them there.
        ["CREATE ON SCHEMA scores", "permission denied for schema scores", "keeper"],
      ],
    ],
    [
      "replace, swap: delete_insert, with checks",
      { mode: "replace", swap: "delete_insert" },
      [
        ...schemas,
        ...onTarget("SELECT", "INSERT", "UPDATE", "DELETE"),
        ["CREATE ON SCHEMA scores", "permission denied for schema scores"],
      ],
      { checks: {} },
    ],
  ] as const)("%s", async (_what, postgresSpec, grants: Grants, more: object = {}) => {
    await using folder = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    await makeScorer(database);
    let runs = 0;
    const score = async (url: string): Promise<unknown> => {
      runs += 1;
      return await scoreHere(
        await writePgSpec(
          folder.path,
          fixture,
          { url },
          { ...more, name: `run-${runs}`, output: { postgres: { key: ["id"], ...postgresSpec } } },
        ),
      );
    };
    await score(database.url);
    await database.query("ALTER TABLE scores.predictions OWNER TO keeper");
    for (const [missing, said, role = "scorer"] of grants) {
      await giveAll(database, grants);
      await database.query(`REVOKE ${missing.replace("@", database.name)} FROM ${role}`);
      await expect(score(asScorer(database)), `without ${missing}`).rejects.toMatchObject({
        exitCode: 64,
        message: expect.stringContaining(said),
      });
    }
    await giveAll(database, grants);
    if (postgresSpec.mode === "append") {
      await database.query("TRUNCATE scores.predictions");
    }
    await score(asScorer(database));
    expect(await tableFaults(database, fixture)).toEqual([]);
  });
});

postgres.describe("a person with a role of their own", () => {
  test("a member of the role that scored a held run can approve it; another role's approval is kept, and any attempt publishes the run", async () => {
    await using database = await postgres.server().createDatabase();
    await makeScorer(database);
    await giveAll(database, [creating, temporary]);
    await database.query("ALTER ROLE keeper LOGIN");
    const decide = async (user: string, command: string, date: string): Promise<CliResult> => {
      const table = { url: postgres.server().url(database.name, user), table: "scores.predictions", mode: "append" };
      const nights = await nightlyJob(scratch.path, {
        checks: { outputs: { score: { range: [0, 1] } } },
        output: { parquet: undefined, postgres: { ...table, timeouts: { lock: 1 } } },
      });
      return await nights.night(command, date);
    };
    for (const date of ["2026-11-20", "2026-11-21"]) {
      await expectEnd(decide("scorer", "run", date), 67);
    }
    await database.query(`GRANT CONNECT ON DATABASE ${database.name} TO keeper; GRANT USAGE ON SCHEMA scores, infer_batch TO keeper;
      GRANT INSERT ON scores.predictions TO keeper; GRANT SELECT, INSERT ON infer_batch.runs, infer_batch.version,
        infer_batch.attempts, infer_batch.spans, infer_batch.documents, infer_batch.verdicts, infer_batch.decisions,
        infer_batch.finishes TO keeper`);
    await expectEnd(decide("keeper", "approve", "2026-11-20"), 64, "permission denied");
    await expectEnd(decide("scorer", "run", "2026-11-20"), 0);
    await database.query("GRANT scorer TO keeper");
    await expectEnd(decide("keeper", "approve", "2026-11-21"), 0);
    expect(await database.query("SELECT FROM scores.predictions")).toHaveLength(2 * fixture.rows);
    expect(await leftTables(database)).toEqual([]);
  });
});

postgres.describe("two roles that score one run", () => {
  test("each role commits the spans of its worker, and the run has its features: append, with checks that only warn", async () => {
    await using database = await postgres.server().createDatabase();
    await makeScorer(database);
    await giveAll(database, [creating]);
    await database.query(`ALTER ROLE keeper LOGIN; GRANT CONNECT ON DATABASE ${database.name} TO keeper`);
    const nightsOf = async (user: string): Promise<Nights> => {
      const table = { url: postgres.server().url(database.name, user), table: "scores.predictions", mode: "append" };
      return await nightlyJob(scratch.path, {
        checks: { on_fail: "warn" },
        output: { parquet: undefined, postgres: table },
      });
    };
    const night = async (user: string, ...args: readonly [string, string, ...string[]]): Promise<CliResult> =>
      await (await nightsOf(user)).night(...args);
    await expectEnd(night("scorer", "run", "2026-11-20"), 0);
    const grants = [...schemas, ...onTarget("INSERT")].map(([grant, said]) => [grant, said, "keeper"] as const);
    await giveAll(database, grants);
    await expectEnd(night("scorer", "run", "2026-11-21", "--worker", "0/2"), 0);
    const last = await night("keeper", "run", "2026-11-21", "--worker", "1/2");
    expect([last.code, last.stderr]).toEqual([0, expect.not.stringContaining("must drop it")]);
    const stats = await night("keeper", "stats", "2026-11-21", "--json");
    expect(Object.keys(lastJson(stats)["features"] ?? {})).toHaveLength(10);
    expect(await leftTables(database)).toEqual([]);

    // Without CREATE, a role alone scores the run, features included.
    const alone = await night("keeper", "run", "2026-11-22");
    expect([alone.code, alone.stderr]).toEqual([0, expect.not.stringContaining("privilege")]);
    expect(await database.query("SELECT FROM scores.predictions")).toHaveLength(3 * fixture.rows);
  });
});

postgres.describe("in an empty database, no more is needed and no less is enough", () => {
  test.each([
    ["append", [creating]],
    ["upsert", [creating, temporary]],
    ["replace", [creating]],
  ] as const)("%s", async (mode, grants: Grants) => {
    await using folder = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    await makeScorer(database);
    const spec = await writePgSpec(
      folder.path,
      fixture,
      { url: asScorer(database) },
      { output: { postgres: { mode, key: mode === "append" ? [] : ["id"] } } },
    );
    for (const [missing, said, role = "scorer"] of grants) {
      await giveAll(database, grants);
      await database.query(`REVOKE ${missing.replace("@", database.name)} FROM ${role}`);
      await expect(scoreHere(spec), `without ${missing}`).rejects.toMatchObject({
        exitCode: 64,
        message: expect.stringContaining(said),
      });
    }
    await giveAll(database, grants);
    await scoreHere(spec);
    expect(await tableFaults(database, fixture)).toEqual([]);
  });
});
