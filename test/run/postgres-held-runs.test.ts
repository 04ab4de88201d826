import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openJob } from "#src/job/open.js";
import type { RunReport } from "#src/report/report.js";
import { runJob } from "#src/run/run.js";
import type { RunSink } from "#src/targets/target.js";
import { expectEnd, projectFolder } from "../support/cli.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { fewRows, heldNight, lastJson, nightlyJob, type Nights, nightsInTable } from "../support/nights.js";
import { writeRows } from "../support/parquet.js";
import { leftTables } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { statesIn } from "../support/pg-staged.js";
import { usePostgres } from "../support/postgres.js";
import { alone } from "../support/score.js";
import { firstOf } from "../support/torture.js";

const postgres = usePostgres();
const inPage = { report: { html: "page-${ds}.html" } };
const modes = ["append", "upsert", "replace"] as const;

const rowCount = async (database: Database): Promise<number> =>
  (await database.query("SELECT FROM scores.predictions")).length;

postgres.describe("a run into Postgres whose checks fail", () => {
  test.each(firstOf(modes))(
    "a run into Postgres is held, and approve publishes it without model and input: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const nights = await nightsInTable(scratch.path, database, mode, inPage);
      const runId = await heldNight(nights);
      const page = await readFile(join(scratch.path, "page-2026-11-21.html"), "utf8");
      expect(page, "the times of both runs").toMatch(
        /duration <b>.* s<\/b><\/figcaption><svg[^>]*><path class="line" d="M4 \S+L116 \S+"/,
      );
      const still = await nights.night("run", "2026-11-21");
      expect([still.code, still.stdout]).toEqual([
        67,
        `${runId}: held, 50 rows wait for a decision (392 filtered out)\n`,
      ]);
      expect([await rowCount(database), await statesIn(database)]).toEqual([
        442,
        expect.arrayContaining(["published", "held"]),
      ]);

      await nights.rewrite({ ...fewRows, input: { path: "gone/*.parquet" }, model: { path: "gone.onnx" } });
      const approved = await nights.night("approve", "2026-11-21", "--reason", "a small day", "--by", "ann", "--json");
      expect([approved.code, approved.stderr]).toEqual([0, ""]);
      expect(lastJson(approved)).toMatchObject({ run_id: runId, status: "published", decision: { by: "ann" } });
      expect(await rowCount(database)).toBe({ append: 492, upsert: 442, replace: 50 }[mode]);
      expect([await statesIn(database), await leftTables(database)]).toEqual([["published", "published"], []]);
      for (const { profile } of await database.query("SELECT profile FROM infer_batch.finishes")) {
        const { features } = JSON.parse(String(profile)) as {
          features: [string, { values: Record<string, number> }][];
        };
        const named = features.flatMap(([, { values }]) => Object.values(values ?? {}));
        expect(Math.min(...named), "rows of a value that the profile of a run names").toBeGreaterThanOrEqual(20);
      }
      await expectEnd(nights.night("approve", "2026-11-21"), 0);
      const { decision } = lastJson(await nights.night("status", "2026-11-21", "--json"));
      expect(decision).toMatchObject({ kind: "approved", by: "ann", reason: "a small day", asBaseline: true });
    },
  );

  test.each(firstOf(modes))(
    "a newer run says how to publish a held one, and what that takes once it is published itself: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const nights = await nightsInTable(scratch.path, database, mode, inPage);
      const runId = await heldNight(nights);
      await nights.rewrite({});
      const { stderr } = await nights.night("run", "2026-11-22");
      const approve = `infer-batch approve ${nights.spec} --param ds=2026-11-21 --run ${runId}`;
      const overwrites = mode !== "append";
      const older = overwrites ? " (with --allow-older, once a run of a later date is published)" : "";
      expect(stderr).toContain(`to publish it: ${approve}${older}; to throw it away: infer-batch discard `);
      const approved = await nights.night("approve", "2026-11-21");
      expect([approved.code, approved.stderr]).toEqual(
        overwrites ? [66, expect.stringMatching(/later date.*--allow-older/s)] : [0, expect.any(String)],
      );
      await expectEnd(
        nights.night("approve", "2026-11-21", "--allow-older"),
        0,
        overwrites ? "as --allow-older says" : "",
      );
      expect(await statesIn(database)).toEqual(["published", "published", "published"]);
    },
  );

  test.each(firstOf(["upsert", "replace"] as const))(
    "a held run stays held if --new-run may not replace the rows of a later date, and can then be approved: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const nights = await nightsInTable(scratch.path, database, mode, inPage);
      const runId = await heldNight(nights);
      await nights.rewrite({});
      await expectEnd(nights.night("run", "2026-11-22", "--json"), 0);

      await expectEnd(
        nights.night("run", "2026-11-21", "--new-run"),
        66,
        /^error: writing to scores\.predictions: run \S+ is for a later date than \S+-r2, and has published to this table\n {2}hint: the newer rows stay; .* with --allow-older\n$/m,
      );
      expect(await database.query("SELECT run_id FROM infer_batch.runs WHERE number > 1")).toEqual([]);
      expect(lastJson(await nights.night("status", "2026-11-21", "--json"))).toMatchObject({
        run_id: runId,
        status: "held",
      });

      await expectEnd(nights.night("approve", "2026-11-21", "--run", runId, "--allow-older"), 0);
      const next = await expectEnd(nights.night("run", "2026-11-21", "--new-run", "--allow-older", "--json"), 0);
      expect(lastJson(next)).toMatchObject({ run_id: `${runId}-r2`, status: "complete" });
    },
  );

  test("a run into Postgres is published as it comes with on_fail: warn, with its verdict", async () => {
    await using database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, "upsert", inPage);
    await nights.night("run", "2026-11-20");
    await nights.rewrite({ ...fewRows, checks: { on_fail: "warn" } });
    const done = await nights.night("run", "2026-11-21", "--json");
    expect([done.code, lastJson(done)["verdict"]]).toEqual([
      0,
      expect.objectContaining({ failed: [expect.stringContaining("50 rows")] }),
    ]);
    expect(await database.query("SELECT outcome FROM infer_batch.verdicts ORDER BY judged_at")).toHaveLength(2);
  });

  test.each(firstOf(modes.toReversed()))(
    "a night whose input has no rows is judged and published, or held and approved: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const nights = await nightsInTable(scratch.path, database, mode, inPage);
      const data = join(projectFolder, "fixtures/data/diabetes/*.parquet");
      await mkdir(join(scratch.path, "empty"));
      await writeRows(join(scratch.path, "empty/a.parquet"), `SELECT * FROM read_parquet('${data}') LIMIT 0`);
      await expectEnd(nights.night("run", "2026-11-20"), 0);
      await nights.rewrite({ input: { path: "empty/*.parquet", min_rows: 0 } });
      expect((await expectEnd(nights.night("run", "2026-11-21"), 67)).stdout).toContain("held, 0 rows wait");
      expect((await expectEnd(nights.night("approve", "2026-11-21"), 0)).stdout).toContain("published, 0 rows");
      expect((await expectEnd(nights.night("run", "2026-11-22"), 0)).stdout).toContain("0 rows");
      expect(await rowCount(database)).toBe(mode === "replace" ? 0 : 442);
    },
  );
});

