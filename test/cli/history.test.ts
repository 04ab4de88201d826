import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, nightlyJob } from "../support/nights.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();

/** Ids, times and durations of a table, in the same words in each run of the test. */
function steady(text: string): string {
  return text
    .replaceAll(projectFolder, "PROJECT")
    .replaceAll(/\b[\d.]+ s\b/g, "DURATION")
    .replaceAll(/\b\d of 5 spans/g, "SOME of 5 spans")
    .replaceAll(/-[\da-f]{12}\b/g, "-ID")
    .replaceAll(/\b[\da-f]{12}\b/g, "MODEL")
    .replaceAll(/20\d\d-\d\d-\d\d \d\d:\d\dZ/g, "TIME")
    .replaceAll(/ {2,}/g, "  ");
}

test("history lists the runs of a job with their status; status shows why a run stopped", async () => {
  const job = await nightlyJob(scratch.path);
  expect((await job.night("history", "2026-11-20")).stdout).toBe("0 runs of diabetes-mlp\n");
  await job.night("run", "2026-11-20");
  await job.rewrite(fewRows);
  await job.night("run", "2026-11-21");
  await job.night("approve", "2026-11-21", "--not-normal", "--by", "ana", "--reason", "one shop only");
  await job.night("run", "2026-11-22");
  await job.night("discard", "2026-11-22", "--by", "ana");
  await job.night("run", "2026-11-23");
  // A run that stops: a row of its input cannot be scored.
  await job.rewrite({ on_bad_row: "fail", input: { columns: { s1: "if(id = 300, NULL, s1)" } } });
  const stopped = await job.night("run", "2026-11-24");
  expect([stopped.code, stopped.stderr]).toEqual([65, expect.stringContaining("is NULL")]);

  const status = await job.night("status", "2026-11-24");
  expect(status.stdout).toMatch(
    /unfinished.*\n {2}last error, at 20\d\d-\S+Z: scoring .*row 50, .*is NULL\n {2}to continue, after you fix the cause: infer-batch run \S+ --param ds=2026-11-24\n/,
  );
  expect(lastJson(await job.night("status", "2026-11-24", "--json"))).toMatchObject({
    last_error: { code: "BAD_ROW", message: expect.stringContaining("is NULL") },
  });

  const { stdout } = await job.night("history", "2026-11-24");
  expect(steady(stdout)).toMatchSnapshot();
  const narrow = await runHere(["history", job.spec, "--param", "ds=2026-11-24"], { columns: 80 });
  expect(narrow.stdout.split("\n").filter((line) => line.length > 80)).toEqual([]);
  expect(narrow.stdout).toMatch(/^ {2}run +params +status +rows +rejected\b/);
  expect(narrow.stdout).toMatch(
    /^ {2}diabetes-mlp-\S+ +ds=2026-11-21 +published +50 +0\b.*\n {6}approved by ana, as not normal: one shop only\n/m,
  );
  expect(narrow.stdout).toMatch(/^no room in 80 characters for: (?:duration, )?model \([\da-f]{12} in all rows\)/m);
  const few = lastJson(await job.night("history", "2026-11-24", "--last", "2", "--json"));
  expect(few).toMatchObject({
    more: true,
    runs: [
      {
        status: "failed",
        spans_committed: expect.any(Number),
        last_error: { code: "BAD_ROW" },
        params: { ds: "2026-11-24" },
      },
      { status: "held", rows: 50, rows_rejected: 0, failed: [expect.stringContaining("rows")], decision: null },
    ],
  });
  await job.rewrite({});
  await job.night("run", "2026-11-24", "--new-run");
  const both = lastJson(await job.night("history", "2026-11-24", "--last", "2", "--json"));
  expect(both).toMatchObject({ runs: [{ status: "published", rows: 442 }, { status: "abandoned" }] });
});

