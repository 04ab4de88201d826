import { readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { expect, test, describe } from "vitest";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, type Nights, nightlyJob, heldNight } from "../support/nights.js";
import { rejectingJob } from "../support/rejecting-job.js";

const failed = "50 rows (392 filtered out by input.where); the nearest night had 442 (2026-11-20), 11.3% of it";
const expected = `${failed}; only a warning: expected to differ: a sale`;

/** A published night; one that `expect` excuses; one that is held and approved; one that is held. Returns what the last said. */
async function fourNights(nights: Nights): Promise<CliResult> {
  await nights.night("run", "2026-11-20");
  await nights.rewrite({ ...fewRows, checks: { expect: [{ ds: "2026-11-21", reason: "a sale" }] } });
  await nights.night("run", "2026-11-21");
  await nights.night("run", "2026-11-22");
  await nights.night("approve", "2026-11-22", "--not-normal", "--by", "ana", "--reason", "one shop");
  const held = await nights.night("run", "2026-11-23", "--json");
  expect(held.code, held.stderr).toBe(67);
  return held;
}

const leftOut = "not compared with 2026-11-22: approved as not normal; nor with 2026-11-21: expected to differ";

test("status of an approved run is published, and keeps the checks that it failed; one that was expected has a warning", async () => {
  const nights = await nightlyJob(scratch.path);
  await fourNights(nights);
  const approved = (await nights.night("status", "2026-11-22")).stdout.split("\n").slice(0, 5);
  expect(approved).toEqual([
    expect.stringMatching(
      /: published, 5 of 5 spans committed \(50 rows, 392 filtered out\); \d+ checks? passed, 1 failed -> /,
    ),
    `  failed: ${failed}`,
    "  note: not compared with 2026-11-21: expected to differ",
    expect.stringMatching(/^ {2}note: 1 of 14 nights known/),
    expect.stringMatching(/^ {2}approved by ana at \S+, as not normal: one shop$/),
  ]);
  expect(lastJson(await nights.night("status", "2026-11-22", "--json"))).toMatchObject({ status: "published" });
  expect((await nights.night("status", "2026-11-21")).stdout).toContain(`\n  warning: ${expected}\n`);
  await nights.rewrite({ ...fewRows, checks: { on_fail: "warn" } });
  await nights.night("run", "2026-11-24");
  expect((await nights.night("status", "2026-11-24")).stdout).toContain(`\n  failed (on_fail: warn): ${failed}\n`);
});

test("the night after an approval says that it is not compared with the approved run: in its message, log, status and plan", async () => {
  const nights = await nightlyJob(scratch.path);
  const held = await fourNights(nights);
  expect(held.stderr).toContain(`INFO: checks: ${leftOut}\n`);
  const again = await nights.night("run", "2026-11-23");
  expect(again.stderr).toContain(`checks failed\n  ${failed}\n  1 of 14 nights known`);
  expect((await nights.night("status", "2026-11-23")).stdout).toContain(`\n  note: ${leftOut}\n`);
  expect((await nights.night("plan", "2026-11-24")).stdout).toContain(
    "\nchecks   rows, rejects, 1 output, 10 features; a failed check holds the run\n" +
      "checks   compared with 1 earlier run, 2026-11-20; 1 of 14 nights known\n" +
      `checks   ${leftOut}\ntarget `,
  );
});

test("history says which run superseded another, what expect and on_fail excused, and which run is no baseline", async () => {
  const nights = await nightlyJob(scratch.path);
  const runId = String(lastJson(await fourNights(nights))["run_id"]);
  await nights.night("run", "2026-11-23", "--new-run");
  const { code, stderr } = await runHere(["status", nights.spec, "--run", runId]);
  expect([code, stderr]).toEqual([
    64,
    expect.stringMatching(new RegExp(`-r2 came after it\n  it was superseded by ${runId}-r2, .*; was held: 50 rows `)),
  ]);
  await nights.rewrite({ ...fewRows, checks: { on_fail: "warn" } });
  await nights.night("run", "2026-11-24");
  const { stdout } = await nights.night("history", "2026-11-24");
  const notes = stdout
    .split("\n")
    .slice(1, 7)
    .map((line) => line.split(/Z {2}/)[1] ?? "");
  expect(notes).toEqual([
    `1 warning: ${failed}; only a warning: on_fail is warn`,
    failed,
    expect.stringMatching(new RegExp(`^superseded by ${runId}-r2, opened by \\S+; was held: 50 rows .* of it$`)),
    "approved by ana, as not normal: one shop",
    `1 warning: ${expected}`,
    "",
  ]);
});

