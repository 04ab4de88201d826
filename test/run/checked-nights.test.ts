import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { scratch, scratchFolder, type SpecOverrides } from "../support/job.js";
import { fewRows, nightlyJob, type Nights } from "../support/nights.js";
import { expectEnd } from "../support/cli.js";

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
