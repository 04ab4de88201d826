import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { heldNight, lastJson, nightlyJob, type Nights, nightsInTable } from "../support/nights.js";
import { leftTables } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { statesIn } from "../support/pg-staged.js";
import { usePostgres } from "../support/postgres.js";
import { firstOf } from "../support/torture.js";

const postgres = usePostgres();
const modes = ["append", "upsert", "replace"] as const;

const columnGone = {
  change: "ALTER TABLE scores.predictions RENAME COLUMN score TO other",
  back: "ALTER TABLE scores.predictions RENAME COLUMN other TO score",
};
/** Changes after which the table does not take the rows, each with the statement that takes it back. */
const changes = [
  columnGone,
  {
    change: "ALTER TABLE scores.predictions ALTER COLUMN score TYPE double precision",
    back: "ALTER TABLE scores.predictions ALTER COLUMN score TYPE real",
  },
];
/** Changes that only matter in one mode. */
const ownChanges = {
  append: [],
  upsert: [
    {
      change: "ALTER TABLE scores.predictions DROP CONSTRAINT predictions_pkey",
      back: "ALTER TABLE scores.predictions ADD CONSTRAINT predictions_pkey PRIMARY KEY (id)",
    },
  ],
  replace: [
    {
      change: "CREATE VIEW scores.seen AS SELECT id FROM scores.predictions",
      back: "DROP VIEW scores.seen",
    },
  ],
};

/** Only the publication meets it: the staging table has the checks of the table, and not its triggers. */
const refusingTrigger = `CREATE FUNCTION scores.few() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN IF NEW.id < 50 THEN RAISE EXCEPTION 'id % is taken', NEW.id; END IF; RETURN NEW; END $$;
  CREATE TRIGGER few BEFORE INSERT ON scores.predictions FOR EACH ROW EXECUTE FUNCTION scores.few()`;

/** A job whose first night is published, and whose second one passed its checks, but its table refuses the rows. */
async function refusedNights(folder: string, database: Database): Promise<Nights> {
  const nights = await nightsInTable(folder, database, "append");
  await expectEnd(nights.night("run", "2026-11-20"), 0);
  await database.query(refusingTrigger);
  await expectEnd(nights.night("run", "2026-11-21"), 65);
  return nights;
}

