import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { Plan } from "#src/run/plan/plan.js";
import type { PostgresSink } from "#src/targets/postgres/sink.js";
import { modes, plainTable } from "../../support/pg-amid.js";
import { connect, type Database } from "../../support/pg-database.js";
import { approvalSql, holdStaged, publishStaged, stagedSink, statesIn } from "../../support/pg-staged.js";
import { stopAt } from "../../support/pg-stop.js";
import { usePostgres } from "../../support/postgres.js";
import { alone, beginRun } from "../../support/sink-drive.js";
import { decisionOf, stagedPlan } from "../../support/staged-plans.js";
import { decisionDocument } from "#src/stores/ledger.js";
import { firstOf } from "../../support/torture.js";

const postgres = usePostgres();
const upTo = (end: number): number[] => Array.from({ length: end }, (_, id) => id);

async function idsIn(database: Database): Promise<number[]> {
  return (await database.query("SELECT id FROM scores.predictions ORDER BY 1")).map(({ id }) => Number(id));
}

async function isWaited(database: Database): Promise<boolean> {
  const rows = await database.query("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
  return rows.length > 0;
}

function runOf(sink: PostgresSink, number: number): Plan {
  const plan = stagedPlan(sink.planTarget);
  return { ...plan, runId: numberedRunId(plan.runId, number) };
}

const superseded = { code: "PLAN_CHANGED", exitCode: 66 };

postgres.describe("a new run in place of an approved one", () => {
  test.each(firstOf(modes, 2))(
    "an approved run is not published once the next run is planned: %s",
    async (_mode, spec) => {
      await using database = await postgres.server().createDatabase();
      await database.query(plainTable);
      await using sink = stagedSink(database, spec, { allowDuplicates: false });
      await using other = stagedSink(database, spec, { allowDuplicates: false });
      const { run, stored } = await holdStaged(sink, runOf(sink, 1));
      await run.create(decisionDocument, decisionOf("approved"));
      const late = await other.open(stored);

      await sink.create(runOf(sink, 2));
      await expect(run.finish()).rejects.toMatchObject(superseded);
      await expect(late.begin(alone).then(() => late.finish({}))).rejects.toMatchObject(superseded);
      expect(await idsIn(database)).toEqual([]);
      await publishStaged(sink, runOf(sink, 2));
      await expect(run.finish()).rejects.toMatchObject(superseded);
      expect(await idsIn(database)).toEqual(upTo(25));
      expect(await statesIn(database)).toEqual(["abandoned", "published"]);
    },
  );

  test.each(firstOf(modes.toReversed(), 2))(
    "the next run waits for an approved one that is being published, and append then refuses it: %s",
    async (mode, spec) => {
      await using database = await postgres.server().createDatabase();
      const patient = { ...spec, timeouts: { connect: 5, statement: 60, lock: 60 } }; // whom it waits for is not ended
      await using sink = stagedSink(database, spec, { allowDuplicates: false });
      await using next = stagedSink(database, patient, { allowDuplicates: false });
      const { run } = await holdStaged(sink, runOf(sink, 1));
      await run.create(decisionDocument, decisionOf("approved"));
      using stop = stopAt("before", /^INSERT INTO "infer_batch"\.finishes/);
      const publishing = run.finish();
      await stop.reached;
      const planning = next.create(runOf(next, 2)).catch((error: unknown) => error);
      while (!(await isWaited(database))) {
        await sleep(10);
      }
      stop.go();
      await publishing;

      const refused = { code: "USAGE", message: expect.stringMatching(/keeps the rows of the runs before/) as string };
      const planned = { plan: { runId: runOf(next, 2).runId } };
      expect(await planning).toMatchObject(mode === "append" ? refused : planned);
      expect(await idsIn(database)).toEqual(upTo(25));
      expect(await statesIn(database)).toEqual(["published", ...(mode === "append" ? [] : ["unfinished"])]);
    },
  );
});

// In replace, an attempt does not find the staging table of the other one, and ends before that.
const insertingModes = modes.filter(([mode]) => !mode.startsWith("replace"));

postgres.describe("an approved run of another table", () => {
  test.each(insertingModes)(
    "an approved run is not published by an attempt whose spec names another table: %s",
    async (_, spec) => {
      await using database = await postgres.server().createDatabase();
      await database.query(plainTable);
      await using sink = stagedSink(database, spec);
      const { run, stored } = await holdStaged(sink, runOf(sink, 1));
      await run.create(decisionDocument, decisionOf("approved"));
      await database.query("CREATE TABLE scores.other (LIKE scores.predictions INCLUDING ALL)");
      await using other = stagedSink(database, { ...spec, table: "scores.other" });
      await expect(beginRun(other, stored).then((late) => late.finish({}))).rejects.toMatchObject(superseded);
      expect(await statesIn(database)).toEqual(["approved"]);
      expect(await database.query("SELECT id FROM scores.other")).toEqual([]);
      await run.finish();
      expect(await statesIn(database)).toEqual(["published"]);
      expect(await idsIn(database)).toEqual(upTo(stored.plan.input.rows));
    },
  );
});

postgres.describe("two attempts that approve a run", () => {
  test("an attempt that waits for one that publishes the run takes its decision, although the staging table is gone", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    await using sink = stagedSink(database, modes[0][1]);
    const { run, stored } = await holdStaged(sink, runOf(sink, 1));
    const { runId } = stored.plan;
    const [{ staging } = {}] = await database.query(
      "SELECT 'infer_batch.' || tablename AS staging FROM pg_tables WHERE tablename LIKE 'staging%'",
    );
    const publishing = await connect(database.url);
    try {
      await publishing.query("BEGIN");
      await publishing.query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", [`infer-batch run ${runId}`]);
      const decided = run.create(decisionDocument, decisionOf("approved"));
      while (!(await isWaited(database))) {
        await sleep(10);
      }
      await publishing.query(approvalSql(runId, "other"));
      await publishing.query(`DROP TABLE ${String(staging)}`);
      await publishing.query("COMMIT");
      expect(await decided).toMatchObject({ kind: "approved", by: "other" });
    } finally {
      await publishing.end();
    }
  });
});