const date = "2026-11-20";

/** Carries out a night in this process. @param before called before the run's sink does `act` */
async function nightWith(spec: string, act: "begin" | "profile", before: () => Promise<unknown>): Promise<RunReport> {
  await using job = await openJob(spec, { param: [`ds=${date}`] }, { attempt: alone });
  const { sink } = job;
  const watched = (run: RunSink): RunSink =>
    new Proxy(run, {
      get: (of, name) =>
        name === act
          ? async (...args: never[]) => {
              await before();
              return await (of[act] as (...args: never[]) => Promise<unknown>)(...args);
            }
          : Reflect.get(of, name),
    });
  return await runJob({ ...job, sink: { ...sink, open: async (stored) => watched(await sink.open(stored)) } });
}

/** A night all of whose spans are committed, and that has no verdict yet. */
async function committedNight(folder: string, overrides: SpecOverrides): Promise<Nights> {
  const nights = await nightlyJob(folder, overrides);
  const killed = nightWith(nights.spec, "profile", () => Promise.reject(new Error("killed")));
  await expect(killed).rejects.toThrow("killed");
  return nights;
}

/** Discards a run that an attempt is about to finish, and expects that it reports what a later attempt reports. */
async function expectDiscarded(nights: Nights, act: "begin" | "profile"): Promise<void> {
  const report = await nightWith(nights.spec, act, async () => {
    await expectEnd(nights.night("discard", date, "--by", "ann"), 0);
  });

  expect(report).toMatchObject({ status: "discarded", decided: { error: { exitCode: 67 } } });
  const later = await nights.night("run", date, "--json");
  expect([later.code, lastJson(later)["status"]]).toEqual([67, "discarded"]);
  expect(later.stderr).toContain(report.decided?.error.message);
}

test.each(["begin", "profile"] as const)(
  "an attempt that finds all spans committed reports that a person has discarded the run meanwhile: before %s",
  async (act) => {
    await expectDiscarded(await committedNight(scratch.path, {}), act);
  },
);

postgres.describe("a run into Postgres", () => {
  test.each(["begin", "profile"] as const)(
    "an attempt that finds all spans in Postgres reports that a person has discarded the run meanwhile: before %s",
    async (act) => {
      await using database = await postgres.server().createDatabase();
      const table = { url: database.url, table: "scores.predictions", mode: "append" };
      const output = { parquet: undefined, postgres: table };
      await expectDiscarded(await committedNight(scratch.path, { output }), act);
    },
  );
});
