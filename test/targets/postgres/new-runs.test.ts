import type { RecordedRun } from "#src/run/lifecycle/recorded-run.js";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { Plan, RunId } from "#src/run/plan/plan.js";
import { spanAt } from "#src/run/plan/spans.js";
import type { Sink } from "#src/targets/target.js";
import type { Database } from "../../support/pg-database.js";
import { stopAt } from "../../support/pg-stop.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, carryOut, commitSpans, idsOf, outputOf, pgSink, planFor, whole } from "../../support/sinks.js";

const postgres = usePostgres();

type Mode = "append" | "upsert" | "replace";

function sinkOf(
  { url }: Pick<Database, "url">,
  mode: Mode = "append",
  {
    lockSeconds = 1,
    ...more
  }: { readonly lockSeconds?: number; readonly retrySeconds?: number; readonly warn?: (message: string) => void } = {},
): Sink {
  const timeouts = { connect: 5, statement: 60, lock: lockSeconds };
  return pgSink({ url, postgres: { mode, key: mode === "append" ? [] : ["id"], timeouts }, ...more });
}

function runOf(sink: Sink, number: number): Plan {
  const plan = planFor(sink.planTarget);
  return { ...plan, runId: numberedRunId(plan.runId, number) };
}

const controlRow = /^INSERT INTO "infer_batch"\.spans/;

