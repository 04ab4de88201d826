import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import type { ErasedTable, TableErasure } from "#src/run/lifecycle/erasure.js";
import type { PostgresSink } from "#src/targets/postgres/sink.js";
import { count, untilWaiting } from "../../support/pg-amid.js";
import type { Database } from "../../support/pg-database.js";
import { usePostgres } from "../../support/postgres.js";
import { pruneAt } from "../../support/prune-contract.js";
import { begun, carryOut, commitSpans, pgSink, type PgSinkOptions, planFor } from "../../support/sinks.js";
import { decisionOf, stagedPlan } from "../../support/staged-plans.js";
import { decisionDocument } from "#src/stores/ledger.js";
import { firstOf } from "../../support/torture.js";

const postgres = usePostgres();

const tableWithoutKey = "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8, score real)";

type Spec = PgSinkOptions["postgres"] & object;
const swaps = ["rename", "delete_insert"] as const;

const sinkOf = (database: Database, spec: Spec): PostgresSink => pgSink({ url: database.url, postgres: spec });

async function replaceBy(database: Database, runId: string, rows: number, spec: Spec = {}): Promise<void> {
  await using sink = sinkOf(database, { mode: "replace", ...spec });
  await carryOut(sink, planFor(sink.planTarget, { rows, runId }));
}

async function rollBack(database: Database, spec: Spec = {}): Promise<unknown> {
  await using sink = sinkOf(database, { mode: "replace", ...spec });
  return await sink.table.rollBack();
}

const [first, second] = ["job-000000000001", "job-000000000002"] as const;
const later: string = "late-000000000003";

async function append(database: Database, { runId = later, finish = true, rows = 25 } = {}): Promise<void> {
  await using sink = sinkOf(database, { mode: "append" });
  const { stored, run } = await begun(sink, { ...planFor(sink.planTarget, { rows, runId }), job: "late" });
  await commitSpans(run, stored, (span) => finish || span === 0);
  await (finish ? run.finish() : undefined);
}

async function approve(database: Database): Promise<void> {
  await using sink = sinkOf(database, { mode: "append" });
  const { stored, run } = await begun(sink, stagedPlan(sink.planTarget, { runId: later }));
  await commitSpans(run, stored);
  await run.create(decisionDocument, decisionOf("approved"));
  await run.finish();
}

const night = (sink: PostgresSink, runId: string): Plan => ({ ...planFor(sink.planTarget, { runId }), job: "job" });

const erasedRows = (tables: readonly ErasedTable[] | undefined): unknown[] =>
  (tables ?? []).filter(({ rows }) => rows > 0).map(({ name, rows }) => [name.replace(/_\w{12}$/, ""), rows]);

const swapped = (database: Database): Promise<unknown[]> =>
  database.query(`SELECT (SELECT count(*)::int FROM infer_batch.swaps) AS swaps,
    (SELECT array_agg(relname::text ORDER BY 1) FROM pg_class WHERE relnamespace = 'scores'::regnamespace) AS tables`);

