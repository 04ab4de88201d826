import { expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import type { Sink } from "#src/targets/target.js";
import { spanAt } from "#src/run/plan/spans.js";
import { modes } from "../../support/pg-amid.js";
import { leftTables } from "../../support/pg-crash.js";
import type { Database } from "../../support/pg-database.js";
import { changeAt, holdStaged, type Moment, moments, publishStaged, stagedSink } from "../../support/pg-staged.js";
import { decisionOf, stagedPlan } from "../../support/staged-plans.js";
import { usePostgres } from "../../support/postgres.js";
import { alone, beginRun } from "../../support/sink-drive.js";
import { begun, outputOf, type PgSinkOptions, whole } from "../../support/sinks.js";
import { decisionDocument } from "#src/stores/ledger.js";
import { firstOf } from "../../support/torture.js";

const postgres = usePostgres();
const [append, upsert] = modes;
const inserting = [append, upsert];

const night = (sink: Sink, day: number, region = "EU"): Plan =>
  stagedPlan(sink.planTarget, {
    runId: `job-${region.length}0000000000${day}`,
    params: { ds: `2026-11-0${day}`, region },
  });

async function rowsIn(database: Database): Promise<string[]> {
  const rows = await database.query("SELECT id, score FROM scores.predictions ORDER BY 1, 2");
  return rows.map((row) => Object.values(row).join(" "));
}

async function publishIds(sink: Sink, spans: readonly (readonly number[])[]): Promise<void> {
  const rows = spans.reduce((sum, ids) => sum + ids.length, 0);
  const { stored, run } = await begun(sink, stagedPlan(sink.planTarget, { rows, commitRows: spans[0]?.length ?? 1 }));
  // The last span first: the order of commits does not matter.
  for (const [index, ids] of [...spans.entries()].toReversed()) {
    await run.commit(spanAt(stored.plan, index), whole({ ...outputOf(ids, (id) => id + index / 4) }));
  }
  await run.create(decisionDocument, decisionOf("approved"));
  await run.finish();
}

postgres.describe("keys of a staged run in upsert", () => {
  const table = `CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real);
    INSERT INTO scores.predictions VALUES (-1, -1), (2, -1)`;

  test("rows of a staged run update those with their keys and add the others", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(table);
    await using sink = stagedSink(database, upsert[1]);
    await publishIds(sink, [
      [1, 2],
      [3, 4],
    ]);
    expect(await rowsIn(database)).toEqual(["-1 -1", "1 1", "2 2", "3 3.25", "4 4.25"]);
    expect(await leftTables(database)).toEqual([]);
  });

  test.each([
    [
      "twice in a span",
      [
        [1, 1],
        [3, 4],
      ],
      /id = "?1"? comes twice in span 0/,
    ],
    [
      "in two spans",
      [
        [1, 2],
        [2, 4],
      ],
      /id = "?2"? comes in span 1 and in span 0/,
    ],
  ] as const)("a key that comes %s ends a staged run with 65, and nothing is published", async (_, spans, says) => {
    await using database = await postgres.server().createDatabase();
    await database.query(table);
    await using sink = stagedSink(database, upsert[1]);
    await expect(publishIds(sink, spans)).rejects.toMatchObject({
      code: "DUPLICATE_KEY",
      message: expect.stringMatching(says) as string,
    });
    expect(await rowsIn(database)).toEqual(["-1 -1", "2 -1"]);
  });

  test("with on_duplicate: last, the last row of a key is published", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(table);
    await using sink = stagedSink(database, { ...upsert[1], on_duplicate: "last" });
    await publishIds(sink, [
      [1, 2],
      [2, 4],
    ]);
    expect(await rowsIn(database)).toEqual(["-1 -1", "1 1", "2 2.25", "4 4.25"]);
  });

  test("a key that another row of the table has ends a staged append with 65 until that row is gone", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(table);
    await using sink = stagedSink(database, append[1]);
    const { run, stored } = await holdStaged(sink, stagedPlan(sink.planTarget));
    await run.create(decisionDocument, decisionOf("approved"));
    await expect(run.finish()).rejects.toMatchObject({ code: "DUPLICATE_KEY", exitCode: 65 });
    expect((await sink.open(stored)).state.kind).toBe("approved");
    expect(await rowsIn(database)).toEqual(["-1 -1", "2 -1"]);
    await database.query("DELETE FROM scores.predictions WHERE id = 2");
    await run.finish();
    expect(await rowsIn(database)).toHaveLength(26);
  });
});