async function isWaited(database: Database): Promise<boolean> {
  const rows = await database.query("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
  return rows.length > 0;
}

async function idsIn(database: Database): Promise<number[]> {
  return (await database.query("SELECT id FROM scores.predictions ORDER BY 1")).map(({ id }) => Number(id));
}

postgres.describe("a new run while an attempt of the run before works", () => {
  test.each(["append", "upsert", "replace"] as const)(
    "a new run waits for a span that is being committed: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      await using old = sinkOf(database, mode);
      await using next = sinkOf(database, mode, { lockSeconds: 60 }); // whom it waits for is not ended
      const { stored, run } = await begun(old, runOf(old, 1));
      using stop = stopAt("before", controlRow);
      const [first, second] = [spanAt(stored.plan, 0), spanAt(stored.plan, 1)];
      const committing = run.commit(first, whole(outputOf(idsOf(first))));
      await stop.reached;

      const state = { planned: false };
      const planning = next.create(runOf(next, 2)).then((plan) => {
        state.planned = true;
        return plan;
      });
      while (!(await isWaited(database))) {
        expect(state.planned).toBe(false);
        await sleep(10);
      }
      stop.go();
      expect(await committing).toBe("committed");
      expect((await planning).plan.runId).toBe(runOf(next, 2).runId);
      await expect(run.commit(second, whole(outputOf(idsOf(second))))).rejects.toMatchObject({ code: "PLAN_CHANGED" });
    },
  );

  test("a new run does not wait for a span that is being sent, and that span is not committed", async () => {
    await using database = await postgres.server().createDatabase();
    await using old = sinkOf(database);
    await using next = sinkOf(database);
    const { stored, run } = await begun(old, runOf(old, 1));
    using stop = stopAt("inCopy", /^COPY/);
    const span = spanAt(stored.plan, 0);
    const committing = run.commit(span, whole(outputOf(idsOf(span)))).catch((error: unknown) => error);
    await stop.reached;
    await next.create(runOf(next, 2));
    stop.go();
    expect(await committing).toMatchObject({
      code: "PLAN_CHANGED",
      exitCode: 66,
      message: "reading infer_batch.runs: run job-000000000000-r2 came after job-000000000000",
    });
    expect(await idsIn(database)).toEqual([]);
    expect(await database.query("SELECT * FROM infer_batch.spans")).toEqual([]);
  });

  test("a new run ends an attempt that is silent in the middle of its commit", async () => {
    await using database = await postgres.server().createDatabase();
    const warnings: string[] = [];
    await using old = sinkOf(database, "append", { retrySeconds: 20 });
    await using next = sinkOf(database, "append", { retrySeconds: 20, warn: (message) => warnings.push(message) });
    const { stored, run } = await begun(old, runOf(old, 1));
    using stop = stopAt("before", controlRow);
    const span = spanAt(stored.plan, 0);
    const committing = run.commit(span, whole(outputOf(idsOf(span)))).catch((error: unknown) => error);
    await stop.reached;
    await next.create(runOf(next, 2));
    expect(warnings.join("\n")).toMatch(/ended session \d+/);
    stop.go();
    expect(await committing).toMatchObject({ code: "PLAN_CHANGED" });
    expect(await idsIn(database)).toEqual([]);
  });

  const append = { mode: "append", key: [] } as const;
  const second = numberedRunId("job-000000000000" as RunId, 2);
  const duplicates = { code: "USAGE", message: expect.stringMatching(/keeps the rows of the runs before/) as string };

  test("a new run in append finds the rows of a span that is committed just before it is planned", async () => {
    await using database = await postgres.server().createDatabase();
    await using old = pgSink({ url: database.url, postgres: append });
    await using next = pgSink({ url: database.url, postgres: append, allowDuplicates: false });
    const { stored, run } = await begun(old, runOf(old, 1));
    using stop = stopAt("before", controlRow);
    const span = spanAt(stored.plan, 0);
    const committing = run.commit(span, whole(outputOf(idsOf(span))));
    await stop.reached;
    const planning = next.create(runOf(next, 2)).catch((error: unknown) => error);
    while (!(await isWaited(database))) {
      await sleep(10);
    }
    stop.go();
    expect(await committing).toBe("committed");
    expect(await planning).toMatchObject(duplicates);
    await expect(next.create(runOf(next, 2))).rejects.toMatchObject(duplicates);
    expect(await database.query("SELECT count(*)::int AS n FROM infer_batch.runs")).toEqual([{ n: 1 }]);
    await carryOut(old, runOf(old, 1));
    expect(await idsIn(database)).toEqual(Array.from({ length: 25 }, (_, id) => id));
  });

  test("a new run in append over an empty table keeps spans of the run before from being committed", async () => {
    await using database = await postgres.server().createDatabase();
    await using old = pgSink({ url: database.url, postgres: append });
    await using next = pgSink({ url: database.url, postgres: append, allowDuplicates: false });
    const { stored, run } = await begun(old, runOf(old, 1));
    await commitSpans(run, stored, (index) => index === 0);
    await database.query("TRUNCATE scores.predictions");
    await next.create(runOf(next, 2));
    await expect(commitSpans(run, stored)).rejects.toMatchObject({ code: "PLAN_CHANGED" });
    await carryOut(next, runOf(next, 2));
    expect((await next.create(runOf(next, 2))).plan.runId).toBe(second); // its own rows are there
    expect(await idsIn(database)).toEqual(Array.from({ length: 25 }, (_, id) => id));
  });

  test("a new run in append is refused to a role that may not read all rows of the table", async () => {
    await using database = await postgres.server().createDatabase();
    await using old = pgSink({ url: database.url, postgres: append });
    const { stored, run } = await begun(old, runOf(old, 1));
    await commitSpans(run, stored, (index) => index === 0);
    await database.query("DELETE FROM scores.predictions");
    await database.query(`CREATE ROLE blind LOGIN; GRANT USAGE ON SCHEMA scores, infer_batch TO blind;
      GRANT INSERT ON ALL TABLES IN SCHEMA infer_batch, scores TO blind; GRANT SELECT ON ALL TABLES IN SCHEMA infer_batch TO blind`);
    try {
      const url = postgres.server().url(database.name, "blind");
      await using blind = pgSink({ url, postgres: append, allowDuplicates: false });
      await expect(blind.create(runOf(blind, 2))).rejects.toMatchObject(duplicates);
      await database.query("GRANT SELECT ON scores.predictions TO blind");
      expect((await blind.create(runOf(blind, 2))).plan.runId).toBe(second);
      await database.query("ALTER TABLE scores.predictions ENABLE ROW LEVEL SECURITY");
      await expect(blind.create(runOf(blind, 3))).rejects.toMatchObject(duplicates);
    } finally {
      await database.query("DROP OWNED BY blind; DROP ROLE blind");
    }
  });
});

const ownTables =
  "SELECT schemaname, tablename FROM pg_tables WHERE tablename LIKE '%staging%' OR tablename LIKE 'keys%' ORDER BY 1, 2";