postgres.describe("a rollback of a table with rows of later runs", () => {
  const laterRuns: [string, number, string, (database: Database) => Promise<void>][] = [
    ["a published run", 25, "run late-000000000003 has", (database) => append(database)],
    ["an approved run", 25, "run late-000000000003 has", approve],
    [
      "an unfinished run",
      10,
      "run late-000000000003 (not finished) has",
      (database) => append(database, { finish: false }),
    ],
    [
      "a published run whose records are pruned",
      25,
      "run late-000000000003 has",
      async (database) => {
        await append(database);
        await using sink = sinkOf(database, { mode: "append" });
        const plan = { ...planFor(sink.planTarget, { runId: later }), job: "late" };
        expect(await pruneAt(sink, plan)).toMatchObject({ kind: "removed" });
      },
    ],
  ];

  test.each(
    laterRuns.flatMap(([what, rows, named, put]) => firstOf(swaps).map((swap) => ({ what, rows, named, put, swap }))),
  )("a rollback does not take out the rows of $what: swap $swap", async ({ put, rows, named, swap }) => {
    await using database = await postgres.server().createDatabase();
    await database.query(tableWithoutKey);
    await replaceBy(database, first, 5, { swap });
    await replaceBy(database, second, 15, { swap });
    await put(database);
    const before = await swapped(database);

    await expect(rollBack(database, { swap })).rejects.toMatchObject({
      code: "OUTPUT_NEWER",
      exitCode: 66,
      message: `rolling back scores.predictions: ${named} put rows into it since run ${second} replaced it, and a rollback would take them out`,
      hint: expect.stringMatching(
        /the rows from before run job-000000000002 are in scores\.predictions__before_\w+: copy/,
      ) as string,
    });
    expect(await count(database)).toBe(15 + rows);
    expect(await swapped(database)).toEqual(before);
  });

  test("a held run does not block a rollback until it is approved: then its rows are in the table", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(tableWithoutKey);
    await replaceBy(database, first, 5);
    await using sink = sinkOf(database, { mode: "append" });
    const [early, late] = ["late-000000000003", "late-000000000004"].map((runId) =>
      stagedPlan(sink.planTarget, { runId }),
    );
    const held = await begun(sink, early as Plan);
    await commitSpans(held.run, held.stored);
    await replaceBy(database, second, 15);
    const other = await begun(sink, late as Plan);
    await commitSpans(other.run, other.stored);
    await rollBack(database);
    expect(await count(database)).toBe(5);

    await replaceBy(database, `${second}-r2`, 16);
    await held.run.create(decisionDocument, decisionOf("approved"));
    await held.run.finish();
    await expect(rollBack(database)).rejects.toThrow(": run late-000000000003 has put rows into it since");
    expect(await count(database)).toBe(41);
  });

  test("a rollback names five of the runs whose rows it would take out", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(tableWithoutKey);
    await replaceBy(database, first, 5);
    await replaceBy(database, second, 15);
    for (const n of [1, 2, 3, 4, 5, 6, 7]) {
      await append(database, { runId: `late-00000000000${n}`, rows: 1 });
    }
    await expect(rollBack(database)).rejects.toThrow(
      /: runs late-000000000001, (late-\d+, ){3}late-000000000005 and 2 more have put rows/,
    );
  });

  test.each(firstOf(swaps))(
    "a rollback gives back the rows that were appended before the replacement: %s",
    async (swap) => {
      await using database = await postgres.server().createDatabase();
      await database.query(tableWithoutKey);
      await replaceBy(database, first, 5, { swap });
      await append(database);
      await replaceBy(database, `${first}-r2`, 15, { swap });
      await rollBack(database, { swap });
      expect(await count(database)).toBe(30);
      await append(database, { runId: "late-000000000004" });
      await expect(rollBack(database, { swap })).rejects.toThrow("it is not kept any more");
      await replaceBy(database, `${first}-r3`, 16, { swap });
      await rollBack(database, { swap });
      expect(await count(database)).toBe(55);
    },
  );

  test.each(firstOf(swaps.toReversed()))("rollbacks go back as far as tables are kept: %s", async (swap) => {
    await using database = await postgres.server().createDatabase();
    await database.query(tableWithoutKey);
    const spec = { swap, keep_previous: 7 };
    await append(database, { rows: 3, finish: false });
    for (const [index, rows] of [5, 15, 25].entries()) {
      await replaceBy(database, `job-00000000000${index}`, rows, spec);
    }
    await rollBack(database, spec);
    expect(await rollBack(database, spec)).toMatchObject({
      undone: { runId: "job-000000000001" },
      restored: { runId: "job-000000000000" },
    });
    expect(await count(database)).toBe(5);
    await replaceBy(database, "job-000000000009", 9, spec);
    await rollBack(database, spec);
    await rollBack(database, spec);
    expect(await count(database)).toBe(3);
    await expect(rollBack(database, spec)).rejects.toMatchObject({
      code: "USAGE",
      hint: undefined,
      message: expect.stringContaining("all of its replacements were rolled back already") as string,
    });
    await append(database, { rows: 3 }); // its first rows are there again, so it goes on
    expect(await count(database)).toBe(3);
  });

  test("a second rollback does not take out rows that were put between the two replacements", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(tableWithoutKey);
    await replaceBy(database, first, 5, { keep_previous: 7 });
    await append(database);
    await replaceBy(database, second, 15, { keep_previous: 7 });
    await rollBack(database);
    await expect(rollBack(database)).rejects.toMatchObject({ code: "OUTPUT_NEWER" });
    expect(await count(database)).toBe(30);
  });

  test("runs without rows, abandoned runs and runs for other tables do not block a rollback", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(tableWithoutKey);
    await replaceBy(database, first, 5);
    await replaceBy(database, second, 15);
    await append(database, { rows: 0 });
    await append(database, { runId: "late-000000000004", finish: false });
    await using sink = sinkOf(database, { mode: "append" });
    await sink.create({ ...planFor(sink.planTarget, { runId: "late-000000000004-r2" }), job: "late" });
    await using elsewhere = sinkOf(database, { mode: "append", table: "scores.others" });
    await carryOut(elsewhere, planFor(elsewhere.planTarget, { runId: "else-000000000005" }));
    await rollBack(database);
    expect(await count(database)).toBe(5);
  });
});

