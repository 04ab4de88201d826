import { rm, writeFile } from "node:fs/promises";
import { expect, test } from "vitest";
import type { OpenedJob } from "#src/flow/opened-job.js";
import { unfinishedRuns } from "#src/run/hints.js";
import type { Plan } from "#src/run/plan/plan.js";
import { expectEnd, runHere } from "../support/cli.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { lastJson, nightlyJob } from "../support/nights.js";
import { faultsOfFinished, listing, outputRows } from "../support/output.js";
import { usePostgres } from "../support/postgres.js";
import { leaveUnfinished, runSpec } from "../support/score.js";
import { firstOf } from "../support/torture.js";
import { type OwnJob, ownJob } from "../support/world.js";

async function expectGolden({ out, fixture }: OwnJob): Promise<void> {
  expect(differences(await outputRows(out), await goldenRows(fixture))).toEqual([]);
  expect(await faultsOfFinished(out, fixture.rows)).toEqual([]);
}

test("a finished run reports already_complete and changes no file when it is run again", async () => {
  const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: 100 });
  expect((await runSpec(job.spec)).summary).toMatchObject({ status: "complete", rows_scored: 569, spans_resumed: 0 });
  const before = await listing(scratch.path);

  const again = await expectEnd(runSpec(job.spec), 0);
  expect(again.summary).toMatchObject({
    status: "already_complete",
    rows_planned: 569,
    rows_scored: 0,
    spans_planned: 6,
    spans_committed: 6,
    spans_resumed: 6,
  });
  expect(await listing(scratch.path)).toEqual(before);
});

test("a run whose finish died between the last part and _SUCCESS is finished by the next attempt", async () => {
  const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: 100 });
  await leaveUnfinished(job.spec, job.out, () => true);

  const again = await runSpec(job.spec);

  expect(again.summary).toMatchObject({ status: "complete", rows_scored: 0, spans_resumed: 6 });
  await expectGolden(job);
});

test.each([
  { what: "the last spans", keep: (span: number) => span > 10 },
  { what: "every other span", keep: (span: number) => span % 2 === 0 },
  { what: "all spans but one", keep: (span: number) => span !== 9 },
])("an unfinished run of which $what are committed scores only the missing rows", async ({ keep }) => {
  const job = await ownJob(scratch.path, "digits-lightgbm", { commit_rows: 100 });
  const kept = await leaveUnfinished(job.spec, job.out, keep);
  const before = (await listing(job.out)).filter((line) => kept.some((name) => line.startsWith(name)));
  const missing = Array.from({ length: 18 }, (_, span) => span).filter((span) => !keep(span));

  const { summary } = await expectEnd(runSpec(job.spec), 0);
  expect(summary).toMatchObject({
    status: "complete",
    rows_scored: missing.reduce((rows, span) => rows + (span === 17 ? 97 : 100), 0),
    spans_committed: 18,
    spans_resumed: kept.length,
  });
  await expectGolden(job);
  const after = (await listing(job.out)).filter((line) => kept.some((name) => line.startsWith(name)));
  expect(after).toEqual(before);
});

test("an unfinished run does not read shards whose rows are all committed: they may be gone or overwritten", async () => {
  const job = await ownJob(scratch.path, "digits-lightgbm", { commit_rows: 100 });
  // Shards end at rows 500, 799, 1400 and 1797: the last one and the third hold all that is missing.
  await leaveUnfinished(job.spec, job.out, (span) => span < 8);
  await rm(job.shard(0));
  await writeFile(job.shard(1), "no longer Parquet");

  const { summary } = await expectEnd(runSpec(job.spec), 0);
  expect(summary).toMatchObject({ status: "complete", rows_scored: 997, spans_resumed: 8 });
  await expectGolden(job);
});

test("an unfinished run reads only the missing rows of a shard that is partly committed", async () => {
  const job = await ownJob(scratch.path, "digits-lightgbm", { commit_rows: 100 });
  // Span 4 is rows 400 to 499: the last of shard 0. Span 5 begins shard 1.
  await leaveUnfinished(job.spec, job.out, (span) => span !== 4);
  for (const index of [1, 2, 3]) {
    await rm(job.shard(index));
  }

  const { summary } = await expectEnd(runSpec(job.spec), 0);
  expect(summary).toMatchObject({ status: "complete", rows_scored: 100, spans_resumed: 17 });
  await expectGolden(job);
});

