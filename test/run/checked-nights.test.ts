import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd } from "../support/cli.js";
import { scratch, scratchFolder, type SpecOverrides } from "../support/job.js";
import { fewRows, heldNight, lastJson, nightlyJob, type Nights } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";

const noRows = { input: { where: "id < 0" } };

const expected = (ds: string, more = {}): SpecOverrides => ({
  ...fewRows,
  checks: { expect: [{ ds, reason: "a holiday", ...more }] },
});

const withTag = (tag: string, checks = {}): SpecOverrides => ({
  input: { columns: { tag } },
  output: { columns: ["id", "tag"] },
  checks,
});

const label = (limits: object): SpecOverrides => ({ checks: { outputs: { label: limits } } });

/** Runs a night with a changed spec; returns its exit code and what the checks found. */
async function nightOf(nights: Nights, date: string, changed: SpecOverrides): Promise<[number | null, string]> {
  await nights.rewrite(changed);
  const { code, stdout, stderr } = await nights.night("run", date, "--json");
  expect(stderr).not.toContain("bug in infer-batch");
  const { verdict } = JSON.parse(stdout.trim().split("\n").at(-1) ?? "{}") as {
    verdict?: { failed: string[]; warnings: string[] };
  };
  return [code, [...(verdict?.failed ?? []), ...(verdict?.warnings ?? [])].join("\n")];
}

test("a night after nights without rows gets a verdict, as does one without rows", async () => {
  const nights = await nightlyJob(scratch.path);
  expect(await nightOf(nights, "2026-11-20", noRows)).toEqual([0, ""]);
  expect(await nightOf(nights, "2026-11-21", noRows)).toEqual([0, ""]);
  const [code, found] = await nightOf(nights, "2026-11-22", {});
  expect([code, found]).toEqual([0, expect.stringMatching(/442 rows/)]);
  expect((await nights.night("status", "2026-11-22")).stdout).toContain(": published, ");
  expect(await nightOf(nights, "2026-11-23", noRows)).toEqual([0, ""]); // there were such nights
});

test("a night that was expected to differ is published, and later nights are not compared with it unless the spec says so", async () => {
  const nights = await nightlyJob(scratch.path);
  expect(await nightOf(nights, "2026-11-20", {})).toEqual([0, ""]);
  expect(await nightOf(nights, "2026-11-21", expected("2026-11-21"))).toEqual([
    0,
    expect.stringContaining("only a warning: expected to differ: a holiday"),
  ]);
  expect(await nightOf(nights, "2026-11-22", fewRows)).toEqual([67, expect.stringContaining("50 rows")]);
  await expectEnd(nights.night("discard", "2026-11-22"), 0);
  expect((await nightOf(nights, "2026-11-23", expected("2026-11-23", { as_baseline: true })))[0]).toBe(0);
  expect((await nightOf(nights, "2026-11-24", fewRows))[0]).toBe(0);
});

test("the log, the status and the page of a night that was expected to differ have the reason once", async () => {
  const nights = await nightlyJob(scratch.path, { report: { html: "page.html" } });
  expect((await nightOf(nights, "2026-11-20", {}))[0]).toBe(0);
  await nights.rewrite({
    ...expected("2026-11-21"),
    input: { where: "id < 50", columns: { age: "age * 1000", bmi: "bmi * 1000" } },
  });
  const { stderr } = await nights.night("run", "2026-11-21");
  const { stdout } = await nights.night("status", "2026-11-21");
  const page = await readFile(join(scratch.path, "page.html"), "utf8");
  for (const text of [stderr, stdout, page]) {
    expect(text.split("a holiday"), text).toHaveLength(2);
    expect(text.split("only a warning, too").length).toBeGreaterThan(1);
  }
});

test("a column that is carried through is checked for NULLs and for being there", async () => {
  const nights = await nightlyJob(scratch.path);
  expect(await nightOf(nights, "2026-11-20", withTag("id % 3"))).toEqual([0, ""]);
  const [, nulls] = await nightOf(nights, "2026-11-21", withTag("NULL::BIGINT"));
  expect(nulls).toMatch(/^tag: 100% NULL; before, at most 0%/m);
  expect((await nightOf(nights, "2026-11-22", withTag("NULL::BIGINT", { outputs: { tag: { nulls: "0%" } } })))[0]).toBe(
    67,
  );
  await expectEnd(nights.night("discard", "2026-11-22"), 0);
  const [, gone] = await nightOf(nights, "2026-11-23", {});
  expect(gone).toMatch(/^tag: it is gone; it was int64 \(2026-11-21\)/m);
});

