import { Client } from "pg";
import { expect, test } from "vitest";
import { watchQueries } from "../../crash/pg-calls.mjs";
import { modes } from "../../support/pg-amid.js";
import { leftTables } from "../../support/pg-crash.js";
import type { Database } from "../../support/pg-database.js";
import { expectInOrder, readMeanwhile } from "../../support/pg-reader.js";
import { holdStaged, statesIn } from "../../support/pg-staged.js";
import { decisionOf, stagedPlan } from "../../support/staged-plans.js";
import { usePostgres } from "../../support/postgres.js";
import { alone } from "../../support/sink-drive.js";
import { begun, commitSpans, pgSink, type PgSinkOptions } from "../../support/sinks.js";
import { firstOf, torture } from "../../support/torture.js";
import { decisionDocument } from "#src/stores/ledger.js";

const postgres = usePostgres();
const oldRow =
  "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real); INSERT INTO scores.predictions VALUES (-1, 0)";
const rowsSql = "SELECT count(*)::int AS n, count(DISTINCT id)::int AS ids FROM scores.predictions";

async function approve(sink: ReturnType<typeof pgSink>): Promise<void> {
  const stored = (await sink.find(stagedPlan(sink.planTarget).runId)) ?? expect.fail("no run");
  const run = await sink.open(stored);
  await sink.ledger.create(stored, decisionDocument, decisionOf("approved"));
  await run.begin(alone);
  await run.finish();
}

/** Calls `work` with a connection that breaks once: before a statement is sent, or when it was answered. */
async function cutAt(moment: string | undefined, work: () => Promise<void>): Promise<string[]> {
  const trace: string[] = [];
  const cut = (when: string) => (call: string) => {
    if (when === "before") {
      trace.push(call);
    }
    if (`${when} ${call}` === moment) {
      throw Object.assign(new Error("the connection was cut"), { code: "ECONNRESET" });
    }
  };
  const unwatch = watchQueries(Client.prototype, { before: cut("before"), after: cut("after") });
  try {
    await work();
  } finally {
    unwatch();
  }
  return trace;
}

async function heldIn(database: Database, spec: PgSinkOptions["postgres"]): Promise<void> {
  await using sink = pgSink({ url: database.url, postgres: spec ?? {} });
  await holdStaged(sink, stagedPlan(sink.planTarget));
}

/** Not the statements of the reader, which has connections of this process, too. In CI: where something is written, decided or committed. */
const isCut = (call: string): boolean =>
  !call.startsWith(rowsSql.slice(0, 40)) && (torture || /^(COMMIT|INSERT|DROP TABLE|ALTER TABLE .* RENAME)/.test(call));

postgres.describe("a connection that breaks while a staged run is approved and published", () => {
  test.each(firstOf(modes, 3))(
    "a run is published once and whole when its connection breaks at any statement, before it or after it: %s",
    async (mode, spec) => {
      const all = mode.startsWith("replace") ? 25 : 26;
      const publish = async (moment?: string): Promise<string[]> => {
        await using database = await postgres.server().createDatabase();
        await database.query(oldRow);
        await heldIn(database, spec);
        await using sink = pgSink({ url: database.url, postgres: spec, retrySeconds: 60 });
        await using reader = await postgres.server().open(database.name);
        let trace: string[] = [];
        const { seen } = await readMeanwhile(reader, rowsSql, async () => {
          trace = await cutAt(moment, () => approve(sink));
        });
        expectInOrder(seen, [
          { n: 1, ids: 1 },
          { n: all, ids: all },
        ]);
        expect([await database.query(rowsSql), await statesIn(database)]).toEqual([
          [{ n: all, ids: all }],
          ["published"],
        ]);
        expect(await database.query("SELECT publication FROM infer_batch.finishes")).toEqual([{ publication: "1" }]);
        const left = await leftTables(database);
        const stored = (await sink.find(stagedPlan(sink.planTarget).runId)) ?? expect.fail("no run");
        await (await sink.open(stored)).finish();
        // Dropping the run's own tables is not tried again by the attempt that could not.
        const own = /^(?:predictions__)?(staging|keys)_/;
        const kinds = left.map((table) => own.exec(table)?.[1] ?? table);
        const others = left.filter((table) => !own.test(table));
        expect([others, new Set(kinds).size, await leftTables(database)]).toEqual([[], kinds.length, []]);
        return trace;
      };
      const calls = (await publish()).filter((call) => isCut(call));
      const failures: string[] = [];
      // In short, each mode has every eighth of them.
      const at = modes.findIndex(([name]) => name === mode);
      const moments = calls.flatMap((call, index) =>
        torture
          ? [`before ${call}`, `after ${call}`]
          : index % 8 === 2 * at
            ? [index % 16 < 8 ? `before ${call}` : `after ${call}`]
            : [],
      );
      for (const moment of moments) {
        await publish(moment).catch((error: unknown) => {
          failures.push(`${moment}: ${String(error)}`);
        });
      }
      expect(failures).toEqual([]);
      expect(calls.length).toBeGreaterThan(6);
    },
    600_000,
  );
});

