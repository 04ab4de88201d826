import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "pg";
import { expect, test } from "vitest";
import type { RunId } from "#src/run/plan/plan.js";
import { showTable, stagingTable } from "#src/targets/postgres/table.js";
import type { Sink } from "#src/targets/target.js";
import type { PostgresSink } from "#src/targets/postgres/sink.js";
import { watchQueries } from "../../crash/pg-calls.mjs";
import type { Database } from "../../support/pg-database.js";
import { decisionOf, stagedPlan } from "../../support/staged-plans.js";
import { untilWaiting } from "../../support/pg-amid.js";
import { stopAt } from "../../support/pg-stop.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, carryOut, commitSpans, pgSink, planFor } from "../../support/sinks.js";
import { alone } from "../../support/sink-drive.js";
import { decisionDocument } from "#src/stores/ledger.js";
import { numberedRunId } from "#src/run/plan/identity.js";

const postgres = usePostgres();

const runId = "job-000000000040" as RunId;
const staging = showTable(stagingTable({ schema: "scores", table: "predictions" }, runId));
const modes = {
  append: { mode: "append" },
  upsert: { mode: "upsert", key: ["id"] },
  replace: { mode: "replace", key: ["id"] },
} as const;

const steps = {
  async create(sink: Sink) {
    return () => sink.create(planFor(sink.planTarget, { rows: 40, runId }));
  },
  async begin(sink: Sink) {
    const run = await sink.open(await sink.create(planFor(sink.planTarget, { rows: 40, runId })));
    return () => run.begin(alone);
  },
  async commit(sink: Sink) {
    const { run, stored } = await begun(sink, planFor(sink.planTarget, { rows: 40, runId }));
    return () => commitSpans(run, stored, (span) => span === 0);
  },
  async answers(sink: Sink) {
    const { run } = await begun(sink, planFor(sink.planTarget, { rows: 40, runId }));
    return () => run.answers().keep([]);
  },
  async finish(sink: Sink) {
    const { run, stored } = await begun(sink, planFor(sink.planTarget, { rows: 40, runId }));
    await commitSpans(run, stored);
    return () => run.finish();
  },
  async rollback(sink: PostgresSink) {
    for (const number of ["", "-r2"]) {
      await carryOut(sink, planFor(sink.planTarget, { rows: 40, runId: `${runId}${number}` }));
    }
    return () => sink.table.rollBack();
  },
  async approve(sink: Sink) {
    const { run, stored } = await begun(sink, stagedPlan(sink.planTarget, { rows: 40, runId }));
    await commitSpans(run, stored);
    return () => run.create(decisionDocument, decisionOf("approved"));
  },
  async discard(sink: Sink) {
    const { run } = await begun(sink, stagedPlan(sink.planTarget, { rows: 40, runId }));
    return () => run.create(decisionDocument, decisionOf("discarded"));
  },
} as const satisfies Record<string, (sink: PostgresSink) => Promise<() => Promise<unknown>>>;