describe("a limit that no value is compared with is an error of the spec, which validate and plan find, too", () => {
  test.each([
    [{ scor: { range: [0, 1] } }, "checks.outputs.scor: there is no output column `scor`; did you mean `score`?"],
    [{ id: { in: [1, 2] } }, "checks.outputs.id: `in` cannot be checked of `id`, which comes from the input as it is"],
    [{ score: { in: [0, 1] } }, "checks.outputs.score: `in` cannot be checked of `score`, which is float32"],
  ])("the limits %j are refused", async (outputs, message) => {
    const nights = await nightlyJob(scratch.path, { checks: { outputs } });
    for (const command of ["run", "plan", "validate"]) {
      await expectEnd(nights.night(command, "2026-11-20"), 64, message);
    }
  });

  test("a range of a text is refused, and a list of whole numbers is compared with labels that are whole numbers", async () => {
    await using folder = await scratchFolder();
    const texts = await nightlyJob(folder.path, label({ range: [0, 1] }), "penguins-pipeline");
    await expectEnd(texts.night("run", "2026-11-20"), 64, "which is utf8");
    const whole = await nightlyJob(folder.path, {}, "penguins-lightgbm");
    expect((await nightOf(whole, "2026-11-20", label({ in: [0, 1, 2] })))[0]).toBe(0);
    const [code, found] = await nightOf(whole, "2026-11-21", label({ in: [0, 1] }));
    expect([code, found]).toEqual([67, expect.stringContaining("not in the list: 2")]);
  });
});

test("a limit that was misspelt while a run was unfinished ends the run before it scores more rows", async () => {
  const nights = await nightlyJob(scratch.path);
  await expectEnd(nights.night("run", "2026-11-20", "--worker", "0/2"), 0);
  await nights.rewrite({ checks: { outputs: { scor: { factor: 1 } } } });
  await expectEnd(nights.night("run", "2026-11-20", "--worker", "1/2"), 64, "there is no output column `scor`");
  const { stdout } = await nights.night("status", "2026-11-20");
  expect(stdout).toContain("2 of 5 spans committed");
});

const postgres = usePostgres();

const warning = "exactly the rows of 2026-11-20: was the input refreshed?";
const next = /checks: if the input was not refreshed, refresh it, then (.*)\n/;

test("a run with the input of the last run is published with a warning and the command that scores it again", async () => {
  const nights = await nightlyJob(scratch.path, { report: { html: "page-${ds}.html" } });
  const first = await nights.night("run", "2026-11-20");
  expect(first.stderr).not.toMatch(next);
  const { stderr } = await expectEnd(nights.night("run", "2026-11-21"), 0, warning);
  const [, command] = next.exec(stderr) ?? [];
  const again = `infer-batch run ${nights.spec} --param ds=2026-11-21 --new-run`;
  expect(command).toBe(`score again: ${again}`);
  const [page, before] = await Promise.all(
    ["2026-11-21", "2026-11-20"].map((ds) => readFile(join(scratch.path, `page-${ds}.html`), "utf8")),
  );
  expect(page).toContain(
    `<p>If the input was not refreshed, refresh it, then score again:</p><pre>${again}</pre></section>`,
  );
  expect(before).not.toContain("score again");
});

postgres.describe("a run with the input of the last run, in a table", () => {
  test("where rows are appended, the warning says which rows to delete before the run is scored again", async () => {
    await using database = await postgres.server().createDatabase();
    const table = { url: database.url, table: "scores.predictions", mode: "append" };
    const nights = await nightlyJob(scratch.path, { output: { parquet: undefined, postgres: table, lineage: true } });
    await expectEnd(nights.night("run", "2026-11-20"), 0);
    const { stderr } = await nights.night("run", "2026-11-21");
    const [, command = ""] = next.exec(stderr) ?? [];
    const [, runId] = /^delete the rows of run (\S+) from /.exec(command) ?? [];
    expect(command).toMatch(/, and score again: infer-batch run .* --new-run --allow-duplicates$/);
    const deleted = await database.query("DELETE FROM scores.predictions WHERE run_id = $1 RETURNING id", [runId]);
    const left = await database.query("SELECT id FROM scores.predictions");
    expect([deleted.length, left.length]).toEqual([442, 442]);
    await expectEnd(nights.night("run", "2026-11-21", "--new-run", "--allow-duplicates"), 0);
  });
});

const date = "2026-11-24";
/** What a night's message says of its checks: the lines between the first one and the hint. */
async function findingsOf(changed: SpecOverrides): Promise<{ failed: readonly string[]; stderr: string }> {
  await using folder = await scratchFolder();
  const nights = await nightlyJob(folder.path, {}, "penguins-lightgbm");
  for (const before of ["2026-11-21", "2026-11-22", "2026-11-23"]) {
    await expectEnd(nights.night("run", before), 0);
  }
  await nights.rewrite(changed);
  const held = await expectEnd(nights.night("run", date, "--json"), 67);
  const { verdict } = lastJson(held) as { verdict: { failed: string[] } };
  return { failed: verdict.failed, stderr: held.stderr };
}