test("stats of a discarded run ends with 67 as run does, by date and by id; that of a held run by its id shows it", async () => {
  const nights = await nightlyJob(scratch.path);
  const runId = String(lastJson(await fourNights(nights))["run_id"]);
  const byId = await runHere(["stats", nights.spec, "--run", runId]);
  expect([byId.code, byId.stdout], byId.stderr).toEqual([
    0,
    expect.stringContaining(`${runId}: held, 50 rows scored, 0 rows rejected, 392 rows filtered out\n`),
  ]);
  await nights.night("discard", "2026-11-23", "--by", "ana", "--reason", "one shop only");
  const discarded = [
    await nights.night("stats", "2026-11-23"),
    await nights.night("stats", "2026-11-20", "--run", runId),
    await runHere(["stats", nights.spec, "--run", runId]),
  ];
  for (const { code, stderr } of discarded) {
    expect(code).toBe(67);
    expect(stderr).toContain(`error: reading the profiles of run ${runId}: it was discarded by ana at `);
    expect(stderr).toMatch(
      /: one shop only; its rows are removed\n {2}hint: infer-batch status .* --param ds=2026-11-23 shows its checks; /,
    );
  }
  await nights.night("run", "2026-11-23", "--new-run");
  expect(await runHere(["stats", nights.spec, "--run", runId])).toMatchObject({
    code: 64,
    stderr: expect.stringContaining(`looking for run ${runId}: run ${runId}-r2 came after it`),
  });
});

test("a run held for its rejected rows names the command that shows them, in its message and on its page", async () => {
  const nights = await nightlyJob(scratch.path, {
    input: { columns: { age: "case when id % 4 = 0 then null else age end" } },
    on_bad_row: "reject",
    max_rejects: "100%",
    checks: { rejects: "1%" },
    report: { html: "page.html" },
  });
  const held = await nights.night("run", "2026-11-20");
  expect(held.code, held.stderr).toBe(67);
  const found = /to see the rejected rows: (infer-batch rejects .* --param ds=2026-11-20)\n/.exec(held.stderr);
  const page = await readFile(join(scratch.path, "page.html"), "utf8");
  expect(page).toContain(`<p>To see the rejected rows:</p><pre>${found?.[1] ?? ""}</pre>`);
  expect(found?.[1]).toBeDefined();
});

test("plan says what the checks look at and what they compare with; validate refuses a missing profile", async () => {
  const checks = { unique: ["id"], slices: ["id"], sql: { some: "count(*) > 1" }, on_fail: "warn" };
  const nights = await nightlyJob(scratch.path, { checks });
  const first =
    "\nchecks   rows, rejects, 1 output, 10 features, slices by id, keys of id, 1 SQL condition; a failed check only warns\n";
  expect((await nights.night("plan", "2026-11-20")).stdout).toContain(
    `${first}checks   compared with no earlier run\ntarget `,
  );
  expect((await nights.night("validate", "2026-11-20")).stdout).toContain(`${first}target `);
  await nights.rewrite({ checks: { baseline: "none.json" } });
  const wrong = await nights.night("validate", "2026-11-20");
  expect([wrong.code, wrong.stderr]).toEqual([
    64,
    expect.stringMatching(/checks\.baseline: .*none\.json: there is no/),
  ]);
});