async function isWaiting(database: Database): Promise<boolean> {
  const waiting = await database.query(
    `SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  );
  return waiting.length > 0;
}

const fence = `runs ${runId}`;

postgres.describe("two erasures of different tables", () => {
  test("they may both be the first", async () => {
    await using database = await postgres.server().createDatabase();
    const erase = async (table: string): Promise<unknown> => {
      await using sink = pgSink({ url: database.url, postgres: { table, mode: "append" } });
      return await sink.table.erase({
        keys: { columns: ["id"], keys: [["3"]], placeOf: () => "line 1" },
        dryRun: false,
        by: "ana",
        found: new Set(),
        job: "job",
        command: () => "",
      });
    };
    const tables = ["scores.one", "scores.other"];
    for (const [index, table] of tables.entries()) {
      await using sink = pgSink({ url: database.url, postgres: { table, mode: "append" } });
      await carryOut(sink, planFor(sink.planTarget, { runId: `job-00000000000${index}` }));
    }
    using stop = stopAt("before", /^CREATE TABLE .*erasures/);
    const first = erase("scores.one");
    await stop.reached;
    const second = erase("scores.other");
    await Promise.race([second.catch(() => undefined), untilWaiting(database)]);
    stop.go();
    await Promise.all([first, second]);
    expect(await database.query("SELECT target FROM infer_batch.erasures ORDER BY 1")).toEqual([
      { target: "scores.one" },
      { target: "scores.other" },
    ]);
  });
});

postgres.describe("an erasure whose COMMIT was carried out, and its answer lost", () => {
  test("it is recorded once, and tells what it has erased", async () => {
    await using database = await postgres.server().createDatabase();
    const warnings: string[] = [];
    const warn = (text: string): unknown => warnings.push(text);
    await using sink = pgSink({ url: database.url, postgres: { mode: "append" }, retrySeconds: 60, warn });
    await carryOut(sink, planFor(sink.planTarget));
    let isRecorded = false;
    const unwatch = watchQueries(Client.prototype, {
      after(call: string) {
        isRecorded ||= call.includes("INSERT INTO") && call.includes("erasures");
        if (isRecorded && call.startsWith("COMMIT") && warnings.length === 0) {
          throw Object.assign(new Error("the answer is lost"), { code: "ECONNRESET" });
        }
      },
    });
    const erased = await sink.table.erase({
      keys: { columns: ["id"], keys: [["3"], ["77"]], placeOf: () => "line 1" },
      dryRun: false,
      by: "ana",
      found: new Set(),
      job: "job",
      command: () => "",
    });
    unwatch();
    expect(warnings).toEqual([expect.stringContaining("the answer is lost")]);
    expect(erased.map(({ name, rows }) => [name, rows])).toContainEqual(["scores.predictions", 1]);
    expect(
      await database.query("SELECT rows::int, keys::int, keys_not_found::int AS gone FROM infer_batch.erasures"),
    ).toEqual([{ rows: 1, keys: 2, gone: 1 }]);
  });
});

postgres.describe("locks of another attempt", () => {
  test.each<{ step: keyof typeof steps; name: string; mode?: keyof typeof modes; shared?: boolean }>([
    // Two that made the same thing at once would be refused by the server's own indexes.
    { step: "create", name: "infer_batch" },
    { step: "create", name: "scores" },
    { step: "create", name: "scores.predictions" },
    { step: "create", name: "scores.predictions", mode: "upsert" },
    { step: "create", name: staging, mode: "replace" },
    // A later run's plan waits for all that an earlier run makes visible, and that for the plan.
    { step: "create", name: fence, shared: true },
    { step: "begin", name: fence },
    { step: "commit", name: fence },
    { step: "answers", name: fence },
    { step: "finish", name: fence },
    { step: "approve", name: fence },
    // Spans that are being committed are committed before a run is discarded, or not at all.
    { step: "discard", name: fence, shared: true },
    // Publications of a table are numbered one after the other.
    { step: "finish", name: "publication scores.predictions" },
    // A table is swapped while no run is published into it, and nothing is erased from it.
    { step: "finish", name: "swap scores.predictions" },
    { step: "finish", name: "swap scores.predictions", mode: "replace", shared: true },
    { step: "rollback", name: "swap scores.predictions", mode: "replace", shared: true },
    // A run is pruned before a rollback gives readers its rows, and the rollback is refused; or after that.
    { step: "rollback", name: fence, mode: "replace" },
    // A run's own tables are made and removed by one attempt at a time.
    { step: "create", name: `run ${runId}` },
    { step: "begin", name: `run ${runId}` },
    { step: "answers", name: `run ${runId}` },
    { step: "finish", name: `run ${runId}` },
  ])(
    "an attempt that wants to $step waits for another's lock of $name",
    async ({ step, name, mode = "append", shared = false }) => {
      await using database = await postgres.server().createDatabase();
      await using holder = await postgres.server().open(database.name);
      await using sink = pgSink({
        url: database.url,
        postgres: { ...modes[mode], timeouts: { connect: 5, statement: 60, lock: 60 } },
      });
      const work = await steps[step](sink);
      await holder.query("BEGIN");
      const take = `pg_advisory_xact_lock${shared ? "_shared" : ""}`;
      await holder.query(`SELECT ${take}(hashtextextended($1, 0))`, [`infer-batch ${name}`]);
      const state = { ended: false };
      const working = work().finally(() => {
        state.ended = true;
      });

      while (!state.ended && !(await isWaiting(database))) {
        await sleep(2);
      }

      expect(state.ended, "ended without waiting").toBe(false);
      await holder.query("COMMIT");
      await working;
    },
  );
});

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
