import { expect, test } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { RunId } from "#src/run/plan/plan.js";
import { spanAt } from "#src/run/plan/spans.js";
import type { StoredPlan } from "#src/targets/target.js";
import type { PostgresSink } from "#src/targets/postgres/sink.js";
import { count, modes, plainTable, runOf, untilWaiting } from "../../support/pg-amid.js";
import type { Database } from "../../support/pg-database.js";
import { usePostgres } from "../../support/postgres.js";
import { alone, type BegunRun } from "../../support/sink-drive.js";
import {
  begun,
  commitSpans,
  idsOf,
  outputOf,
  pgSink,
  type PgSinkOptions,
  planFor,
  whole,
} from "../../support/sinks.js";
import { decisionOf, stagedPlan } from "../../support/staged-plans.js";
import { decisionDocument } from "#src/stores/ledger.js";
import { firstOf } from "../../support/torture.js";

const postgres = usePostgres();

const [append, upsert] = modes;
const swaps = ["rename", "delete_insert"] as const;
type Swap = (typeof swaps)[number];
const cases = [append, upsert].flatMap(([mode, spec]) => swaps.map((swap) => ({ mode, spec, swap })));

const runId = runOf(40) as RunId;
const lost = { code: "OUTPUT_DAMAGED", exitCode: 66 };

/** Replaces the whole table, as another job does. The new rows have keys of their own. */
async function replaceTable(database: Database, swap: Swap, rows = 15): Promise<void> {
  await using sink = pgSink({ url: database.url, postgres: { mode: "replace", key: ["id"], swap } });
  const plan = { ...planFor(sink.planTarget, { rows, commitRows: rows, runId: "other-000000000000" }), job: "other" };
  const { run } = await begun(sink, plan);
  const span = spanAt(plan, 0);
  await run.commit(span, whole(outputOf(idsOf(span).map((id) => -1 - id))));
  await run.finish();
}

async function rollBack(database: Database, swap: Swap): Promise<void> {
  await using sink = pgSink({ url: database.url, postgres: { mode: "replace", key: ["id"], swap } });
  await sink.table.rollBack();
}

async function startedRun(
  database: Database,
  spec: PgSinkOptions["postgres"] & object,
  which: (span: number) => boolean,
): Promise<{ sink: PostgresSink; stored: StoredPlan; run: BegunRun }> {
  const sink = pgSink({ url: database.url, postgres: spec });
  const { stored, run } = await begun(sink, planFor(sink.planTarget, { rows: 40, runId }));
  await commitSpans(run, stored, which);
  return { sink, stored, run };
}

const finishes = (database: Database): Promise<unknown[]> =>
  database.query(`SELECT FROM infer_batch.finishes WHERE run_id = '${runId}'`);

const isFirst = (span: number): boolean => span === 0;

