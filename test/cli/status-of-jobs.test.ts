import { readdir, rename, truncate, writeFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { fixtures, type Fixture, scratch, writeSpec } from "../support/job.js";
import { shownCli } from "../support/shown.js";
import { fewRows, type Nights, nightlyJob } from "../support/nights.js";

const wine = fixtures.find(({ name }) => name === "wine-forest") as Fixture;

test("status of several specs is a table with a line for each, and ends with the first error", async () => {
  const inFolder = (name: string): string => join(scratch.path, name);
  const specs = ["complete.yaml", "damaged.yaml", "late.yaml", "wrong.yaml"];
  for (const name of specs.slice(0, 3)) {
    const spec = await writeSpec(scratch.path, wine, {
      commit_rows: 50,
      name: name.replace(".yaml", ""),
      output: { columns: ["id"], parquet: { path: name.replace(".yaml", "-out") } },
    });
    await rename(spec, inFolder(name));
  }
  await writeFile(inFolder("wrong.yaml"), "version: 1\n");
  await runHere(["run", inFolder("complete.yaml"), "--quiet"]);
  await runHere(["run", inFolder("damaged.yaml"), "--quiet"]);
  const names = await readdir(inFolder("damaged-out"));
  const part = names.find((name) => name.endsWith(".parquet"));
  await truncate(inFolder(`damaged-out/${part}`), 100);

  const paths = specs.map(inFolder);
  const table = async (...options: string[]): Promise<string> =>
    (await shownCli(["status", ...options, ...paths], scratch.path))
      .replaceAll(/ {2,}/g, "  ")
      .replaceAll(/says \d+ bytes/g, "says <size> bytes");
  expect(await table()).toMatchSnapshot();
  expect(await table("--failed")).toMatchSnapshot();
  expect(await table("--held")).toContain("stdout\n4 jobs: 1 published, 1 damaged, 1 not planned, 1 error\n");
  for (const [columns, heads, leftOut] of [
    [72, /^ {2}spec +run +status +rows committed\n/, "planned\n"],
    [48, /^ {2}spec +status\n/, "run, rows\ncommitted, planned\n"],
  ] as const) {
    const narrow = await runHere(["status", ...specs], { columns, cwd: scratch.path });
    const lines = narrow.stdout.trim().split("\n").slice(0, -1); // the last counts the jobs
    expect(lines.filter((line) => line.length > columns)).toEqual([]);
    expect(narrow.stdout).toMatch(heads);
    expect(narrow.stdout).toContain(`no room in ${columns} characters for: ${leftOut}`);
  }
  const { stdout } = await runHere(["status", "--json", ...paths]);
  const lines = stdout.trim().split("\n");
  expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
    { spec: paths[0], status: "published", rows_planned: 178, rows_committed: 178 },
    { spec: paths[1], status: "damaged", rows_committed: null },
    { spec: paths[2], status: "not_planned", rows_committed: 0 },
    { spec: paths[3], status: "error" },
  ]);
});

/** A time zone in which it is between 12:00 and 13:00 now. (Names of Etc/GMT have the sign of POSIX.) */
function noonZone(): string {
  const ahead = 12 - new Date().getUTCHours();
  return ahead === 0 ? "UTC" : `Etc/GMT${ahead > 0 ? "-" : "+"}${Math.abs(ahead)}`;
}

async function jobIn(folder: string, name: string): Promise<Nights> {
  await mkdir(join(folder, name));
  return await nightlyJob(join(folder, name), { name, timezone: noonZone() });
}

const by = (time: string, met: boolean | null): object => ({ time, timezone: noonZone(), met });

const statusOf = (jobs: readonly Nights[], ...options: string[]): ReturnType<typeof runHere> =>
  runHere(["status", ...jobs.map(({ spec }) => spec), ...options]);

test("status --expect-by names each job whose run of today is not published, once it is that late in its time zone", async () => {
  const done = await jobIn(scratch.path, "done");
  const late = await jobIn(scratch.path, "late");
  const held = await jobIn(scratch.path, "held");
  expect((await runHere(["run", done.spec, "--quiet"])).code).toBe(0);
  expect((await late.night("run", "2001-01-01", "--quiet")).code).toBe(0); // another day's run does not count
  expect((await held.night("run", "2001-01-01", "--quiet")).code).toBe(0);
  await held.rewrite(fewRows);
  expect((await runHere(["run", held.spec, "--quiet"])).code).toBe(67);

  const early = await statusOf([done, late, held], "--expect-by", "18:00");
  expect([early.code, early.stderr]).toEqual([0, ""]);
  expect((await statusOf([done], "--expect-by", "06:00")).code).toBe(0);

  const due = await statusOf([done, late, held], "--expect-by", "06:00");
  expect(due.code).toBe(67);
  expect(due.stderr).toMatch(
    /^error: looking for runs that should be published by 06:00: 2 of 3 jobs have none\n {2}\S+late\/job\.yaml: run late-\S+ is not planned\n {2}\S+held\/job\.yaml: run held-\S+ is held: 50 rows .*\n {2}hint: infer-batch run \S+late\/job\.yaml --param ds=20\S+\n {4}infer-batch status \S+held\/job\.yaml --param ds=20\S+\n$/,
  );
  expect(due.stdout).toMatch(/done\/job\.yaml .*published[^]*3 jobs: 1 published, 1 not planned, 1 held\n$/);

  const lines = async (time: string): Promise<unknown> =>
    (await statusOf([done, late], "--expect-by", time, "--json")).stdout
      .trim()
      .split("\n")
      .map((line) => (JSON.parse(line) as { expected_by: unknown }).expected_by);
  expect(await lines("06:00")).toEqual([by("06:00", true), by("06:00", false)]);
  expect(await lines("18:00")).toEqual([by("18:00", null), by("18:00", null)]);
});

test("status --expect-by ends with 64 if a spec cannot be read or has no date, and still names the others", async () => {
  const late = await jobIn(scratch.path, "late");
  const undated = await jobIn(scratch.path, "undated");
  await undated.rewrite({ params: {}, output: { parquet: { path: "out" } } });
  const wrong = join(scratch.path, "wrong.yaml");
  await writeFile(wrong, "version: 1\n");

  const { code, stderr } = await runHere(["status", wrong, undated.spec, late.spec, "--expect-by", "06:00"]);
  expect(code, stderr).toBe(64);
  expect(stderr).toMatch(/1 of 3 jobs has none\n {2}\S+late\/job\.yaml: run late-\S+ is not planned\n/);
  expect(stderr).toMatch(
    /\n {2}reading \S+wrong\.yaml: 4 problems\n[^]*\n {2}expecting a run of undated by 06:00: the job has no date\n/,
  );

  const early = await runHere(["status", late.spec, wrong, "--expect-by", "18:00"]);
  expect([early.code, early.stderr]).toEqual([
    64,
    expect.stringMatching(/^error: reading \S+wrong\.yaml: 4 problems\n/),
  ]);
  for (const time of ["6:00", "24:00", "noon"]) {
    expect(await runHere(["status", late.spec, "--expect-by", time])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining("expected a time of day such as 06:00") as string,
    });
  }
});
