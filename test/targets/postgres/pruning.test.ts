import { expect, test } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { Plan, RunId } from "#src/run/plan/plan.js";
import { stagedRowsTable } from "#src/targets/postgres/table.js";
import type { Session } from "#src/targets/postgres/connections.js";
import { controlOf } from "#src/targets/postgres/control.js";
import { readSwaps, type Swapped } from "#src/targets/postgres/swaps.js";
import type { PostgresSink } from "#src/targets/postgres/sink.js";
import { commitProfiled } from "../../support/staging-contract.js";
import { usePostgres } from "../../support/postgres.js";
import { pruneAt } from "../../support/prune-contract.js";
import { stagedPlan } from "../../support/staged-plans.js";
import { begun, pgSink } from "../../support/sinks.js";

const postgres = usePostgres();

const night = (sink: PostgresSink, day: number): Plan => ({
  ...stagedPlan(sink.planTarget, { runId: `job-00000000000${day}`, params: { ds: `2026-11-0${day}` } }),
  job: "job",
  staged: false,
});

async function publish(sink: PostgresSink, plan: Plan): Promise<void> {
  const { stored, run } = await begun(sink, plan);
  await commitProfiled(run, stored);
  await run.finish();
}

const pinOf = ({ runId }: Plan): NonNullable<Plan["checks"]> => ({
  baseline: [{ runId, date: "2026-11-01", sha256: "0".repeat(64), place: "" }],
});

const replace = (run: RunId, kept: string | null) => ({ run_id: run, kept, action: "replace" as const });

type SwapRow = Pick<NonNullable<Swapped["last"]>, "run_id" | "kept" | "action">;

async function followed(rows: readonly SwapRow[]): Promise<Swapped> {
  const session = { query: () => Promise.resolve({ rows }) } as unknown as Session;
  return await readSwaps(session, controlOf("infer_batch"), { schema: "scores", table: "predictions" });
}

test("the run whose rows a table holds is known through replacements and rollbacks", async () => {
  const [one, two, three] = ["one", "two", "three"] as RunId[] as [RunId, RunId, RunId];
  const swaps = [replace(one, "k0"), replace(two, "k1"), { run_id: two, kept: "u2", action: "rollback" as const }];
  expect(await followed(swaps.slice(0, 2))).toMatchObject({
    current: two,
    kept: new Map([
      ["k0", undefined],
      ["k1", one],
    ]),
  });
  const undone = await followed(swaps);
  expect([undone.current, [...undone.kept]]).toEqual([
    one,
    [
      ["k0", undefined],
      ["u2", two],
    ],
  ]);
  const again = await followed([...swaps, replace(three, "k3")]);
  expect([again.current, again.kept.get("k3")]).toEqual([three, one]);
  const twice = await followed([...swaps, { run_id: one, kept: "u1", action: "rollback" as const }]);
  expect([twice.current, twice.replacement, [...twice.kept]]).toEqual([
    undefined,
    undefined,
    [
      ["u2", two],
      ["u1", one],
    ],
  ]);
});

postgres.describe("pruning runs of a table", () => {
  test("the run in a replaced table is retained, runs before it are pruned, and previous tables name their runs", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url, postgres: { mode: "replace", key: ["id"], keep_previous: 5 } });
    const [first, second, third] = [night(sink, 1), night(sink, 2), night(sink, 3)];
    for (const plan of [first, second, third]) {
      await publish(sink, plan);
    }
    const previous = async (): Promise<unknown[]> =>
      (await sink.table.prunePrevious((all) => all, true)).map(({ runId }) => runId);
    expect(await previous()).toEqual([second.runId, first.runId]);
    expect(await pruneAt(sink, third)).toEqual({ kind: "retained", why: "its rows are in scores.predictions" });
    await sink.table.rollBack();
    expect(await pruneAt(sink, second)).toEqual({ kind: "retained", why: "its rows are in scores.predictions" });
    expect(await pruneAt(sink, third)).toMatchObject({ kind: "removed", profiles: 4 });
    expect(await sink.table.prunePrevious(([newest]) => (newest ? [newest] : []), false)).toMatchObject([
      { runId: third.runId },
    ]);
    expect(await previous()).toEqual([first.runId]);
    const view = await database.query("SELECT run_id, state FROM infer_batch.progress WHERE run_id LIKE '%-r2'");
    expect(view).toEqual([{ run_id: numberedRunId(third.runId, 2), state: "discarded" }]);
  });

  test("a table of a run that could not be dropped is not among those that were removed", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url });
    const [first, second] = [night(sink, 1), night(sink, 2)];
    await publish(sink, first);
    await publish(sink, second);
    const left = `infer_batch.${stagedRowsTable("infer_batch", first.runId).table}`;
    await database.query(`CREATE TABLE ${left} (id int); CREATE VIEW public.seen AS SELECT * FROM ${left}`);

    expect(await pruneAt(sink, first, { dryRun: true })).toMatchObject({ kind: "removed", tables: [], profiles: 4 });
    expect(await pruneAt(sink, first)).toMatchObject({ kind: "removed", tables: [], profiles: 4 });
    await database.query("DROP VIEW public.seen");
    expect(await pruneAt(sink, first)).toMatchObject({ kind: "removed", tables: [left] });
    expect(await database.query(`SELECT to_regclass('${left}') AS found`)).toEqual([{ found: null }]);
  });

  test("a profile that an open run pins is retained, and a plan with a pin that was pruned is refused", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = pgSink({ url: database.url });
    const [first, second, third] = [night(sink, 1), night(sink, 2), night(sink, 3)];
    await publish(sink, first);
    await sink.create({ ...second, checks: pinOf(first) });
    const retained = { kind: "retained", why: `the checks of run ${second.runId} compare with it` };
    expect(await pruneAt(sink, first)).toEqual(retained);
    expect(await pruneAt(sink, first, { dryRun: true })).toEqual(retained);
    await publish(sink, { ...second, checks: pinOf(first) });
    expect(await pruneAt(sink, first)).toMatchObject({ kind: "removed", profiles: 4 });
    await expect(sink.create({ ...third, checks: pinOf(first) })).rejects.toMatchObject({
      exitCode: 75,
      message: expect.stringContaining(`run ${first.runId}, which it is compared with, was pruned meanwhile`),
    });
    expect(await sink.find(third.runId)).toBeUndefined();
  });
});