postgres.describe("the order of staged runs", () => {
  const overwriting = modes.filter(([mode]) => mode !== "append");

  test.each(firstOf(overwriting))(
    "a run is not approved after one of a later date is published: %s",
    async (_mode, spec) => {
      await using database = await postgres.server().createDatabase();
      await using sink = stagedSink(database, spec);
      const { run, stored } = await holdStaged(sink, night(sink, 1));
      await publishStaged(sink, night(sink, 2));
      await expect(run.create(decisionDocument, decisionOf("approved"))).rejects.toMatchObject({
        code: "OUTPUT_NEWER",
        exitCode: 66,
      });
      expect((await sink.open(stored)).state.kind).toBe("held");
      expect(await run.create(decisionDocument, decisionOf("discarded"))).toEqual(decisionOf("discarded"));
    },
  );

  test.each(firstOf(overwriting.toReversed()))(
    "an approved run is refused after one of a later date is published: %s",
    async (_mode, spec) => {
      await using database = await postgres.server().createDatabase();
      await using sink = stagedSink(database, spec);
      const first = await holdStaged(sink, night(sink, 1), () => 1);
      await first.run.create(decisionDocument, decisionOf("approved"));
      await publishStaged(sink, night(sink, 2), () => 2);
      const newer = {
        code: "OUTPUT_NEWER",
        exitCode: 66,
        message: `writing to scores.predictions: run ${night(sink, 2).runId} is for a later date than ${night(sink, 1).runId}, and has published to this table`,
      };
      await expect(first.run.finish()).rejects.toMatchObject(newer);
      await expect((await sink.open(first.stored)).begin(alone)).rejects.toMatchObject(newer);
      expect((await rowsIn(database)).every((row) => row.endsWith(" 2"))).toBe(true);

      await using allowed = stagedSink(database, spec, { allowOlder: true });
      await (await beginRun(allowed, first.stored)).finish();
      expect((await rowsIn(database)).every((row) => row.endsWith(" 1"))).toBe(true);
    },
  );

  test.each(firstOf(overwriting))(
    "a backfill that is planned later is refused, and does not stop a later date: %s",
    async (_, spec) => {
      await using database = await postgres.server().createDatabase();
      await using sink = stagedSink(database, spec);
      const today = await holdStaged(sink, night(sink, 3), () => 3);
      await publishStaged(sink, night(sink, 2), () => 2);
      await today.run.create(decisionDocument, decisionOf("approved"));
      await today.run.finish();
      await expect(publishStaged(sink, night(sink, 1), () => 1)).rejects.toMatchObject({ code: "OUTPUT_NEWER" });
      expect((await rowsIn(database)).every((row) => row.endsWith(" 3"))).toBe(true);
    },
  );

  test("a held run of a later date does not stop an earlier one: upsert", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = stagedSink(database, upsert[1]);
    await holdStaged(sink, night(sink, 2));
    await publishStaged(sink, night(sink, 1), () => 1);
    expect(await rowsIn(database)).toHaveLength(25);
  });

  test("a run of another series is published after one of a later date: upsert", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = stagedSink(database, upsert[1]);
    const first = await holdStaged(sink, night(sink, 1), () => 1);
    await publishStaged(sink, night(sink, 2, "USA"), () => 2);
    await first.run.create(decisionDocument, decisionOf("approved"));
    await first.run.finish();
    expect((await rowsIn(database)).every((row) => row.endsWith(" 1"))).toBe(true);
  });
});

