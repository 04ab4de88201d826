import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Sink, StoredPlan } from "#src/targets/target.js";
import { modes, plainTable, runOf } from "../../support/pg-amid.js";
import { leftTables } from "../../support/pg-crash.js";
import type { Database } from "../../support/pg-database.js";
import { holdStaged, stagedSink } from "../../support/pg-staged.js";
import type { BegunRun } from "../../support/sink-drive.js";
import { decisionOf, stagedPlan } from "../../support/staged-plans.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, carryOut, commitSpans, planFor } from "../../support/sinks.js";
import { decisionDocument } from "#src/stores/ledger.js";
import { firstOf } from "../../support/torture.js";

const postgres = usePostgres();
const [, upsert, renaming, byRows] = modes;

/** A run whose spans are all committed and which is not published yet. `isStaged`: which its verdict holds. */
async function scored(sink: Sink, isStaged: boolean): Promise<{ stored: StoredPlan; run: BegunRun }> {
  if (isStaged) {
    return await holdStaged(sink, stagedPlan(sink.planTarget, { runId: runOf(25) }));
  }
  const one = await begun(sink, planFor(sink.planTarget, { runId: runOf(25) }));
  await commitSpans(one.run, one.stored);
  return one;
}

async function publish({ run }: { readonly run: BegunRun }, isStaged: boolean): Promise<void> {
  await (isStaged ? run.create(decisionDocument, decisionOf("approved")) : undefined);
  await run.finish();
}

async function viewOf(database: Database, which: string): Promise<string> {
  const [found] = await database.query(
    "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE tablename LIKE $1",
    [which],
  );
  await database.query(`CREATE VIEW scores.seen AS SELECT id FROM ${String(found?.["name"])}`);
  return String(found?.["name"]);
}

const rows = async (database: Database): Promise<unknown> =>
  (await database.query("SELECT count(*)::int AS n FROM scores.predictions"))[0]?.["n"];

const kept = [
  ["the staging table of staged replace by rows", byRows[1], "%staging%", true],
  ["the keys of upsert", upsert[1], "keys%", false],
  ["the staging table of replace by rows", byRows[1], "%staging%", false],
  ["the keys of staged upsert", upsert[1], "keys%", true],
] as const;

postgres.describe("a view of a table that a run has for itself", () => {
  test.each(firstOf(kept, 2))(
    "a run is published although a view needs %s, and a later run drops it",
    async (_, spec, which, is) => {
      await using database = await postgres.server().createDatabase();
      await database.query(plainTable);
      const warned: string[] = [];
      await using sink = stagedSink(database, spec, { warn: (message) => warned.push(message) });
      const one = await scored(sink, is);
      const name = await viewOf(database, which);
      await publish(one, is);
      expect(await rows(database)).toBe(25);
      expect(warned).toEqual([
        expect.stringMatching(
          /table \S+ is no longer needed, and could not be dropped: cannot drop .*view scores\.seen/,
        ),
      ]);
      expect((await leftTables(database)).map((left) => name.includes(left))).toEqual([true]);
      expect((await sink.open(one.stored)).state.kind).toBe("published");

      await carryOut(sink, planFor(sink.planTarget, { rows: 40, runId: runOf(40) }));
      expect([await rows(database), warned.length]).toEqual([40, 2]);
      await database.query("DROP VIEW scores.seen");
      await carryOut(sink, planFor(sink.planTarget, { rows: 55, runId: runOf(55) }));
      expect([await rows(database), warned.length, await leftTables(database)]).toEqual([55, 2, []]);
    },
  );

  const refusal = {
    code: "OUTPUT_MISMATCH",
    exitCode: 64,
    message: expect.stringMatching(/staging\S+: it cannot be swapped by renaming.*: view scores\.seen$/) as string,
    hint: expect.stringMatching(/^drop them, and run the same command again/) as string,
  };

  test.each([
    ["a target", plainTable],
    ["no target yet", "CREATE SCHEMA scores"],
  ])("a held run is not approved while a view would follow its staging table into the target: %s", async (_, sql) => {
    await using database = await postgres.server().createDatabase();
    await database.query(sql);
    await using sink = stagedSink(database, renaming[1]);
    const held = await scored(sink, true);
    await viewOf(database, "%staging%");
    await expect(publish(held, true)).rejects.toMatchObject(refusal);
    expect((await sink.open(held.stored)).state.kind).toBe("held");
    await database.query("DROP VIEW scores.seen");
    await publish(held, true);
    expect(await rows(database)).toBe(25);
  });

  test.each([
    ["staged replace", true],
    ["replace", false],
  ])("a view that comes before the swap ends the run before it, until it is dropped: %s", async (_, isStaged) => {
    await using database = await postgres.server().createDatabase();
    await database.query(`${plainTable}; INSERT INTO scores.predictions VALUES (-1, 0)`);
    await using sink = stagedSink(database, renaming[1]);
    const { run } = await scored(sink, isStaged);
    await (isStaged ? run.create(decisionDocument, decisionOf("approved")) : undefined);
    await viewOf(database, "%staging%");
    await expect(run.finish()).rejects.toMatchObject(refusal);
    expect(await rows(database)).toBe(1);
    await database.query("DROP VIEW scores.seen");
    await run.finish();
    expect([await rows(database), await leftTables(database)]).toEqual([25, []]);
  });
});

postgres.describe("a session that reads a staging table which is to be renamed", () => {
  test("a session that reads the staging table blocks the swap, and not the readers of the target", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(`${plainTable}; INSERT INTO scores.predictions VALUES (-1, 0)`);
    await using sink = stagedSink(database, { ...renaming[1], timeouts: { connect: 10, statement: 60, lock: 5 } });
    const { run } = await scored(sink, false);
    const [staging] = await leftTables(database);
    await using other = await postgres.server().open(database.name);
    await other.query(`BEGIN; SELECT FROM scores."${String(staging)}"`);
    const finishing = run.finish();
    await sleep(500); // the swap has begun, and waits
    await database.query("SET statement_timeout = 400");
    expect(await rows(database)).toBe(1);
    await database.query("RESET statement_timeout");
    await other.query("COMMIT");
    await finishing;
    expect(await rows(database)).toBe(25);
  });
});

postgres.describe("a held run whose staging table has lost rows", () => {
  test.each(firstOf(modes, 2))(
    "a held run whose staging table lost rows is not approved, and can be discarded: %s",
    async (_, spec) => {
      await using database = await postgres.server().createDatabase();
      await using sink = stagedSink(database, spec);
      const held = await scored(sink, true);
      const name = await viewOf(database, "%staging%");
      await database.query(`DROP VIEW scores.seen; DELETE FROM ${name} WHERE id = 3`);
      await expect(held.run.create(decisionDocument, decisionOf("approved"))).rejects.toMatchObject({
        code: "OUTPUT_DAMAGED",
        exitCode: 66,
        message: expect.stringMatching(/^approving run \S+: \S+ holds 24 rows, its spans gave 25$/) as string,
        hint: expect.stringContaining("or discard the run, or start over with --new-run") as string,
      });
      expect(await database.query("SELECT kind FROM infer_batch.decisions")).toEqual([]);
      expect((await sink.open(held.stored)).state.kind).toBe("held");
      expect(await held.run.create(decisionDocument, decisionOf("discarded"))).toEqual(decisionOf("discarded"));
      await held.run.finish();
      expect(await leftTables(database)).toEqual([]);
    },
  );
});
