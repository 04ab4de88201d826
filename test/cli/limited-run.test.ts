import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { goldenRows } from "../support/golden.js";
import { readRows } from "../support/parquet.js";
import { scratch, writeSpec } from "../support/job.js";
import { fixtureNamed } from "../support/world.js";

const wine = fixtureNamed("wine-forest");

test("run --limit scores the first rows into the folder of --output, and leaves the target of the spec alone", async () => {
  const spec = await writeSpec(scratch.path, wine, { commit_rows: 4, checks: {}, report: { html: "page.html" } });
  const folder = join(scratch.path, "try");
  const run = await runHere(["run", spec, "--limit", "10", "--output", folder, "--json"]);
  expect(run.code, run.stderr).toBe(0);
  expect(JSON.parse(run.stdout)).toMatchObject({
    status: "complete",
    rows_planned: 10,
    rows_scored: 10,
    spans_planned: 3,
  });
  expect(await readdir(scratch.path)).toEqual(expect.not.arrayContaining(["out", "page.html"]));
  const expected = (await goldenRows(wine)).slice(0, 10);
  const rows = await readRows(join(folder, "*.parquet"));
  expect(rows.map(({ id }) => id)).toEqual(expected.map(({ id }) => id));

  const again = await runHere(["run", spec, "--limit", "10", "--output", folder, "--json"]);
  expect(JSON.parse(again.stdout)).toMatchObject({ status: "already_complete" });
  const more = await runHere(["run", spec, "--limit", "11", "--output", folder]);
  expect([more.code, more.stderr]).toEqual([64, expect.stringContaining("belongs to")]);
});

test("run --limit without --output, and the other way round, ends with 64", async () => {
  const spec = await writeSpec(scratch.path, wine);
  for (const options of [
    ["--limit", "10"],
    ["--output", "try"],
  ]) {
    const { code, stderr } = await runHere(["run", spec, ...options]);
    expect([code, stderr]).toEqual([64, expect.stringContaining("--limit and --output are given together")]);
  }
});
