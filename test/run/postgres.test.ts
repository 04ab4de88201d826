import { expect, test } from "vitest";
import { fixtures, scratchFolder } from "../support/job.js";
import { tableFaults, writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { scoreHere } from "../support/score.js";

const postgres = await usePostgres();

postgres.describe("a run into Postgres", () => {
  test.each(fixtures)("$name: every row once, as Python predicts", async (fixture) => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, fixture, database, { commit_rows: 100 });

    const report = await scoreHere(spec);

    expect(report).toMatchObject({ status: "complete", rowsScored: fixture.rows });
    expect(await tableFaults(database, fixture)).toEqual([]);
    expect(await scoreHere(spec)).toMatchObject({ status: "already_complete", rowsScored: 0 });
    expect(await tableFaults(database, fixture)).toEqual([]);
    const [progress] = await database.query("SELECT * FROM infer_batch.progress");
    expect(progress).toMatchObject({ status: "complete", rows_committed: String(fixture.rows), last_error: null });
  });
});