postgres.describe("an abandoned run in Postgres", () => {
  test.each(["upsert", "replace"] as const)(
    "an abandoned run leaves nothing behind once the next one is finished: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      await using sink = sinkOf(database, mode);
      for (const number of [1, 2]) {
        const { run, stored } = await begun(sink, runOf(sink, number));
        await commitSpans(run, stored, (index) => index === 0);
      }
      await sink.create(runOf(sink, 3));
      expect(await database.query(ownTables)).toHaveLength(3);
      await carryOut(sink, runOf(sink, 3));
      expect(await database.query(ownTables)).toEqual([]);
      expect(await idsIn(database)).toEqual(Array.from({ length: 25 }, (_, id) => id));
      expect(await database.query("SELECT run_id, status FROM infer_batch.progress ORDER BY 1")).toEqual([
        { run_id: runOf(sink, 1).runId, status: "abandoned" },
        { run_id: runOf(sink, 2).runId, status: "abandoned" },
        { run_id: runOf(sink, 3).runId, status: "complete" },
      ]);
    },
  );

  test("an abandoned run's table stays where it belongs to another role, and the next run is finished", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(`DROP ROLE IF EXISTS giver; CREATE ROLE giver LOGIN;
      GRANT CREATE, TEMPORARY ON DATABASE ${database.name} TO giver`);
    const url = postgres.server().url(database.name, "giver");
    {
      await using sink = sinkOf({ url }, "upsert");
      await begun(sink, runOf(sink, 1));
      const [keys] = await database.query(ownTables);
      await database.query(`ALTER TABLE infer_batch.${String(keys?.["tablename"])} OWNER TO postgres`);
      await carryOut(sink, runOf(sink, 2));
      expect(await database.query(ownTables)).toEqual([keys]);
    }
    await database.query("DROP OWNED BY giver CASCADE");
  });
});

postgres.describe("unfinished runs in Postgres", () => {
  test("the unfinished runs of a job are the latest of each other params", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database);
    const plan = (base: string, number = 1, job = "job"): Plan => ({
      ...planFor(sink.planTarget),
      job,
      params: { ds: base },
      runId: numberedRunId(`${job}-${base.repeat(12)}` as RunId, number),
    });
    const unfinished = async (): Promise<readonly RecordedRun[]> =>
      await sink.history({ job: "job", last: 2, unfinishedBut: plan("a").runId });
    expect(await unfinished()).toEqual([]);
    await sink.create(plan("a"));
    await carryOut(sink, plan("b"));
    await sink.create(plan("c"));
    await sink.create(plan("d"));
    await carryOut(sink, plan("d", 2));
    await carryOut(sink, plan("e"));
    await sink.create(plan("e", 2));
    await sink.create(plan("f", 1, "other"));
    const found = await unfinished();
    expect(found.map(({ runId }) => runId)).toEqual([plan("e", 2).runId, plan("c").runId]);
    expect(found[0]).toMatchObject({ plan: plan("e", 2), status: "unfinished" });

    await database.query("UPDATE infer_batch.runs SET plan = replace(plan, 'UTC', 'GMT') WHERE base LIKE '%c'");
    expect((await unfinished()).map(({ runId }) => runId)).toEqual([plan("e", 2).runId]);
  });
});

postgres.describe("a control row that another program changed", () => {
  test.each([
    ["UPDATE infer_batch.spans SET span = 2", "span 2"],
    ["UPDATE infer_batch.spans SET span = 7", "span 7"],
    ["UPDATE infer_batch.spans SET row_end = 9, rows = 9", "span 0"],
    ["UPDATE infer_batch.spans SET on_bad_row = 'maybe'", "a span"],
  ])("a control row that was changed ends the run with 66: %s", async (sql, which) => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkOf(database);
    const { stored, run } = await begun(sink, runOf(sink, 1));
    await commitSpans(run, stored, (index) => index === 0);
    await database.query(sql);
    const damaged = {
      code: "OUTPUT_DAMAGED",
      message: `reading infer_batch.spans: ${which} of run job-000000000000 is not of its plan`,
    };
    await expect(sink.open(stored)).rejects.toMatchObject(damaged);
    await expect(run.refresh()).rejects.toMatchObject(damaged);
    await expect(run.finish()).rejects.toMatchObject(damaged);
  });
});