postgres.describe("approving a run into Postgres whose table has changed", () => {
  test.each(firstOf(modes))(
    "a held run whose table has changed stays held, and is approved once the table is altered back: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const nights = await nightsInTable(scratch.path, database, mode);
      const runId = await heldNight(nights);
      for (const { change, back } of [...changes, ...ownChanges[mode]]) {
        await database.query(change);

        const refused = await nights.night("approve", "2026-11-21");
        expect([refused.code, refused.stderr], change).toEqual([
          64,
          expect.stringMatching(/score[^]*it stays held: approve it once the table fits, or discard it\n$/),
        ]);
        expect(await database.query("SELECT kind FROM infer_batch.decisions WHERE run_id = $1", [runId])).toEqual([]);
        expect(lastJson(await nights.night("status", "2026-11-21", "--json"))).toMatchObject({ status: "held" });
        await database.query(back);
      }

      expect((await expectEnd(nights.night("approve", "2026-11-21"), 0)).stdout).toContain(
        `${runId}: published, 50 rows`,
      );
      const again = await nights.night("approve", "2026-11-21");
      expect(again.stdout).toContain(`${runId}: already published, 50 rows`);
    },
  );

  test("a held run whose table has changed can be discarded, and a new run takes its place", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, "replace");
    await heldNight(nights);
    await database.query(columnGone.change);
    await expectEnd(nights.night("approve", "2026-11-21"), 64);
    await expectEnd(nights.night("discard", "2026-11-21"), 0);

    await nights.rewrite({});
    await database.query(columnGone.back);
    await expectEnd(nights.night("run", "2026-11-21", "--new-run", "--json"), 0);
    expect(await statesIn(database)).toEqual(expect.arrayContaining(["discarded", "published"]));
  });

  test("an approved run that the table refuses cannot be discarded, and is published by the next approve once the table takes it", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, "upsert");
    const runId = await heldNight(nights);
    await database.query("ALTER TABLE scores.predictions ADD CONSTRAINT few CHECK (id >= 50) NOT VALID");
    await expectEnd(
      nights.night("approve", "2026-11-21"),
      65,
      /"few"[^]*is approved, which is final, and nothing of it is published: correct the table, then .*--new-run\n$/,
    );
    await expectEnd(
      nights.night("discard", "2026-11-21"),
      66,
      /ds=2026-11-21 publishes it; if the target refuses its rows, run --new-run scores the input/,
    );
    await expectEnd(nights.night("run", "2026-11-21"), 65, "nothing of it is published");

    await database.query("ALTER TABLE scores.predictions DROP CONSTRAINT few");
    expect((await expectEnd(nights.night("approve", "2026-11-21"), 0)).stdout).toContain(
      `${runId}: published, 50 rows`,
    );
    expect(await statesIn(database)).toEqual(["published", "published"]);
  });

  test.each([
    { mode: "append", by: "checks" },
    { mode: "upsert", by: "a person" },
  ] as const)(
    "run --new-run takes the place of an approved run that the table refuses, and publishes each row once: $mode, by $by",
    async ({ mode, by }) => {
      await using database = await postgres.server().createDatabase();
      const nights = await nightsInTable(scratch.path, database, mode);
      const isHeld = by === "a person";
      if (isHeld) {
        await heldNight(nights);
      } else {
        await expectEnd(nights.night("run", "2026-11-20"), 0);
      }
      await database.query(refusingTrigger);
      await expectEnd(nights.night(isHeld ? "approve" : "run", "2026-11-21"), 65, /in its place: .* --new-run\n$/);
      const { run_id: runId } = lastJson(await nights.night("status", "2026-11-21", "--json"));

      await nights.rewrite({ input: { where: "id >= 50" } });
      await expectEnd(
        nights.night("run", "2026-11-21", "--new-run"),
        0,
        `planning a new run in place of ${String(runId)}: `,
      );
      const rows = await database.query(
        "SELECT count(*)::int AS rows, count(DISTINCT id)::int AS ids FROM scores.predictions",
      );
      expect(rows).toEqual([{ rows: mode === "append" ? 442 + 392 : 442, ids: 442 }]);
      expect(await leftTables(database)).toEqual([]);
      expect((await nights.night("history", "2026-11-21")).stdout).toMatch(
        new RegExp(`${String(runId)}-r2 .* published .*\n.*${String(runId)} .* abandoned `),
      );
      await expectEnd(nights.night("approve", "2026-11-21", "--run", String(runId)), 66, `${String(runId)}-r2`);
    },
  );

  test("an approved run is never published into another table that the spec names by now, and a new run takes its place once its table is gone", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await refusedNights(scratch.path, database);
    const { run_id: runId } = lastJson(await nights.night("status", "2026-11-21", "--json"));
    const other = { url: database.url, table: "scores.other", mode: "append", key: [] };
    await nights.rewrite({ output: { parquet: undefined, postgres: other }, input: { where: "id >= 50" } });
    for (const command of ["run", "approve", "discard"]) {
      await expectEnd(nights.night(command, "2026-11-21"), 66, "scores.predictions");
    }
    await expectEnd(nights.night("run", "2026-11-21", "--new-run"), 66, "for scores.predictions is approved");
    await database.query("ALTER TABLE scores.predictions RENAME TO other");
    await expectEnd(
      nights.night("run", "2026-11-21", "--new-run"),
      0,
      new RegExp(`planning a new run in place of ${String(runId)}: output.postgres.table .*scores.predictions`),
    );
    const rows = "SELECT count(*)::int AS rows, count(DISTINCT id)::int AS ids FROM scores.other";
    expect(await database.query(rows)).toEqual([{ rows: 442 + 392, ids: 442 }]);
  });

  test("a view of the staging table of a replaced run costs a warning, and the next run drops the table once the view is gone", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await refusedNights(scratch.path, database);
    const staging = (await leftTables(database)).find((table) => table.startsWith("staging"));
    await database.query(`CREATE VIEW scores.seen AS SELECT * FROM infer_batch.${String(staging)}`);
    await nights.rewrite({ input: { where: "id >= 50" } });
    await expectEnd(
      nights.night("run", "2026-11-21", "--new-run"),
      0,
      /WARN: table infer_batch\.staging_\w+ is no longer needed, and could not be dropped: .*view scores\.seen.*; the next run that is published into scores\.predictions tries again/,
    );
    expect(await statesIn(database)).toEqual(expect.arrayContaining(["abandoned", "published"]));
    expect(await leftTables(database)).toEqual([staging]);

    await writeFile(join(scratch.path, "keys.txt"), "3\n");
    await expectEnd(runHere(["erase", nights.spec, "--keys", join(scratch.path, "keys.txt"), "--key", "id"]), 0);
    expect(await database.query("SELECT id::int FROM scores.seen WHERE id IN (3, 4)")).toEqual([{ id: 4 }]);
    await database.query("DROP VIEW scores.seen");
    await nights.rewrite({ input: { where: "id >= 51" } }); // a repeat of the last night's rows would be held
    await expectEnd(nights.night("run", "2026-11-22"), 0);
    expect(await leftTables(database)).toEqual([]);
  });

  test("erase drops the staging table of a held run that a discarded run superseded, once no view needs it", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, "append");
    await heldNight(nights);
    const staging = (await leftTables(database)).find((table) => table.startsWith("staging"));
    await database.query(`CREATE VIEW scores.seen AS SELECT * FROM infer_batch.${String(staging)}`);
    await nights.rewrite({ input: { where: "id < 60" } });
    await expectEnd(nights.night("run", "2026-11-21", "--new-run"), 67);
    await expectEnd(nights.night("discard", "2026-11-21"), 0);
    expect(await leftTables(database)).toEqual([staging]);
    await database.query("DROP VIEW scores.seen");
    await writeFile(join(scratch.path, "keys.txt"), "3\n");
    await expectEnd(runHere(["erase", nights.spec, "--keys", join(scratch.path, "keys.txt"), "--key", "id"]), 0);
    expect(await leftTables(database)).toEqual([]);
  });

  test("the page of a run that takes the place of a refused one shows nothing of that one", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await refusedNights(scratch.path, database);
    const page = join(scratch.path, "page.html");
    // With lineage events, an attempt reads the profiles of a run that it publishes.
    await nights.rewrite({ report: { html: page, openlineage: { url: "http://127.0.0.1:9" } } });
    await expectEnd(nights.night("run", "2026-11-21"), 65);
    const empty = "This attempt made no predictions.";
    expect(await readFile(page, "utf8")).not.toContain(empty);
    await database.query(`CREATE FUNCTION scores.stop() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'stop'; END $$;
      CREATE TRIGGER stop BEFORE INSERT ON infer_batch.spans FOR EACH ROW EXECUTE FUNCTION scores.stop()`);
    expect((await nights.night("run", "2026-11-21", "--new-run")).code).not.toBe(0);
    const text = await readFile(page, "utf8");
    expect([text.includes("-r2"), text.includes(empty)]).toEqual([true, true]);
  });
});

