import { expect, test } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { Plan } from "#src/run/plan/plan.js";
import type { RunSink } from "#src/targets/target.js";
import { modes } from "../../support/pg-amid.js";
import { leftTables } from "../../support/pg-crash.js";
import type { Database } from "../../support/pg-database.js";
import { holdStaged, publishStaged, stagedSink, statesIn } from "../../support/pg-staged.js";
import { decisionOf, stagedPlan, verdictOf } from "../../support/staged-plans.js";
import { usePostgres } from "../../support/postgres.js";
import { alone } from "../../support/sink-drive.js";
import { begun, commitSpans } from "../../support/sinks.js";
import { toldAt } from "../../support/told.js";
import { decisionDocument, verdictDocument } from "#src/stores/ledger.js";
import { firstOf } from "../../support/torture.js";

const postgres = usePostgres();
const oldRows =
  "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real); INSERT INTO scores.predictions VALUES (-1, 0)";
const upTo = (end: number): number[] => Array.from({ length: end }, (_, id) => id);

async function idsIn(database: Database): Promise<number[]> {
  return (await database.query("SELECT id FROM scores.predictions ORDER BY 1")).map(({ id }) => Number(id));
}

/** What readers find when the run is published: `replace` takes the old row away. */
const published = (mode: string): number[] => (mode.startsWith("replace") ? upTo(25) : [-1, ...upTo(25)]);

postgres.describe("a staged run in Postgres", () => {
  test.each(firstOf(modes.toReversed(), 2))(
    "a held run is published whole when it is approved, and not before: %s",
    async (mode, spec) => {
      await using database = await postgres.server().createDatabase();
      await database.query(oldRows);
      await using sink = stagedSink(database, spec);
      const { run, stored } = await holdStaged(sink, stagedPlan(sink.planTarget));
      expect(await idsIn(database)).toEqual([-1]);
      const held = await sink.open(stored);
      expect(held.state).toEqual({ kind: "held", verdict: verdictOf("hold") });
      await expect(run.finish()).rejects.toMatchObject({ code: "HELD", exitCode: 67 });
      expect([await idsIn(database), await statesIn(database)]).toEqual([[-1], ["held"]]);

      expect(await sink.ledger.create(stored, decisionDocument, decisionOf("approved"))).toEqual(
        decisionOf("approved"),
      );
      const approved = await sink.open(stored);
      expect(approved.state).toEqual({ kind: "approved", decision: decisionOf("approved") });
      expect([await idsIn(database), await statesIn(database)]).toEqual([[-1], ["approved"]]);
      await approved.begin(alone);
      await approved.finish();

      expect([await idsIn(database), await statesIn(database)]).toEqual([published(mode), ["published"]]);
      expect((await sink.open(stored)).state).toEqual({ kind: "published" });
      expect(await leftTables(database)).toEqual([]);
      await run.finish(); // a late finisher
      expect(await idsIn(database)).toEqual(published(mode));
      expect(await database.query("SELECT publication, decided_by, reason, status FROM infer_batch.progress")).toEqual([
        { publication: "1", decided_by: "ana", reason: "she has seen the numbers", status: "complete" },
      ]);
    },
  );

  test("the first verdict stands, byte for byte, and others adopt it", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = stagedSink(database, { mode: "append" });
    const { run, stored } = await begun(sink, stagedPlan(sink.planTarget));
    await commitSpans(run, stored);
    const told = toldAt(sink, stored.plan.runId);
    expect(await told.verdict()).toBeUndefined();
    const first = { ...verdictOf("hold"), thresholds: { b: 1e-7, a: "ä \u2028 \\u0000", z: -0 } };
    expect(await run.create(verdictDocument, first)).toEqual(JSON.parse(JSON.stringify(first)));
    expect(await run.create(verdictDocument, verdictOf("publish", "other"))).toEqual(JSON.parse(JSON.stringify(first)));
    expect(JSON.stringify(await told.verdict())).toBe(JSON.stringify(first));
    await database.query("UPDATE infer_batch.documents SET document = '{}'");
    await expect(sink.open(stored)).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
  });

  test("a role that may only insert cannot change a decision, and texts that JSON of Postgres cannot hold are shown", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = stagedSink(database, { mode: "append" });
    const { run, stored } = await begun(sink, stagedPlan(sink.planTarget));
    await commitSpans(run, stored);
    const reason = "a \u0000 b \ud800 c \\u0000 \ud83d\ude00";
    await run.create(decisionDocument, { ...decisionOf("approved"), reason });
    await database.query(`INSERT INTO infer_batch.documents (run_id, name, version, document, writer)
      SELECT run_id, name, 2, '{"kind": "discarded", "by": "eve", "at": "2026-11-21T00:00:00.000Z", "reason": null, "asBaseline": false}', 'w'
      FROM infer_batch.documents WHERE name = 'decision'`);
    const shown = "a \u2400 b \ufffd c \\u0000 \ud83d\ude00";
    expect((await sink.open(stored)).state).toMatchObject({ kind: "approved", decision: { by: "ana", reason: shown } });
    expect(await database.query("SELECT kind, by, reason FROM infer_batch.decisions")).toEqual([
      { kind: "approved", by: "ana", reason: shown },
    ]);
  });

  test.each(firstOf(modes, 2))(
    "approve and discard of a run that a later one replaced are refused: %s",
    async (_mode, spec) => {
      await using database = await postgres.server().createDatabase();
      await using sink = stagedSink(database, spec);
      const plan = stagedPlan(sink.planTarget);
      const { run } = await holdStaged(sink, plan);
      await sink.create({ ...plan, runId: numberedRunId(plan.runId, 2) });
      for (const kind of ["approved", "discarded"] as const) {
        await expect(run.create(decisionDocument, decisionOf(kind))).rejects.toMatchObject({ code: "PLAN_CHANGED" });
      }
      expect(await run.create(decisionDocument, decisionOf("superseded"))).toEqual(decisionOf("superseded"));
    },
  );

  test("publications of a table are numbered in their order", async () => {
    await using database = await postgres.server().createDatabase();
    const [, spec] = modes[1];
    await using sink = stagedSink(database, spec);
    for (const day of [1, 2, 3]) {
      await publishStaged(
        sink,
        stagedPlan(sink.planTarget, { runId: `job-00000000000${day}`, params: { ds: `2026-11-0${day}` } }),
      );
    }
    await using other = stagedSink(database, { ...spec, table: "scores.others" });
    await publishStaged(other, stagedPlan(other.planTarget, { runId: "job-000000000009" }));
    const rows = await database.query("SELECT target, publication FROM infer_batch.finishes ORDER BY run_id");
    expect(rows.map((row) => Object.values(row).join(" "))).toEqual([
      "scores.predictions 1",
      "scores.predictions 2",
      "scores.predictions 3",
      "scores.others 1",
    ]);
  });
});

