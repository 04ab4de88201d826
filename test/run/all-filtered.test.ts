import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { heldNight, lastJson, nightlyJob } from "../support/nights.js";
import { expectEnd } from "../support/cli.js";

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
