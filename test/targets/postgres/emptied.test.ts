import { expect, test } from "vitest";
import { changeAmid, count, modes, plainTable, wholeRun, runOf } from "../../support/pg-amid.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, commitSpans, pgSink, planFor } from "../../support/sinks.js";
import { firstOf } from "../../support/torture.js";

const postgres = usePostgres();

postgres.describe("a table that is emptied during a run", () => {
  const writing = modes.slice(0, 2);
  const partitioned =
    "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real) PARTITION BY HASH (id)";
  const tables = [
    ["a table", plainTable, "scores.predictions"],
    [
      "a partition",
      `${partitioned}; CREATE TABLE scores.p PARTITION OF scores.predictions DEFAULT`.replace(
        " BY HASH (id)",
        " BY LIST (id)",
      ),
      "scores.p",
    ],
  ] as const;

  test.each(writing.flatMap(([mode, spec]) => tables.map(([what, sql, name]) => ({ mode, spec, what, sql, name }))))(
    "a table that is emptied during a run keeps the run from being finished: $mode, TRUNCATE of $what",
    async ({ spec, sql, name }) => {
      await using database = await postgres.server().createDatabase();
      await database.query(`${sql}; INSERT INTO scores.predictions SELECT -n, 0 FROM generate_series(1, 5) AS n`);
      await expect(changeAmid(database, spec, `TRUNCATE ${name}`)).rejects.toMatchObject({
        code: "OUTPUT_DAMAGED",
        message: expect.stringMatching(/scores\.predictions holds 30 rows, and the run has put 40 there$/) as string,
      });
      expect(await database.query("SELECT FROM infer_batch.finishes")).toEqual([]);
      const again = changeAmid(database, spec, "SELECT 1");
      const { hint = "" } = (await again.catch((error: unknown) => error)) as { hint?: string };

      await database.query(/UPDATE .*/.exec(hint)?.[0] ?? ""); // as the hint says
      await changeAmid(database, spec, "SELECT 1");
      expect(await count(database)).toBe(30);
    },
  );

  test.each(writing)("a table that gets other files and keeps its rows is no error: %s", async (_mode, spec) => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    await changeAmid(database, spec, "VACUUM FULL scores.predictions");
    expect(await count(database)).toBe(40);
  });

  test("rows removed by DELETE are not counted", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(plainTable);
    await changeAmid(database, { mode: "append" }, "DELETE FROM scores.predictions");
    expect(await count(database)).toBe(30);
  });

  test("a role that may not read the table appends to it without detecting that it was emptied", async () => {
    await using database = await postgres.server().createDatabase();
    await wholeRun(database, 20, { mode: "append", key: [] });
    await database.query(`CREATE ROLE appender LOGIN; GRANT USAGE ON SCHEMA scores, infer_batch TO appender;
      GRANT INSERT ON ALL TABLES IN SCHEMA infer_batch, scores TO appender; GRANT SELECT ON ALL TABLES IN SCHEMA infer_batch TO appender`);
    try {
      const url = postgres.server().url(database.name, "appender");
      await changeAmid(database, { mode: "append" }, "TRUNCATE scores.predictions", url);
      expect(await count(database)).toBe(30);
    } finally {
      await database.query("DROP OWNED BY appender; DROP ROLE appender");
    }
  });
});

postgres.describe("a run that was removed from the control tables", () => {
  test.each(firstOf(modes.slice(1), 2))(
    "a run whose control rows were removed starts over: %s",
    async (_mode, spec) => {
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
    },
  );
});