test("an unfinished run keeps the commit_rows it was planned with, and says so", async () => {
  const job = await ownJob(scratch.path, "diabetes-mlp", { commit_rows: 100 });
  await leaveUnfinished(job.spec, job.out, (span) => span === 0);
  await job.rewrite({ commit_rows: 50 });

  const { summary } = await expectEnd(runSpec(job.spec), 0, /commit_rows stays 100/);
  expect(summary).toMatchObject({ spans_planned: 5, spans_resumed: 1 });
  await expectGolden(job);
});

test("an unfinished run may be resumed with other engine settings and another compression", async () => {
  const job = await ownJob(scratch.path, "diabetes-mlp", { commit_rows: 100 });
  await leaveUnfinished(job.spec, job.out, (span) => span === 2);
  const output = { parquet: { path: "out", compression: "gzip" } };
  await job.rewrite({ commit_rows: 100, engine: { threads: 2, batch_size: 3 }, output });

  const { summary } = await expectEnd(runSpec(job.spec), 0);
  expect(summary).toMatchObject({ rows_scored: 342, spans_resumed: 1 });
  await expectGolden(job);
});

const postgres = usePostgres();

postgres.describe("an unfinished run whose rows another run has replaced", () => {
  test.each(
    firstOf([
      ["append", []],
      ["upsert", ["id"]],
    ] as const),
  )("the warning about it says so, and names a command that works: %s", async (mode, key) => {
    await using database = await postgres.server().createDatabase();
    const table = { url: database.url, table: "scores.predictions", mode, key };
    const nights = await nightlyJob(scratch.path, {
      checks: undefined,
      output: { parquet: undefined, postgres: table },
    });
    await expectEnd(nights.night("run", "2026-11-20", "--worker", "0/2"), 0);
    const before = await nights.night("status", "2026-11-21");
    expect(before.stdout).toMatch(
      / is not finished; to finish it: infer-batch run \S+ --param ds=2026-11-20( \(with --allow-older, once .*\))?\n$/,
    );

    await nights.rewrite({
      name: "other",
      output: { parquet: undefined, postgres: { ...table, mode: "replace", key: ["id"] } },
    });
    await expectEnd(nights.night("run", "2026-11-19"), 0);
    await nights.rewrite({});
    await expectEnd(nights.night("run", "2026-11-20"), 66);

    const { stdout } = await nights.night("status", "2026-11-21");
    const text = /( is not finished, .*); to score it again: infer-batch (.*?)( \(with --allow-older, once .*\))?$/m;
    const [said = "", why, early = ""] = text.exec(stdout) ?? [];
    expect(why, stdout).toMatch(
      /^ is not finished, and its rows there are gone: run other-\S+ has replaced all rows since$/,
    );
    const { stderr } = await nights.night("run", "2026-11-21", "--worker", "0/2");
    expect(stderr).toContain(said);
    const { unfinished } = lastJson(await nights.night("status", "2026-11-22", "--json"));
    expect(unfinished).toMatchObject([{ command: `infer-batch ${early}` }, {}]);
    await expectEnd(runHere([...early.split(" "), ...(mode === "append" ? [] : ["--allow-older"])]), 0);
    expect((await nights.night("status", "2026-11-21")).stdout).not.toContain("2026-11-20");
  });
});

/** A job with unfinished runs of these params, in the order of a sink. */
function jobWith(dateParam: string | null, ...runs: Record<string, string>[]): OpenedJob {
  const plans = runs.map(
    (params, index) =>
      ({ runId: `daily-${index}`, params, dateParam, checks: null, target: { kind: "parquet" } }) as unknown as Plan,
  );
  return {
    job: { spec: { name: "daily", params: {}, input: {} }, command: () => "infer-batch run job.yaml" },
    sink: {
      history: () =>
        Promise.resolve(plans.map((plan) => ({ plan, place: "scores.a", status: "unfinished" })).toReversed()),
    },
  } as unknown as OpenedJob;
}

test.each([
  ["dates", "ds", [{ ds: "2026-11-20" }, { ds: "2026-11-22" }, { ds: "2026-11-21" }], [0, 2, 1]],
  ["no dates", null, [{ month: "2026-11" }, { month: "2026-10" }, { month: "2026-09" }], [0, 1, 2]],
  [
    "one date",
    "ds",
    [
      { ds: "2026-11-20", shop: "b" },
      { ds: "2026-11-20", shop: "a" },
    ],
    [0, 1],
  ],
] as const)(
  "unfinished runs are in the order of their dates, then in that of the sink: %s",
  async (_, param, runs, order) => {
    const { job, sink } = jobWith(param, ...runs);
    const found = await unfinishedRuns(job, sink);
    expect(found.map(({ runId }) => runId)).toEqual(order.map((index) => `daily-${index}`));
  },
);
