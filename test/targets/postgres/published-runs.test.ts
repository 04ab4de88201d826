import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { profileText } from "#src/checks/profile/profile.js";
import { splitRunId } from "#src/run/plan/identity.js";
import type { PinnedRun, Plan, RunId } from "#src/run/plan/plan.js";
import { runProfileOf, runProfileText } from "#src/run/lifecycle/profile-text.js";
import {
  chooseBaseline,
  type DatedRun,
  normalAndOthers,
  runsOfSeries,
  type Series,
} from "#src/run/lifecycle/published-run.js";
import type { Sink } from "#src/targets/target.js";
import { modes } from "../../support/pg-amid.js";
import { holdStaged, publishStaged, wholeProfile } from "../../support/pg-staged.js";
import { decisionOf, stagedPlan } from "../../support/staged-plans.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, carryOut, pgSink, planFor } from "../../support/sinks.js";
import { decisionDocument } from "#src/stores/ledger.js";
import { firstOf } from "../../support/torture.js";

const postgres = usePostgres();
const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
const series: Series = { job: "job", params: { ds: "2026-11-09", region: "EU" }, dateParam: "ds", date: "2026-11-09" };

const nightsIn = async (sink: Sink): Promise<DatedRun[]> => runsOfSeries(await sink.published("everywhere"), series);

const night = (sink: ReturnType<typeof pgSink>, day: number, region = "EU"): Plan =>
  stagedPlan(sink.planTarget, {
    runId: `job-${region.length}0000000000${day}`,
    params: { ds: `2026-11-0${day}`, region },
  });

postgres.describe("the profile of a run in Postgres", () => {
  test.each(firstOf(modes, 2))(
    "a run's profile is that of all its rows, before and after it is published: %s",
    async (_, spec) => {
      await using database = await postgres.server().createDatabase();
      await using sink = pgSink({ url: database.url, postgres: spec });
      const plan = night(sink, 1);
      const { run, stored } = await holdStaged(sink, plan, (id) => id / 8);
      const profile = wholeProfile(25, (id) => id / 8);
      const merged = await (await sink.open(stored)).profile();
      expect(profileText(merged)).toBe(profileText(profile));
      const decision = decisionOf("approved");
      await run.create(decisionDocument, decision);
      await run.finish();

      const text = runProfileText(runProfileOf(plan, { profile, rejected: 0, decision }));
      const found = await nightsIn(sink);
      expect(found).toMatchObject([
        { runId: plan.runId, date: "2026-11-01", sha256: sha256(text), modelSha256: plan.model.sha256, place: "" },
      ]);
      expect(await sink.readProfile(found[0] ?? expect.fail("no run"))).toBe(text);
    },
  );

  test("runs that are left out of the baseline are found beside the others of their dates, with who decided on them", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url, postgres: { mode: "upsert", key: ["id"] } });
    const decided = [
      { plan: night(sink, 1), decision: { ...decisionOf("approved"), asBaseline: true } },
      { plan: night(sink, 2), decision: { ...decisionOf("approved"), by: "checks", asBaseline: false } },
      { plan: night(sink, 3), decision: { ...decisionOf("approved"), by: "checks", asBaseline: true } },
      {
        plan: { ...night(sink, 3), runId: `${night(sink, 3).runId}-r2` as RunId },
        decision: { ...decisionOf("approved"), by: "ana", asBaseline: false },
      },
    ];
    for (const { plan, decision } of decided) {
      const { run } = await holdStaged(sink, plan);
      await run.create(decisionDocument, decision);
      await run.finish();
    }
    const shown = ({ date, runId }: PinnedRun): string => `${date} ${splitRunId(runId as RunId).number}`;
    expect((await nightsIn(sink)).map(shown)).toEqual(["2026-11-01 1", "2026-11-02 1", "2026-11-03 2"]);
    const all = normalAndOthers(await sink.published("here"), series);
    expect(all.map(shown)).toEqual(["2026-11-01 1", "2026-11-02 1", "2026-11-03 1", "2026-11-03 2"]);
    expect((await chooseBaseline(all, { modelSha256: "" })).leftOut?.map(({ date, why }) => `${date} ${why}`)).toEqual([
      "2026-11-02 expected",
      "2026-11-03 approved",
    ]);
  });

  test("a profile that another program changed ends the attempt with 66, or with 75 where it is another run's", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url });
    await publishStaged(sink, night(sink, 1));
    const [pinned] = await nightsIn(sink);
    await database.query("UPDATE infer_batch.finishes SET profile = profile || ' '");
    const gone = (sql: string): Promise<unknown> =>
      database.query(sql).then(() => sink.readProfile(pinned ?? expect.fail("no run")));
    await expect(gone("SELECT")).rejects.toMatchObject({ exitCode: 75 });
    await expect(gone("DELETE FROM infer_batch.finishes")).rejects.toMatchObject({ exitCode: 75 });
    const { run } = await holdStaged(sink, night(sink, 2));
    await database.query("UPDATE infer_batch.spans SET profile = '{' WHERE span = 1");
    await expect(run.profile()).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
  });
});

postgres.describe("published runs of a series in Postgres", () => {
  test("published runs of a series in Postgres are those with earlier dates and otherwise equal params, the last one published for each date", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url, postgres: { mode: "upsert", key: ["id"] }, allowOlder: true });
    const ids = async (): Promise<ReadonlySet<string>> => new Set((await nightsIn(sink)).map(({ runId }) => runId));
    expect(await ids()).toEqual(new Set()); // without control tables
    for (const day of [3, 1, 2]) {
      await publishStaged(sink, night(sink, day));
    }
    await publishStaged(sink, night(sink, 4, "USA"));
    await publishStaged(sink, { ...night(sink, 5), params: { ds: "2026-11-09", region: "EU" } });
    await publishStaged(sink, { ...night(sink, 6), job: "other" });
    await holdStaged(sink, night(sink, 7));
    const again = { ...night(sink, 2), runId: `${night(sink, 2).runId}-r2` as RunId };
    await publishStaged(sink, again);
    expect(await ids()).toEqual(new Set([night(sink, 1).runId, again.runId, night(sink, 3).runId]));
    await using other = pgSink({ url: database.url, postgres: { table: "scores.others" } });
    expect(await other.published("here")).toEqual([]);
  });

  test("a run that was rolled back is not compared with", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url, postgres: { mode: "replace", key: ["id"] } });
    await publishStaged(sink, night(sink, 1));
    await publishStaged(sink, night(sink, 2));
    await sink.table.rollBack();
    expect((await nightsIn(sink)).map(({ date }) => date)).toEqual(["2026-11-01"]);
  });
});

postgres.describe("unfinished runs in Postgres that are staged", () => {
  test("a held run is listed as held, an approved one as unfinished, and a discarded one is not listed", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url });
    await holdStaged(sink, night(sink, 1));
    await (await holdStaged(sink, night(sink, 2))).run.create(decisionDocument, decisionOf("discarded"));
    await (await holdStaged(sink, night(sink, 3))).run.create(decisionDocument, decisionOf("approved"));
    await begun(sink, night(sink, 4));
    await carryOut(sink, planFor(sink.planTarget, { runId: "job-900000000000", rows: 30 }));
    const found = await sink.history({ job: "job", last: 9, unfinishedBut: "job-900000000000" as RunId });
    expect(Object.fromEntries(found.map(({ plan, status }) => [plan?.params["ds"], status]))).toEqual({
      "2026-11-01": "held",
      "2026-11-03": "approved",
      "2026-11-04": "unfinished",
    });
  });
});
