import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { writeRows } from "../support/parquet.js";

/** 2,000 rows of each of two countries, and ten of a third; `de`: SQL of the score of DE, from `u` between 0 and 1. */
const table = (de: string, fr: string): string =>
  `SELECT i AS id, u::VARCHAR AS name, country, CASE country WHEN 'DE' THEN ${de} WHEN 'FR' THEN ${fr} ELSE 0.5 END::FLOAT AS x
   FROM (SELECT i, ((i * 7919) % 4010) / 4010 AS u, CASE WHEN i >= 4000 THEN 'LI' WHEN i % 2 = 0 THEN 'DE' ELSE 'FR' END AS country
         FROM range(4010) t(i))`;

interface SlicesJob {
  readonly slices: readonly string[];
  readonly checks?: object;
}

async function slicedJob(folder: string, { slices, checks }: SlicesJob): ReturnType<typeof smallJob> {
  return await smallJob(folder, {
    model: identity,
    select: table("u", "1 + u"),
    params: { ds: "${today}" },
    commit_rows: 700,
    output: { columns: ["id", "country", "name"], parquet: { path: "out/dt=${ds}" } },
    checks: { slices, ...checks },
  });
}

const night = async (spec: string, date: string, ...args: string[]): Promise<CliResult> =>
  await runHere(["run", spec, "--param", `ds=${date}`, ...args]);

async function profileText(folder: string, date: string): Promise<string> {
  const runs = join(folder, `out/dt=${date}/_infer-batch`);
  const run = (await readdir(runs)).find((name) => name.startsWith("small-"));
  return await readFile(join(runs, run ?? "", "profile.json"), "utf8");
}

test("a run warns if the predictions of one value of a column differ from earlier runs, though those of all rows do not", async () => {
  const { spec } = await slicedJob(scratch.path, { slices: ["country"] });
  await expectEnd(night(spec, "2026-11-20"), 0);
  const profile = await profileText(scratch.path, "2026-11-20");
  expect(profile).toContain('"slices":[["country=DE",[["score"');
  expect(profile).toContain('["country=FR",');
  expect(profile).not.toContain("country=LI"); // of ten rows

  await writeRows(join(scratch.path, "in/a.parquet"), table("1 + u", "u"));
  const next = await expectEnd(
    night(spec, "2026-11-21"),
    0,
    /checks: country=DE: score: .*\(2026-11-20\)/,
    /checks: country=FR: score: .*\(2026-11-20\)/,
  );
  expect(next.stderr).not.toMatch(/checks: score: /);
});

test("the slices of a run by two workers are those of a run by one", async () => {
  const { spec } = await slicedJob(scratch.path, { slices: ["country"] });
  await expectEnd(night(spec, "2026-11-20"), 0);
  await expectEnd(night(spec, "2026-11-21", "--worker", "1/2"), 0);
  await expectEnd(night(spec, "2026-11-21", "--worker", "0/2"), 0);
  const [one, two] = await Promise.all(
    ["2026-11-20", "2026-11-21"].map(async (date) => (await profileText(scratch.path, date)).replace(/^.*?"rows"/, "")),
  );
  expect(two).toBe(one);
});

test("a column of checks.slices with too many values is not checked, and the run warns of it", async () => {
  const { spec } = await slicedJob(scratch.path, { slices: ["name"] });
  await expectEnd(
    night(spec, "2026-11-20"),
    0,
    "checks.slices: `name` has more than 50 values, so its slices are not checked",
  );
  expect(await profileText(scratch.path, "2026-11-20")).not.toContain('"slices"');
});

test.each([
  [["contry"], "there is no column `contry` in output.columns; did you mean `country`?"],
  [["score"], "there is no column `score` in output.columns"],
  [["x"], "there is no column `x` in output.columns"],
])("a column of checks.slices that cannot divide rows is an error of the spec: %s", async (slices, message) => {
  const { spec } = await slicedJob(scratch.path, { slices });
  await expectEnd(night(spec, "2026-11-20"), 64, message, /job\.yaml:\d+:\d+: checks\.slices/);
});