test("a run records why it cannot be resumed, and a published run does not", async () => {
  const job = await nightlyJob(scratch.path, { checks: undefined });
  await job.rewrite({ on_bad_row: "fail", input: { columns: { s1: "if(id = 300, NULL, s1)" } } });
  await job.night("run", "2026-11-24");
  await job.rewrite({});
  expect((await job.night("run", "2026-11-24")).code).toBe(66);
  expect(lastJson(await job.night("status", "2026-11-24", "--json"))).toMatchObject({
    last_error: { code: "PLAN_CHANGED" },
    commands: [expect.stringMatching(/ --param ds=2026-11-24 --new-run$/)],
  });
  expect((await job.night("status", "2026-11-24")).stdout).toContain(
    "\n  to continue, restore what changed; to score again with the change: infer-batch run ",
  );
  await job.night("run", "2026-11-24", "--new-run");
  const changed = { input: { where: "id < 400" } };
  await job.rewrite(changed);
  expect((await job.night("run", "2026-11-24")).code).toBe(66);
  const control = join(job.folder("2026-11-24"), "_infer-batch");
  const run = (lastJson(await job.night("status", "2026-11-24", "--json")) as { run_id: string }).run_id;
  expect(run).toMatch(/-r2$/);
  await expect(readFile(join(control, run, "errors.json"))).rejects.toThrow("ENOENT");
});

test("history --last refuses a text that is not a number", async () => {
  const { code, stderr } = await runHere(["history", "job.yaml", "--last", "0"]);
  expect([code, stderr]).toEqual([64, expect.stringContaining("expected a number from 1 to 1000")]);
});

postgres.describe("history of a table that is replaced", () => {
  test.each([
    ["upsert", true],
    ["append", false],
  ])("history says if a new run replaced the rows of the run before it: %s", async (mode, isReplaced) => {
    await using database = await postgres.server().createDatabase();
    const output = { postgres: { mode, key: isReplaced ? ["id"] : [] } };
    const spec = await writePgSpec(scratch.path, fixtureNamed("wine-forest"), database, { output });
    expect((await runHere(["run", spec, "--quiet"])).code).toBe(0);
    expect((await runHere(["run", spec, "--quiet", "--new-run", "--allow-duplicates"])).code).toBe(0);

    const { stdout } = await runHere(["history", spec]);

    expect(/ replaced by wine-forest-\w+-r2\n/.test(stdout), stdout).toBe(isReplaced);
  });

  test("history shows a published run whose table was put back as rolled back, and the run before it as published", async () => {
    await using database = await postgres.server().createDatabase();
    const report = { html: "page-${ds}.html" };
    const overrides = { params: { ds: "${today}" }, report, output: { postgres: { mode: "replace" } } };
    const spec = await writePgSpec(scratch.path, fixtureNamed("wine-forest"), database, overrides);
    for (const date of ["2026-01-01", "2026-01-02"]) {
      expect((await runHere(["run", spec, "--quiet", "--param", `ds=${date}`])).code).toBe(0);
    }
    const undone = await runHere(["rollback", spec]);
    expect([undone.code, undone.stderr]).toEqual([0, ""]);
    expect(undone.stdout).toMatch(
      /^scores\.predictions at \S+: run wine-forest-\w+ of 2026-01-02 is rolled back, and its rows are kept as scores\.predictions__undone_\w+; readers have run wine-forest-\w+ of 2026-01-01 again\n$/,
    );
    const { stdout } = await runHere(["history", spec]);
    expect(stdout).toMatch(/ds=2026-01-02 {2}rolled back .*\n.* ds=2026-01-01 {2}published /);
    expect(lastJson(await runHere(["history", spec, "--json"]))).toMatchObject({
      runs: [{ status: "rolled_back" }, { status: "published" }],
    });

    const published = await database.query(
      "SELECT count(*)::int AS runs FROM infer_batch.progress WHERE state = 'published' AND run_id NOT IN (SELECT run_id FROM infer_batch.swaps WHERE action = 'rollback')",
    );
    expect(published, "as docs/postgres.md tells such runs apart").toEqual([{ runs: 1 }]);

    const ofDay = ["--param", "ds=2026-01-02"];
    const status = await runHere(["status", spec, ...ofDay]);
    expect(status.stdout).toMatch(
      /^wine-forest-\w+: rolled back, .*\n {2}readers have run wine-forest-\w+ of 2026-01-01\n {2}infer-batch run .* --new-run\n$/,
    );
    expect(lastJson(await runHere(["status", spec, ...ofDay, "--json"]))).toMatchObject({ status: "rolled_back" });
    const again = await runHere(["run", spec, ...ofDay]);
    expect([again.code, again.stderr]).toEqual([0, ""]);
    expect(again.stdout).toMatch(
      /^wine-forest-\w+: rolled back, its rows are not in scores\.predictions at \S+; readers have run wine-forest-\w+ of 2026-01-01; to score it again: infer-batch run .* --new-run\n$/,
    );
    const approved = await runHere(["approve", spec, ...ofDay]);
    expect([approved.code, approved.stderr]).toEqual([66, expect.stringContaining("published and then rolled back")]);
    const page = await readFile(join(scratch.path, "page-2026-01-02.html"), "utf8");
    expect(page).toContain("<title>ROLLED BACK: wine-forest");
    expect(page).toMatch(/<h1>ROLLED BACK\. Its rows are not in the table: readers have run \S+ of 2026-01-01\.<\/h1>/);
  });

  test("a rollback whose page cannot be updated, because the spec has lost a param, says so and ends well", async () => {
    await using database = await postgres.server().createDatabase();
    const of = (params: object): Promise<string> =>
      writePgSpec(scratch.path, fixtureNamed("wine-forest"), database, {
        params,
        report: { html: "page.html" },
        output: { postgres: { mode: "replace" } },
      });
    const spec = await of({ ds: "${today}", region: "EU" });
    for (const date of ["2026-01-01", "2026-01-02"]) {
      expect((await runHere(["run", spec, "--quiet", "--param", `ds=${date}`])).code).toBe(0);
    }
    const undone = await runHere(["rollback", await of({ ds: "${today}" })]);
    expect([undone.code, undone.stdout]).toEqual([0, expect.stringContaining(" of 2026-01-02 is rolled back")]);
    expect(undone.stderr).toContain("writing the rollback into the page: ");
  });
});