describe("a run whose features changed is held, and the message begins with the column that changed", () => {
  test("a run whose feature changed from grams to kilograms is held, and names the column, the ratio and the effect on the predictions", async () => {
    const { failed, stderr } = await findingsOf({ input: { columns: { body_mass_g: "body_mass_g / 1000.0" } } });
    expect(failed[0]).toMatch(/^body_mass_g: median 4\.\d+, seen 2\d\d\d to 6\d\d\d \(÷1000: thousands\?\)/);
    expect(failed.slice(1).join("\n")).toMatch(/^probabilities_0: .*; body_mass_g moved, too$/m);
    const columns = failed.map((line) => /^(\w+): /.exec(line)?.[1]);
    expect(new Set(columns).size, "a line for each column").toBe(columns.length);
    expect(
      stderr
        .split("\n")
        .find((line) => line.startsWith("  "))
        ?.trim(),
    ).toBe(failed[0]);
  });

  test("a run with a column that became all NULL, read as NaN, is held and names the column", async () => {
    const { failed } = await findingsOf({ input: { columns: { body_mass_g: "NULL::DOUBLE" } } });
    expect(failed[0]).toMatch(/^body_mass_g: no row has a value; that never was$/);
  });
});

test("a feature that is ignored, and outputs with a large factor, hold nothing", async () => {
  const ignored = { body_mass_g: "ignore" };
  const outputs = ["label", "probabilities_0", "probabilities_1", "probabilities_2"];
  const nights = await nightlyJob(scratch.path, {}, "penguins-lightgbm");
  for (const before of ["2026-11-21", "2026-11-22", "2026-11-23"]) {
    await expectEnd(nights.night("run", before), 0);
  }
  const checks = { inputs: ignored, outputs: Object.fromEntries(outputs.map((name) => [name, { factor: 1000 }])) };
  await nights.rewrite({ checks, input: { columns: { body_mass_g: "body_mass_g / 1000.0" } } });
  await expectEnd(nights.night("run", date, "--json"), 0);
});

test("a run whose rows are all filtered out says so in its message, with the command that publishes it without rows, in its page and stats, and shows no share of no rows", async () => {
  const nights = await nightlyJob(scratch.path, { report: { html: "page.html" } });
  await expectEnd(nights.night("run", "2026-11-20"), 0);
  await nights.rewrite({ input: { where: "id < 0" } });
  const held = await nights.night("run", "2026-11-21");
  const finding = "0 rows (442 filtered out by input.where); the nearest night had 442 (2026-11-20), 0% of it";
  expect([held.code, held.stderr]).toEqual([67, expect.stringContaining(`\n  ${finding}`)]);
  const again = await nights.night("run", "2026-11-21");
  for (const { stderr } of [held, again]) {
    expect(stderr).toMatch(/\n {4}to publish it without rows: infer-batch approve \S+ .*\n/);
    expect(stderr).toMatch(/\n {4}to publish it without rows, and hold the next one like it, too: .* --not-normal\n/);
    expect(stderr).toMatch(/\n {4}to throw it away: infer-batch discard /);
    expect(stderr).not.toContain("the predictions:");
  }
  const page = await readFile(join(scratch.path, "page.html"), "utf8");
  expect(page).toContain("<p>To publish it without rows (and with --not-normal, hold the next one like it, too):</p>");
  expect(page).toContain(`<p class="reason">${finding}`);
  expect(page).toMatch(/<td>no rows <span class="before">0%<\/span><\/td>/);
  const { stdout } = await nights.night("stats", "2026-11-21");
  expect(stdout).toMatch(/: held, 0 rows scored, 0 rows rejected, 442 rows filtered out\n/);
  expect(stdout).not.toMatch(/0%.*0%/); // what is usual has a share, and tonight has none
  expect(lastJson(await nights.night("stats", "2026-11-21", "--json"))).toMatchObject({ rows: 0, filtered: 442 });
});

test("a held run that has lost its only span is not offered as one without rows", async () => {
  const nights = await nightlyJob(scratch.path, { commit_rows: 1000 });
  const runId = await heldNight(nights);
  const parts = join(nights.folder("2026-11-21"), "_infer-batch", runId, "parts");
  for (const name of await readdir(parts)) {
    await rm(join(parts, name));
  }
  const { stderr } = await nights.night("run", "2026-11-21");
  expect(stderr).toMatch(/span 0 of 1 is no longer committed/);
  expect(stderr).toMatch(/to publish the predictions, after you restore what is lost: /);
});
