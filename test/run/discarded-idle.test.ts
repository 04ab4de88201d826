import { expect, test } from "vitest";
import { openJob } from "#src/job/job-context.js";
import type { RunReport } from "#src/report/report.js";
import { runJob } from "#src/run/run.js";
import type { RunSink } from "#src/targets/target.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { lastJson, nightlyJob, type Nights } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";
import { alone } from "../support/score.js";
import { expectEnd } from "../support/cli.js";

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

const postgres = usePostgres();

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