postgres.describe("a target that changes while a staged run waits", () => {
  const table = "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real)";

  async function changed(
    database: Database,
    spec: PgSinkOptions["postgres"],
    { sql, moment }: { readonly sql: string; readonly moment: Moment },
  ): Promise<unknown> {
    await database.query(table);
    await using sink = stagedSink(database, spec);
    const held = await holdStaged(sink, stagedPlan(sink.planTarget));
    return await changeAt(moment, held, () => database.query(sql))
      .then(() => held.run.finish())
      .then(
        () => "published",
        (error: unknown) => error,
      );
  }

  test.each(firstOf(inserting))(
    "a run is published where its table was emptied or dropped meanwhile: %s",
    async (_mode, spec) => {
      for (const sql of ["TRUNCATE scores.predictions", "DROP TABLE scores.predictions"]) {
        await using database = await postgres.server().createDatabase();
        expect(await changed(database, spec, { sql, moment: "held" })).toBe("published");
        expect(await rowsIn(database)).toHaveLength(25);
      }
    },
  );

  test.each([
    [
      "a column of another type",
      "ALTER TABLE scores.predictions ALTER score TYPE float8",
      "OUTPUT_MISMATCH",
      /column score was real when the run began, and is double precision/,
    ],
    ["a column that is gone", "ALTER TABLE scores.predictions DROP score", "OUTPUT_MISMATCH", /missing in the table/],
    [
      "a trigger that keeps rows out",
      `CREATE FUNCTION public.out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN NEW.id = 7 THEN NULL ELSE NEW END; END $$;
       CREATE TRIGGER out BEFORE INSERT ON scores.predictions FOR EACH ROW EXECUTE FUNCTION public.out()`,
      "OUTPUT_REFUSED",
      /took 24 of 25 rows|the row with id = "?7"? is not in the table/,
    ],
    [
      "a check that rows violate",
      "ALTER TABLE scores.predictions ADD CHECK (score < 5)",
      "OUTPUT_REFUSED",
      /violates check constraint/,
    ],
  ] as const)("%s refuses a staged run, and nothing is published", async (_, sql, code, message) => {
    for (const [[, spec], moment] of inserting.flatMap((one) => moments.map((when) => [one, when] as const))) {
      await using database = await postgres.server().createDatabase();
      expect(await changed(database, spec, { sql, moment })).toMatchObject({
        code,
        message: expect.stringMatching(message) as string,
      });
      expect(await database.query("SELECT FROM scores.predictions")).toEqual([]);
    }
  });

  test.each(firstOf(inserting))(
    "a staging table that another program changed ends the run with 66, and nothing is published: %s",
    async (_, spec) => {
      const damages = [
        ["DELETE FROM {t} WHERE id = 3", /holds 24 rows, its spans gave 25/],
        ["TRUNCATE {t}", /holds 0 rows, its spans gave 25/],
        ["DROP TABLE {t}", /has rows in it, and it is gone|the staging table is gone/],
      ] as const;
      for (const [[sql, says], moment] of damages.flatMap((one) => moments.map((when) => [one, when] as const))) {
        await using database = await postgres.server().createDatabase();
        await using sink = stagedSink(database, spec);
        const held = await holdStaged(sink, stagedPlan(sink.planTarget));
        const name = (await leftTables(database)).find((one) => one.startsWith("staging"));
        const finish = async (): Promise<void> => {
          await changeAt(moment, held, () => database.query(sql.replace("{t}", `infer_batch.${name}`)));
          await (await beginRun(sink, held.stored)).finish();
        };
        await expect(finish()).rejects.toMatchObject({
          code: "OUTPUT_DAMAGED",
          message: expect.stringMatching(says) as string,
        });
        expect(await rowsIn(database)).toEqual([]);
      }
    },
  );
});

postgres.describe("the staging table of a run", () => {
  test.each(firstOf(inserting.toReversed()))(
    "a staging table takes what the target takes, with types, domains and checks: %s",
    async (_, spec) => {
      await using database = await postgres.server().createDatabase();
      await database.query(`CREATE SCHEMA "Odd ""schema"; CREATE DOMAIN "Odd ""schema".share AS real CHECK (VALUE >= 0);
      CREATE SCHEMA scores; CREATE TABLE scores.predictions (n int GENERATED ALWAYS AS IDENTITY, id numeric(22) NOT NULL UNIQUE,
        score "Odd ""schema".share CHECK (score < 1000), at timestamptz NOT NULL DEFAULT now(), twice real GENERATED ALWAYS AS (score * 2) STORED,
        CHECK (at > '2000-01-01' OR score > 1))`);
      await using sink = stagedSink(database, spec);
      await publishStaged(sink, stagedPlan(sink.planTarget));
      const [row] = await database.query(
        "SELECT count(*)::int AS rows, count(DISTINCT n)::int AS ns, sum(twice - score * 2) AS off, bool_and(at IS NOT NULL) AS filled FROM scores.predictions",
      );
      expect(row).toEqual({ rows: 25, ns: 25, off: 0, filled: true });
    },
  );

  test.each(firstOf(inserting))(
    "a row that violates a check of the target ends a staged run before it is held: %s",
    async (_, spec) => {
      await using database = await postgres.server().createDatabase();
      await database.query(
        "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real CHECK (score < 5))",
      );
      await using sink = stagedSink(database, spec);
      await expect(holdStaged(sink, stagedPlan(sink.planTarget))).rejects.toMatchObject({ code: "OUTPUT_REFUSED" });
    },
  );
});