postgres.describe("a run into Postgres that its table refuses", () => {
  test.each(firstOf([...modes.map((mode) => ({ mode, checks: {} })), { mode: "replace", checks: undefined }] as const))(
    "a run that its table refuses continues once the constraint is dropped, and its errors name commands that work: $mode, $checks",
    async (one) => {
      await using database = await postgres.server().createDatabase();
      const key = one.mode === "append" ? [] : ["id"];
      const table = { url: database.url, table: "scores.predictions", mode: one.mode, key, timeouts: { lock: 1 } };
      const nights = await nightlyJob(scratch.path, {
        checks: one.checks,
        output: { parquet: undefined, postgres: table },
      });
      await database.query(`CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real);
      ALTER TABLE scores.predictions ADD CONSTRAINT most CHECK (id <> 150)`);
      for (const args of [[], ["--new-run"]]) {
        await expectEnd(
          nights.night("run", "2026-11-20", ...args),
          65,
          /violates check constraint[^]*hint: correct the input or the table; committed spans/,
        );
      }
      if (one.checks === undefined) {
        await expectEnd(
          nights.night("discard", "2026-11-20"),
          64,
          /it is not staged, so it is published when it is complete\n {2}hint: infer-batch run .* finishes it; runs that are planned with/,
        );
      }
      await database.query("ALTER TABLE scores.predictions DROP CONSTRAINT most");
      await expectEnd(nights.night("run", "2026-11-20"), 0);
      expect(await database.query("SELECT count(*)::int AS n FROM scores.predictions")).toEqual([{ n: 442 }]);
      await writeFile(join(scratch.path, "keys.txt"), "150\n");
      await expectEnd(runHere(["erase", nights.spec, "--keys", join(scratch.path, "keys.txt"), "--key", "id"]), 0);
      expect(await leftTables(database)).toEqual([]);
    },
  );
});