test("infer-batch checks judges the published nights as if each were tonight, and names what would have held one", async () => {
  const nights = await nightlyJob(scratch.path, { checks: { on_fail: "warn" } });
  const none = await nights.night("checks", "2026-11-20");
  expect([none.code, none.stderr]).toEqual([64, expect.stringContaining("none is published")]);
  await nights.night("run", "2026-11-20");
  await nights.night("run", "2026-11-21");
  await nights.rewrite({ ...fewRows, checks: { on_fail: "warn" } });
  expect((await nights.night("run", "2026-11-22")).code).toBe(0);

  const shown = await nights.night("checks", "2026-11-22");
  expect([shown.code, shown.stderr]).toEqual([0, ""]);
  const [head, , run] = shown.stdout.split("\n");
  expect(head).toBe(
    "3 published nights, 2026-11-20 to 2026-11-22, each judged as if it were tonight with factor 4: 1 held, 1 warned",
  );
  expect(run).toMatch(/^ {2}\(the run\) +1 +1 .*2026-11-22/);
  const last = lastJson(await nights.night("checks", "2026-11-22", "--last", "1", "--json"));
  expect(last).toMatchObject({
    factor: 4,
    nights: [{ date: "2026-11-22", outcome: "hold", nights_known: 2 }],
    columns: [{ column: null, role: "run", nights_held: 1, farthest: { check: "rows", date: "2026-11-22" } }],
  });
});

test("the factor above which a night would have passed is that of its column, and a limit has none", async () => {
  const own = { on_fail: "warn", inputs: { age: { factor: 10 } }, outputs: { score: { range: [0, 10] } } };
  const nights = await nightlyJob(scratch.path, { checks: own });
  await nights.night("run", "2026-11-20");
  await nights.rewrite({ checks: own, input: { columns: { age: "age * 1000", bmi: "bmi * 0 + 9" } } });
  expect((await nights.night("run", "2026-11-21")).code).toBe(0);

  const { columns } = lastJson(await nights.night("checks", "2026-11-21", "--json")) as {
    columns: { column: string; farthest: { times: number; check: string } }[];
  };
  const shown = await nights.night("checks", "2026-11-21");
  const lineOf = (column: string): string =>
    shown.stdout.split("\n").find((line) => line.includes(` ${column} `)) ?? "";
  const timesOf = (column: string): number => columns.find((each) => each.column === column)?.farthest.times ?? 0;
  const [, factor = "0"] = /factor ([\d.e+]+) /.exec(lineOf("age")) ?? [];
  expect(Number(factor) / timesOf("age")).toBeGreaterThanOrEqual(10);
  expect(Number(factor) / timesOf("age")).toBeLessThan(11);
  expect(timesOf("score")).toBeGreaterThan(1);
  expect(lineOf("score")).toMatch(/^((?!factor).)* out of range((?!factor).)*$/);
  expect(lineOf("bmi")).toMatch(/^((?!factor).)* 2026-11-21 ((?!factor).)*$/);
});