postgres.describe("attempts that race with the publication of a staged run", () => {
  test.each(firstOf(modes))(
    "of several attempts that approve and publish a run at once, one publishes it: %s",
    async (mode, spec) => {
      await using database = await postgres.server().createDatabase();
      await database.query(oldRow);
      await heldIn(database, spec);
      const sinks = Array.from({ length: 4 }, () => pgSink({ url: database.url, postgres: spec, retrySeconds: 60 }));
      try {
        await Promise.all(sinks.map((sink) => approve(sink)));
      } finally {
        await Promise.all(sinks.map((sink) => sink[Symbol.asyncDispose]()));
      }
      const all = mode.startsWith("replace") ? 25 : 26;
      expect(await database.query(rowsSql)).toEqual([{ n: all, ids: all }]);
      expect(await database.query("SELECT publication FROM infer_batch.finishes")).toEqual([{ publication: "1" }]);
      expect(await leftTables(database)).toEqual([]);
    },
  );

  test.each(firstOf(modes.toReversed()))(
    "approve, discard, a new run and a late worker at once leave the table whole: %s",
    async (mode, spec) => {
      const ends = new Set<string>();
      for (let round = 0; round < (torture ? 40 : 1); round += 1) {
        await using database = await postgres.server().createDatabase();
        await database.query(oldRow);
        const open = (): ReturnType<typeof pgSink> => pgSink({ url: database.url, postgres: spec, retrySeconds: 60 });
        await using late = open();
        const plan = stagedPlan(late.planTarget);
        const worker = await begun(late, plan);
        await heldIn(database, spec);
        await using reader = await postgres.server().open(database.name);
        const sinks = [open(), open(), open()] as const;
        const { seen } = await readMeanwhile(reader, rowsSql, async () => {
          await Promise.allSettled([
            approve(sinks[0]),
            sinks[1]
              .open(worker.stored)
              .then((run) =>
                sinks[1].ledger
                  .create(worker.stored, decisionDocument, decisionOf("discarded"))
                  .then(() => run.finish()),
              ),
            sinks[2].ledger.create(worker.stored, decisionDocument, decisionOf("superseded")),
            commitSpans(worker.run, worker.stored).then(() => worker.run.finish()),
          ]);
        });
        await Promise.all(sinks.map((sink) => sink[Symbol.asyncDispose]()));
        const all = mode.startsWith("replace") ? 25 : 26;
        expectInOrder(seen, [
          { n: 1, ids: 1 },
          { n: all, ids: all },
        ]);
        const [decision] = await database.query("SELECT kind FROM infer_batch.decisions");
        const [rows] = await database.query(rowsSql);
        expect(rows?.["n"]).toBe(decision?.["kind"] === "approved" ? all : 1);
        ends.add(String(decision?.["kind"]));
      }
      console.info(`${mode}: ${[...ends].join(", ")}`);
    },
  );
});