test("history, backfill and the status of several jobs say that a published night has warnings, and which is the first", async () => {
  const nights = await nightlyJob(scratch.path);
  await nights.night("run", "2026-11-20");
  await nights.rewrite({ input: { columns: { age: "age + 1", bmi: "bmi * 2" } } });
  const backfill = ["backfill", nights.spec, "--param", "ds=2026-11-21..2026-11-21", "--reprocess", "completed"];
  const warned = /2 warnings: age: median 1\.01, seen -0\.107 to 0\.111; only a warning: only 1 night is known\n/;

  const filled = await runHere([...backfill, "--no-progress"]);
  const lines = (await runHere([...backfill, "--json"])).stdout.trimEnd().split("\n");
  const status = await runHere(["status", nights.spec, nights.spec, "--param", "ds=2026-11-21"]);
  const history = await nights.night("history", "2026-11-21");
  const json = lastJson(await nights.night("history", "2026-11-21", "--json"));

  expect(filled.code, filled.stderr).toBe(0);
  expect(filled.stdout).toMatch(new RegExp(`complete .* ${warned.source}1 run: 1 complete; 1 with warnings\n$`));
  expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
    { status: "complete", verdict: { warnings: [expect.stringMatching(/^age: /), expect.stringMatching(/^bmi: /)] } },
    { complete: 1, values_warned: ["2026-11-21"] },
  ]);
  expect(status.stdout).toMatch(new RegExp(`published .* ${warned.source}`));
  expect(history.stdout).toMatch(new RegExp(`published .* ${warned.source}`));
  expect(json).toMatchObject({
    runs: [{ warnings: [expect.stringMatching(/^age: /), expect.any(String)] }, {}, { warnings: [] }],
  });
});

/** The date of the latest held run that a text names, and what it says of the others. */
const saidOf = (text: string): (string | undefined)[] => {
  const line = text.split("\n").filter((one) => one.includes("is held by its checks; to publish it:"));
  expect(line.length).toBeLessThan(2);
  const found = / approve .* --param ds=(\S+) .*?; to throw it away: [^;]*(?:; (.*))?$/.exec(line[0] ?? "");
  return found?.slice(1) ?? [];
};

test("status and run name the latest run that is held, with its commands, and count the others in the same sentence with the command that lists them", async () => {
  const nights = await nightlyJob(scratch.path);
  await heldNight(nights);
  const listing = `infer-batch history ${nights.spec}`;
  const status = async (): Promise<unknown[]> => saidOf((await nights.night("status", "2026-12-24")).stdout);
  expect(await status()).toEqual(["2026-11-21", undefined]);
  expect((await nights.night("run", "2026-11-22")).code).toBe(67);
  expect(await status()).toEqual(["2026-11-22", `1 more run is held; to list them: ${listing}`]);
  expect((await nights.night("run", "2026-11-23")).code).toBe(67);

  await nights.rewrite({ ...fewRows, input: { where: "id < 50", columns: { s1: "if(id = 30, NULL, s1)" } } });
  expect((await nights.night("run", "2026-11-19")).code).toBe(65); // it is planned, and not finished
  const { stderr } = await nights.night("run", "2026-11-25");
  const rest = `2 more runs are held, 1 more run is not finished; to list them: ${listing}`;
  expect(saidOf(stderr)).toEqual(["2026-11-23", rest]);
  const { unfinished } = lastJson(await nights.night("status", "2026-12-24", "--json")) as { unfinished: unknown[] };
  expect(unfinished).toHaveLength(5);
  expect(await runHere(listing.split(" ").slice(1))).toMatchObject({ code: 0 });
});

