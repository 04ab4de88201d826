import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratchFolder } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";
import { select, settings } from "../support/rejecting-job.js";
import { scoreHere } from "../support/score.js";

const postgres = usePostgres();
/** Of the 18 rows that are rejected, those below 50 are scored with this; 10 rows are filtered out, and 72 are kept. */
const corrected = {
  model: { inputs: { x: ["y"] } },
  input: { where: "id < 90", columns: { y: "if(id < 50, coalesce(x, 0), x)" } },
};
const counts = "8 rejected again, 82 other rows unchanged";

postgres.describe("the counts of a run that scores the rejected rows of a table", () => {
  test.each(["append", "upsert"])("rows that stay in the table do not count as filtered out: %s", async (mode) => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const key = mode === "append" ? {} : { key: ["id"] };
    const output = {
      parquet: undefined,
      lineage: mode === "append",
      postgres: { url: database.url, table: "scores.predictions", mode, ...key },
    };
    const page = join(scratch.path, "page.html");
    const metrics = join(scratch.path, "job.prom");
    const shared = { ...settings, output, report: { html: page, metrics } };
    const job = await smallJob(scratch.path, { model: identity, select, ...shared });
    await scoreHere(job.spec);
    await job.rewrite({ ...shared, ...corrected });

    const ended = await runHere(["run", job.spec, "--only-rejects", "--no-progress"]);

    expect(ended.stdout, ended.stderr).toMatch(
      /-r2: complete, 10 of 18 rejected rows scored in [\d.]+ s \(\d+ rows\/s\), 8 rows rejected again, 82 other rows unchanged -> /,
    );
    expect(await readFile(page, "utf8")).toMatch(
      /PUBLISHED\. 10 predictions, 8 rows rejected, 82 other rows unchanged\.[^]*<dt>other rows, unchanged<\/dt><dd>82</,
    );
    expect(await readFile(metrics, "utf8")).toMatch(
      /^infer_batch_rows_filtered\S* 0\n[^]*^infer_batch_rows_unchanged\S* 82\n/m,
    );
    const status = await runHere(["status", job.spec]);
    expect(status.stdout).toContain(`13 of 13 spans committed (10 of 18 rejected rows scored, ${counts}) -> `);
    const fields = { rows_rejected: 8, rows_filtered: 0, rows_unchanged: 82 };
    expect(lastJson(await runHere(["status", job.spec, "--json"]))).toMatchObject({ rows: 10, ...fields });
    const again = await runHere(["run", job.spec, "--no-progress"]);
    expect(again.stdout).toMatch(/: already complete, 10 of 18 rejected rows scored, in scores\.predictions at /);
    expect(again.stdout).toContain(` (${counts})\n`);
    const idle = await runHere(["run", job.spec, "--no-progress", "--json"]);
    expect(lastJson(idle)).toMatchObject({ status: "already_complete", rows_filtered: 0, rows_unchanged: 0 });
    const approved = await runHere(["approve", job.spec, "--json"]);
    expect(lastJson(approved), approved.stderr).toMatchObject({ already: true, rows: 10, ...fields });
    expect(await database.query("SELECT count(*)::int AS rows FROM scores.predictions")).toEqual([{ rows: 82 }]);

    const rest = await runHere(["run", job.spec, "--only-rejects", "--no-progress", "--json"]);

    expect(lastJson(rest)).toMatchObject({ rows_scored: 0, ...fields, rows_unchanged: 92 });
    expect((await runHere(["history", job.spec])).stdout).not.toContain("replaced by");
  });
});
