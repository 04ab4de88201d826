import { expect, test } from "vitest";
import { count, modes, runOf, wholeRun } from "../../support/pg-amid.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, commitSpans, pgSink, planFor } from "../../support/sinks.js";

const postgres = usePostgres();

postgres.describe("a run that was removed from the control tables", () => {
  test.each(modes.slice(1))("a run whose control rows were removed starts over: %s", async (_mode, spec) => {
    await using database = await postgres.server().createDatabase();
    await wholeRun(database, 5);
    const half = async (): Promise<void> => {
      await using sink = pgSink({ url: database.url, postgres: spec });
      const opened = await begun(sink, planFor(sink.planTarget, { rows: 40, runId: runOf(40) }));
      await commitSpans(opened.run, opened.stored, (span) => span < 2);
    };
    const remove = `DELETE FROM infer_batch.spans WHERE run_id = '${runOf(40)}'; DELETE FROM infer_batch.finishes WHERE run_id = '${runOf(40)}';
      DELETE FROM infer_batch.attempts WHERE run_id = '${runOf(40)}'; DELETE FROM infer_batch.runs WHERE run_id = '${runOf(40)}'`;
    await half();
    await database.query(remove);
    await wholeRun(database, 40, spec);
    expect(await count(database)).toBe(40);
    await database.query(remove);
    await wholeRun(database, 40, spec);
    expect(await count(database)).toBe(40);
  });
});