postgres.describe("new runs in append after staged ones", () => {
  test("a new run in append is admitted while no run before it has published a row, and refused afterwards", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(oldRows);
    await using sink = stagedSink(database, { mode: "append" }, { allowDuplicates: false });
    const plan = stagedPlan(sink.planTarget);
    const numbered = (number: number): typeof plan => ({ ...plan, runId: numberedRunId(plan.runId, number) });
    const { run } = await holdStaged(sink, plan);
    await run.create(decisionDocument, decisionOf("discarded"));
    const second = await holdStaged(sink, numbered(2));
    await second.run.create(decisionDocument, decisionOf("approved"));
    const refused = { code: "USAGE", message: expect.stringMatching(/keeps the rows of the runs before/) as string };
    await second.run.finish();
    await expect(sink.create(numbered(3))).rejects.toMatchObject(refused);
    expect(await idsIn(database)).toEqual([-1, ...upTo(25)]);
  });
});

postgres.describe("staging tables that a killed attempt left", () => {
  test.each(modes.slice(0, 2))(
    "a staging table that a killed attempt left is dropped by the next attempt of the run, or by the next run: %s",
    async (_mode, spec) => {
      await using database = await postgres.server().createDatabase();
      await using sink = stagedSink(database, spec);
      const planOf = (day: number): Plan =>
        stagedPlan(sink.planTarget, { runId: `job-00000000000${day}`, params: { ds: `2026-11-0${day}` } });
      const leave = async (day: number): Promise<RunSink> => {
        const { run, stored } = await holdStaged(sink, planOf(day));
        const staging = (await leftTables(database)).find((name) => name.startsWith("staging"));
        await run.create(decisionDocument, decisionOf("approved"));
        await run.finish();
        await database.query(`CREATE TABLE infer_batch.${staging} (id int8)`);
        expect(await leftTables(database)).toEqual([staging]);
        await database.query("DELETE FROM scores.predictions");
        return await sink.open(stored);
      };
      await (await leave(1)).finish();
      expect(await leftTables(database)).toEqual([]);
      await leave(2);
      await publishStaged(sink, planOf(3));
      expect(await leftTables(database)).toEqual([]);
    },
  );
});