postgres.describe("a rollback at the same time as another command", () => {
  test("a rollback does not give readers the rows of a pruned run, whose table could not be dropped", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database, { mode: "replace" });
    await carryOut(sink, night(sink, first));
    await carryOut(sink, night(sink, second));
    expect(await pruneAt(sink, night(sink, first))).toMatchObject({ kind: "removed" });
    await expect(sink.table.rollBack()).rejects.toMatchObject({
      code: "ALREADY_DECIDED",
      exitCode: 66,
      message: expect.stringMatching(
        /scores\.predictions__before_\w+ has the rows of run job-000000000001, which is pruned$/,
      ) as string,
    });
    const [previous] = await sink.table.prunePrevious((all) => all, true);
    expect([previous?.runId, await count(database)]).toEqual([first, 25]);
  });

  test("a rollback waits for a command that prunes the run whose rows it would give back", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database, { mode: "replace" });
    await carryOut(sink, night(sink, first));
    await carryOut(sink, night(sink, second));
    await using holder = await postgres.server().open(database.name);
    await holder.query("BEGIN");
    await holder.query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", [`infer-batch runs ${first}`]);
    await holder.query(`INSERT INTO infer_batch.runs (run_id, base, number, plan_id, job, target, mode, rows_planned, spans_planned, plan, params, staged)
      VALUES ('${first}-r2', '${first}', 2, 'x', 'job', 'scores.predictions', 'replace', 0, 0, '{"format":"infer-batch-pruned"}', '{}', false)`);
    const refused = expect(sink.table.rollBack()).rejects.toMatchObject({ code: "ALREADY_DECIDED" });
    await Promise.race([untilWaiting(database), refused]);
    await holder.query("COMMIT");
    await refused;
  });

  test.each(firstOf(swaps))("two rollbacks at the same time undo one run, and both say which: %s", async (swap) => {
    await using database = await postgres.server().createDatabase();
    const spec = { swap, keep_previous: 7 };
    await replaceBy(database, first, 5, spec);
    await replaceBy(database, second, 15, spec);
    await replaceBy(database, "job-000000000003", 16, spec);
    await using holder = await postgres.server().open(database.name);
    await holder.query("BEGIN; LOCK TABLE scores.predictions IN SHARE MODE");
    const both = Promise.all([rollBack(database, spec), rollBack(database, spec)]);
    await untilWaiting(database, { sessions: 2, work: both });
    await holder.query("COMMIT");
    const done = { undone: { runId: "job-000000000003" }, restored: { runId: second } };
    expect(await both).toMatchObject([done, done]);
    expect(await count(database)).toBe(15);
  });

  const erasure: TableErasure = {
    keys: { columns: ["id"], keys: [["3"]], placeOf: () => "line 1" },
    dryRun: false,
    by: "ana",
    found: new Set(),
    job: "job",
    command: () => "",
  };

  test.each(firstOf(swaps.toReversed()))(
    "an erasure waits for a rollback, and erases from the tables that it leaves: %s",
    async (swap) => {
      await using database = await postgres.server().createDatabase();
      await replaceBy(database, first, 5, { swap });
      await replaceBy(database, second, 15, { swap });
      await using holder = await postgres.server().open(database.name);
      const [swapRow] = await database.query("SELECT kept FROM infer_batch.swaps WHERE kept IS NOT NULL");
      await holder.query(`BEGIN; SELECT FROM scores."${String(swapRow?.["kept"])}"`);
      const rolling = rollBack(database, { swap });
      await untilWaiting(database);
      await using sink = sinkOf(database, { mode: "replace", swap });
      const erasing = sink.table.erase(erasure);
      await sleep(200);
      await holder.query("COMMIT");
      await rolling;
      expect(erasedRows(await erasing)).toEqual([
        ["scores.predictions", 1],
        ["scores.predictions__undone", 1],
      ]);
    },
  );

  test("an erasure passes over a kept table that is dropped meanwhile", async () => {
    await using database = await postgres.server().createDatabase();
    await replaceBy(database, first, 5);
    await replaceBy(database, second, 15);
    await using holder = await postgres.server().open(database.name);
    const [swapRow] = await database.query("SELECT kept FROM infer_batch.swaps WHERE kept IS NOT NULL");
    await holder.query("BEGIN; LOCK TABLE scores.predictions IN SHARE MODE");
    await using sink = sinkOf(database, { mode: "replace" });
    const erasing = sink.table.erase(erasure);
    await untilWaiting(database);
    await database.query(`DROP TABLE scores."${String(swapRow?.["kept"])}"`);
    await holder.query("COMMIT");
    expect(erasedRows(await erasing)).toEqual([["scores.predictions", 1]]);
  });
});