describe("the rows of a run that is over", () => {
  test("a held run counts the rows of its output, before and after it is approved", async () => {
    const nights = await nightlyJob(scratch.path);
    const runId = await heldNight(nights);
    const rows = "50 rows, 392 filtered out";
    const held = await nights.night("run", "2026-11-21");
    expect(held.stdout).toBe(`${runId}: held, 50 rows wait for a decision (392 filtered out)\n`);
    const status = await nights.night("status", "2026-11-21");
    expect(status.stdout).toContain(`${runId}: held, 5 of 5 spans committed (${rows}); `);
    const approved = await nights.night("approve", "2026-11-21");
    expect(approved.stdout).toContain(`${runId}: published, ${rows} -> `);
    const again = await nights.night("approve", "2026-11-21", "--json");
    expect(lastJson(again)).toMatchObject({ already: true, rows: 50, rows_rejected: 0, rows_filtered: 392 });
    const done = await nights.night("run", "2026-11-21");
    expect(done.stdout).toMatch(/: already complete, 50 rows in \S+ \(392 filtered out\)\n$/);
  });

  test("approve says that it publishes no row", async () => {
    const nights = await nightlyJob(scratch.path);
    await nights.night("run", "2026-11-20");
    await nights.rewrite({ input: { where: fewRows.input.where.replace("50", "0") } });
    expect((await nights.night("run", "2026-11-21")).code).toBe(67);
    const { stdout } = await nights.night("approve", "2026-11-21");
    expect(stdout).toContain(": published, 0 rows, 442 filtered out -> ");
  });

  test("rejected rows are not counted as rows of the output", async () => {
    const { spec } = await rejectingJob(scratch.path);
    const done = await runHere(["run", spec]);
    expect(done.stdout).toMatch(/: already complete, 72 rows in \S+ \(18 rejected, 10 filtered out\)\n$/);
    const status = await runHere(["status", spec]);
    expect(status.stdout).toContain("published, 13 of 13 spans committed (72 rows, 18 rejected, 10 filtered out) -> ");
    expect(lastJson(await runHere(["status", spec, "--json"]))).toMatchObject({
      rows_planned: 100,
      rows_committed: 100,
      rows: 72,
      rows_rejected: 18,
      rows_filtered: 10,
    });
  });
});

test("approve and discard of a range of dates decide on its held runs, the earliest first, and on no others", async () => {
  const nights = await nightlyJob(scratch.path);
  await expectEnd(nights.night("run", "2026-11-20"), 0);
  const columns = { age: "case when id = 441 then 'nan' else 0.5 end" };
  await nights.rewrite({ on_bad_row: "reject", input: { where: "id in (3, 4, 5) or id > 440", columns } });
  for (const date of ["2026-11-21", "2026-11-22", "2026-11-22T05", "2026-11-23", "2026-11-23T07", "2026-11-24"]) {
    await expectEnd(nights.night("run", date), 67);
  }
  const approved = await expectEnd(nights.night("approve", "2026-11-19..2026-11-22", "--by", "ana", "--json"), 0);
  const published = JSON.parse(`[${approved.stdout.trimEnd().replaceAll("\n", ",")}]`) as Record<string, string>[];
  const folders = published.map(({ status, output = "" }) => `${status} ${basename(output)}`);
  expect(folders).toEqual(["dt=2026-11-21", "dt=2026-11-22", "dt=2026-11-22T05"].map((name) => `published ${name}`));
  const discarded = await expectEnd(nights.night("discard", "2026-11-20T00..2026-11-23T23"), 0);
  expect(discarded.stdout).toMatch(/^\S+: discarded; [^\n]*\n$/); // the hour, and not its day
  expect((await nights.night("status", "2026-11-23")).stdout).toContain(": held,");
  await expectEnd(nights.night("discard", "2026-11-20..2026-11-23"), 0);
  expect((await nights.night("status", "2026-11-24")).stdout).toContain(": held,");

  const refused = [
    await nights.night("approve", "2026-11-19..2026-11-22"),
    await nights.night("approve", "2026-11-21..2026-11-24", "--run", "a-0123456789ab"),
    await nights.night("approve", "2026-11-21..2026-11-99"),
  ];
  expect(refused.map(({ code }) => code)).toEqual([64, 64, 64]);
  const said = ["none is held", "--run names one run", "2026-11-99"];
  expect(refused.map(({ stderr }, index) => stderr.includes(said[index] ?? ""))).toEqual([true, true, true]);
});
