import { expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import { spanAt, spanCount } from "#src/run/plan/spans.js";
import type { RunSink, StoredPlan } from "#src/targets/target.js";
import type { PostgresSink } from "#src/targets/postgres/sink.js";
import { modes, untilWaiting } from "../../support/pg-amid.js";
import type { Database } from "../../support/pg-database.js";
import { stopAt } from "../../support/pg-stop.js";
import { usePostgres } from "../../support/postgres.js";
import { alone, type BegunRun } from "../../support/sink-drive.js";
import { firstOf } from "../../support/torture.js";
import { begun, idsOf, outputOf, pgSink, type PgSinkOptions, planFor, whole } from "../../support/sinks.js";

const postgres = usePostgres();
const overwriting = modes.filter(([mode]) => mode !== "append");
const [append, upsert, replace] = modes;

/** The run of a night: its predictions are the day of the month, so that it shows whose rows there are. */
interface Night {
  readonly sink: PostgresSink;
  readonly stored: StoredPlan;
  readonly run: BegunRun;
  readonly day: number;
}

function planOfNight(sink: PostgresSink, day: number, region: string): Plan {
  const runId = `job-${region.length}${String(day).padStart(11, "0")}`;
  const params = { ds: `2026-11-0${day}`, region };
  return { ...planFor(sink.planTarget, { runId }), params };
}

interface NightOptions extends Partial<PgSinkOptions> {
  readonly region?: string;
}

function sinkFor({ url }: Database, postgresSpec: PgSinkOptions["postgres"], more: NightOptions = {}): PostgresSink {
  return pgSink({ url, postgres: postgresSpec ?? {}, retrySeconds: 60, ...more });
}

async function night(sink: PostgresSink, day: number, { region = "EU" }: NightOptions = {}): Promise<Night> {
  const { stored, run } = await begun(sink, planOfNight(sink, day, region));
  return { sink, stored, run, day };
}

async function commit({ run, stored, day }: Night, span: number): Promise<void> {
  const which = spanAt(stored.plan, span);
  await run.commit(which, whole(outputOf(idsOf(which), () => day)));
}

async function commitAll(one: Night): Promise<void> {
  for (let span = 0; span < spanCount(one.stored.plan); span += 1) {
    if (!one.run.spans.has(span)) {
      await commit(one, span);
    }
  }
}

async function wholeNight(sink: PostgresSink, day: number, more: NightOptions = {}): Promise<void> {
  const one = await night(sink, day, more);
  await commitAll(one);
  await one.run.finish();
}

/** Day 1's run commits its first spans, then day 2's run is carried out, of a region of its own if need be. */
async function beganBeforeWhole(
  database: Database,
  spec: PgSinkOptions["postgres"],
  { region = "EU", early = [0] }: { readonly region?: string; readonly early?: readonly number[] | undefined } = {},
): Promise<void> {
  await using first = sinkFor(database, spec);
  const one = await night(first, 1);
  for (const span of early) {
    await commit(one, span);
  }
  await using second = sinkFor(database, spec);
  await wholeNight(second, 2, { region });
}

async function daysIn(database: Database): Promise<Record<string, number>> {
  const rows = await database.query(
    "SELECT score::int AS day, count(*)::int AS n, count(DISTINCT id)::int AS ids FROM scores.predictions GROUP BY 1 ORDER BY 1",
  );
  expect(rows.every(({ n, ids }) => n === ids)).toBe(true);
  return Object.fromEntries(rows.map(({ day, n }) => [String(day), Number(n)]));
}

const older = {
  code: "OUTPUT_NEWER",
  exitCode: 66,
  message:
    "writing to scores.predictions: run job-200000000002 was planned after job-200000000001, and has published to this table",
  hint: expect.stringContaining("--allow-older") as string,
};

postgres.describe("an older run that is resumed after a newer one is finished", () => {
  test.each(firstOf(overwriting))(
    "an older run is refused before anything is scored, and the newer rows stay: %s",
    async (_mode, spec) => {
      await using database = await postgres.server().createDatabase();
      await beganBeforeWhole(database, spec);

      const { run } = await again(database, spec);
      await expect(run.begin(alone)).rejects.toMatchObject({
        ...older,
        hint:
          spec.mode === "replace"
            ? "the newer rows stay; to replace the whole table with the rows of this older run: run the same command with --allow-older"
            : "the newer rows stay, and so do the rows that this run has committed; if rows of this older run may replace those with the same keys, or no key is in both runs: run the same command with --allow-older",
      });

      expect(await daysIn(database)).toEqual({ 2: 25 });
    },
  );

  test.each(firstOf(overwriting.toReversed()))(
    "an older run replaces the newer rows with --allow-older, and warns: %s",
    async (_, spec) => {
      await using database = await postgres.server().createDatabase();
      await beganBeforeWhole(database, spec);

      const warnings: string[] = [];
      await using allowed = sinkFor(database, spec, { allowOlder: true, warn: (text) => warnings.push(text) });
      await wholeNight(allowed, 1);

      expect(await daysIn(database)).toEqual(spec.mode === "replace" ? { 1: 25 } : { 1: 15, 2: 10 });
      const replaced = spec.mode === "replace" ? "the whole table" : "rows with the same keys";
      expect(warnings).toEqual([`${older.message}; this older run may replace ${replaced}, as --allow-older says`]);
    },
  );

  test.each<[string, { spec: PgSinkOptions["postgres"]; region?: string; early?: number[]; days: object }]>([
    ["adds its rows where nothing is overwritten: append", { spec: append[1], days: { 1: 25, 2: 25 } }],
    [
      "goes on in upsert when the newer run is of another series, such as another region",
      { spec: upsert[1], region: "USA", days: { 1: 15, 2: 10 } },
    ],
    [
      "is finished in upsert when all its rows were there before the newer ones",
      { spec: upsert[1], early: [0, 1, 2], days: { 2: 25 } },
    ],
  ])("an older run %s", async (_, { spec, region = "EU", early, days }) => {
    await using database = await postgres.server().createDatabase();
    await beganBeforeWhole(database, spec, { region, early });
    await using sink = sinkFor(database, spec);
    await wholeNight(sink, 1);
    expect(await daysIn(database)).toEqual(days);
    expect(await database.query("SELECT DISTINCT status FROM infer_batch.progress")).toEqual([{ status: "complete" }]);
  });

  test.each([
    ["the same series, which refuses the older run", "EU"],
    ["another series, which does not concern the older run", "USA"],
  ])("a newer run whose plan is damaged counts as a run of %s", async (_, region) => {
    await using database = await postgres.server().createDatabase();
    const [, spec] = upsert;
    await beganBeforeWhole(database, spec, { region });
    await database.query("UPDATE infer_batch.runs SET plan = left(plan, 100) WHERE run_id LIKE '%2'");

    await using resumed = sinkFor(database, spec);
    if (region === "EU") {
      await expect(wholeNight(resumed, 1)).rejects.toMatchObject(older);
    } else {
      await wholeNight(resumed, 1);
    }
    expect(await daysIn(database)).toEqual(region === "EU" ? { 2: 25 } : { 1: 15, 2: 10 });
  });

  test("an older run goes on when the newer one has committed nothing yet, or was rolled back", async () => {
    await using database = await postgres.server().createDatabase();
    const [, spec] = replace;
    await using first = sinkFor(database, spec);
    await wholeNight(first, 3);
    const one = await night(first, 1);
    await using second = sinkFor(database, spec);
    await night(second, 2);
    await commitAll(one);
    await wholeNight(second, 2);
    await second.table.rollBack();
    await one.run.finish();
    expect(await daysIn(database)).toEqual({ 1: 25 });
  });
});

async function again(database: Database, spec: PgSinkOptions["postgres"]): Promise<{ run: RunSink }> {
  const sink = sinkFor(database, spec);
  const stored = await sink.find(planOfNight(sink, 1, "EU").runId);
  if (stored === undefined) {
    throw new Error("the run of day 1 is not planned");
  }
  return { run: await sink.open(stored) };
}

postgres.describe("an older run and a newer one that publish at the same time", () => {
  const tables = [
    ["a table", "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real)"],
    ["no table yet", "SELECT"],
  ] as const;
  const replacing = overwriting.filter(([, { mode }]) => mode === "replace");
  const cases = replacing.flatMap(([mode, spec]) => tables.map(([what, sql]) => ({ mode, spec, what, sql })));

  const order = cases.flatMap(({ mode, spec, what, sql }) =>
    (["older", "newer"] as const).map((first) => ({ mode, spec, what, sql, first })),
  );
  test.each(order)("the newer run's rows stay when the $first run publishes first; $mode, $what", async (race) => {
    const { spec, sql, first } = race;
    await using database = await postgres.server().createDatabase();
    await database.query(sql);
    await using oneSink = sinkFor(database, spec);
    await using twoSink = sinkFor(database, spec);
    const [one, two] = [await night(oneSink, 1), await night(twoSink, 2)];
    await Promise.all([commitAll(one), commitAll(two)]);
    const [leader, follower] = first === "older" ? [one, two] : [two, one];
    using stop = stopAt("before", /^INSERT INTO "infer_batch"\.finishes/);
    const leading = leader.run.finish();
    await stop.reached;
    const following = follower.run.finish();
    await untilWaiting(database, { work: following });
    stop.go();
    await leading;
    await (first === "older" ? following : expect(following).rejects.toMatchObject(older));
    expect(await daysIn(database)).toEqual({ 2: 25 });
  });

  const controlRow = /^INSERT INTO "infer_batch"\.spans/;
  test.each([
    ["the older one", 1],
    ["the newer one", 2],
  ] as const)("the newer rows stay in upsert when %s publishes first", async (_, early) => {
    await using database = await postgres.server().createDatabase();
    const [, spec] = upsert;
    await using first = sinkFor(database, spec);
    await using second = sinkFor(database, spec);
    const nights = [await night(first, 1), await night(second, 2)] as const;
    const [one, two] = early === 1 ? nights : ([nights[1], nights[0]] as const);
    using stop = stopAt("before", controlRow);
    const leading = commit(one, 0);
    await stop.reached;
    const following = commit(two, 0);
    await untilWaiting(database, { work: following });
    stop.go();
    await leading;
    await (early === 1 ? following : expect(following).rejects.toMatchObject(older));
    expect(await daysIn(database)).toEqual({ 2: 10 });
    await expect(commit(nights[0], 1)).rejects.toMatchObject(older);
  });
});