postgres.describe("a run whose rows another run replaces", () => {
  test("a late attempt is told of a new run, not of the rows that are gone", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    const { sink, stored } = await startedRun(database, upsert[1], isFirst);
    await using _ = sink;
    await replaceTable(database, "delete_insert");
    await sink.create({ ...stored.plan, runId: numberedRunId(runId, 2) });
    await expect(sink.open(stored)).rejects.toMatchObject({ code: "PLAN_CHANGED" });
  });

  test.each(cases)("a run is not resumed: $mode, swap $swap", async ({ spec, swap }) => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    const { sink, stored, run } = await startedRun(database, spec, isFirst);
    await using _ = sink;
    const late = await sink.open(stored);
    await replaceTable(database, swap);

    await expect(sink.open(stored)).rejects.toMatchObject({ ...lost, damage: { runId } });
    await expect(late.begin(alone)).rejects.toMatchObject(lost);
    await expect(commitSpans(run, stored)).rejects.toMatchObject(lost);
    await expect(run.finish()).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
    expect(await count(database)).toBe(15);
    expect(await finishes(database)).toEqual([]);
  });

  test.each(firstOf(cases, 2))(
    "a run whose spans are all committed is not finished: $mode, swap $swap",
    async ({ spec, swap }) => {
      await using database = await postgres.server().createDatabase();
      await database.query(plainTable);
      const { sink, run } = await startedRun(database, spec, () => true);
      await using _ = sink;
      await replaceTable(database, swap, 50); // as many rows as a count of the table would miss

      await expect(run.finish()).rejects.toMatchObject({
        ...lost,
        message: expect.stringContaining("scores.predictions"),
      });
      expect(await finishes(database)).toEqual([]);
    },
  );

  test.each(firstOf(cases.toReversed(), 2))(
    "a run whose rows are put back is completed, as the hint says: $mode, swap $swap",
    async ({ spec, swap }) => {
      await using database = await postgres.server().createDatabase();
      await database.query(plainTable);
      const { sink, stored } = await startedRun(database, spec, isFirst);
      await using _ = sink;
      await replaceTable(database, swap, 5);
      const [kept] = await database.query("SELECT kept FROM infer_batch.swaps");
      await database.query(
        `DELETE FROM scores.predictions; INSERT INTO scores.predictions SELECT * FROM scores."${String(kept?.["kept"])}"`,
      );
      const { hint = "" } = (await sink.open(stored).catch((error: unknown) => error)) as { hint?: string };

      await database.query(/UPDATE .*/.exec(hint)?.[0] ?? "");
      const { run } = await begun(sink, stored.plan);
      await commitSpans(run, stored);
      await run.finish();
      expect(await count(database)).toBe(40);
    },
  );

  test.each(firstOf(cases, 2))(
    "a run continues if the replacement is rolled back: $mode, swap $swap",
    async ({ spec, swap }) => {
      await using database = await postgres.server().createDatabase();
      await database.query(plainTable);
      const { sink, stored, run } = await startedRun(database, spec, isFirst);
      await using _ = sink;
      await replaceTable(database, swap);
      await rollBack(database, swap);
      await sink.open(stored);
      await commitSpans(run, stored);
      await run.finish();
      expect(await count(database)).toBe(40);
    },
  );

  test.each(firstOf(cases, 2))(
    "a run that had no rows in the table is not concerned: $mode, swap $swap",
    async ({ spec, swap }) => {
      await using database = await postgres.server().createDatabase();
      await database.query(plainTable);
      const { sink, stored } = await startedRun(database, spec, () => false);
      await using _ = sink;
      await replaceTable(database, swap, 5);
      const { run } = await begun(sink, stored.plan);
      await commitSpans(run, stored);
      await run.finish();
      expect(await count(database)).toBe(45);
    },
  );

  test.each([append, upsert])("a staged run publishes into the swapped table: %s", async (_mode, spec) => {
    await using database = await postgres.server().createDatabase();
    await database.query("CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 UNIQUE, score real)");
    await using sink = pgSink({ url: database.url, postgres: spec });
    const { stored, run } = await begun(sink, stagedPlan(sink.planTarget, { rows: 40, runId }));
    await commitSpans(run, stored, isFirst);
    await replaceTable(database, "delete_insert", 5);
    await commitSpans(run, stored);
    await run.create(decisionDocument, decisionOf("approved"));
    await run.finish();
    expect(await count(database)).toBe(45);
  });
});

postgres.describe("a run and a swap at the same time", () => {
  test.each(["span first", "swap first"])("a span and a swap come one after the other: %s", async (order) => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    const { sink, stored, run } = await startedRun(database, append[1], isFirst);
    await using _ = sink;
    await using holder = await postgres.server().open(database.name);
    await holder.query("BEGIN; LOCK TABLE scores.predictions IN SHARE MODE");
    const works = [() => commitSpans(run, stored, (span) => span === 1), () => replaceTable(database, "delete_insert")];
    const [first, second] = order === "span first" ? works : works.toReversed();
    const one = Promise.allSettled([first?.()]);
    await untilWaiting(database);
    const two = Promise.allSettled([second?.()]);
    await untilWaiting(database, { sessions: 2 });
    await holder.query("COMMIT");

    const [[a], [b]] = await Promise.all([one, two]);
    const [span, swapped] = order === "span first" ? [a, b] : [b, a];
    expect([span?.status, swapped?.status]).toEqual([order === "span first" ? "fulfilled" : "rejected", "fulfilled"]);
    expect(await count(database)).toBe(15);
    await expect(run.finish()).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
    await expect(sink.open(stored)).rejects.toMatchObject(lost);
  });

  test("a finish waits for a swap in progress", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    const { sink, run } = await startedRun(database, append[1], () => true);
    await using _ = sink;
    await using holder = await postgres.server().open(database.name);
    await holder.query("BEGIN; LOCK TABLE scores.predictions IN SHARE MODE");
    const swapping = replaceTable(database, "delete_insert");
    await untilWaiting(database);
    const finishing = expect(run.finish()).rejects.toMatchObject(lost);
    await Promise.race([untilWaiting(database, { sessions: 2 }), finishing.catch(() => undefined)]);
    await holder.query("COMMIT");
    await swapping;
    await finishing;
    expect(await finishes(database)).toEqual([]);
  });

  test("a clock that is set back between a span and a swap hides nothing", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    const { sink, stored } = await startedRun(database, append[1], isFirst);
    await using _ = sink;
    await database.query("UPDATE infer_batch.spans SET committed_at = now() + interval '1 hour'");
    await replaceTable(database, "delete_insert");
    await expect(sink.open(stored)).rejects.toMatchObject(lost);
  });

  test("a clock that is set back after a swap makes no run that began later look like one from before", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    await replaceTable(database, "delete_insert", 5);
    await database.query("UPDATE infer_batch.swaps SET at = now() + interval '1 hour'");
    const { sink, stored, run } = await startedRun(database, append[1], isFirst);
    await using _ = sink;
    await sink.open(stored);
    await commitSpans(run, stored);
    await run.finish();
    expect(await count(database)).toBe(45);
  });
});
