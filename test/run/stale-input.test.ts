import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { nightlyJob } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";
import { expectEnd } from "../support/cli.js";

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
