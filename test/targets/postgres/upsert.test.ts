import { describe, expect, test } from "vitest";
import type { Sink } from "#src/targets/target.js";
import { spanAt } from "#src/run/plan/spans.js";
import type { Database } from "../../support/pg-database.js";
import { usePostgres } from "../../support/postgres.js";
import { alone } from "../../support/sink-drive.js";
import { begun, carryOut, commitSpans, idsOf, outputOf, pgSink, planFor, whole } from "../../support/sinks.js";

const postgres = usePostgres();

const upsert = (database: Database, more: object = {}): Sink =>
  pgSink({ url: database.url, postgres: { mode: "upsert", key: ["id"], ...more } });

async function runOf(
  database: Database,
  spans: readonly (readonly number[])[],
  {
    order = spans.map((_, index) => index),
    runId = "job-000000000000",
    more = {},
  }: { order?: number[]; runId?: string; more?: object } = {},
): Promise<void> {
  await using sink = upsert(database, more);
  const size = spans[0]?.length ?? 0;
  const plan = planFor(sink.planTarget, { rows: size * spans.length, commitRows: size, runId });
  const { run } = await begun(sink, plan);
  for (const index of order) {
    // The score tells the row that it came from.
    let place = index * size;
    const rows = outputOf(spans[index] ?? [], () => place++);
    await run.commit(spanAt(plan, index), whole(rows));
  }
  await run.finish();
}

const scores = async (database: Database): Promise<string> =>
  (await database.query("SELECT id, score FROM scores.predictions ORDER BY id"))
    .map(({ id, score }) => `${String(id)}=${String(score)}`)
    .join(" ");

postgres.describe("mode upsert", () => {
  test("upsert adds rows, and updates those whose key exists", async () => {
    await using database = await postgres.server().createDatabase();
    await runOf(database, [
      [1, 2],
      [3, 4],
    ]);
    await runOf(
      database,
      [
        [5, 3],
        [1, 6],
      ],
      { runId: "job-000000000001" },
    );
    expect(await scores(database)).toBe("1=2 2=1 3=1 4=3 5=0 6=3");
  });

  test("upsert leaves other columns of the table as they are", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(
      "CREATE SCHEMA scores; CREATE TABLE scores.predictions (note text DEFAULT 'new', id int8 PRIMARY KEY, score real); INSERT INTO scores.predictions VALUES ('old', 1, 9)",
    );
    await runOf(database, [[1, 2]]);
    expect(await database.query("SELECT * FROM scores.predictions ORDER BY id")).toEqual([
      { note: "old", id: "1", score: 0 },
      { note: "new", id: "2", score: 1 },
    ]);
  });

  describe("a key that comes twice", () => {
    test.each([
      [
        "in one span",
        [
          [1, 7, 7],
          [2, 3, 4],
        ],
        'id = "7" comes twice in span 0',
      ],
      [
        "in two spans",
        [
          [1, 7, 2],
          [3, 4, 7],
        ],
        'id = "7" comes in span 0 and in span 1',
      ],
    ])(
      "a key that comes twice %s ends the run, which names it, and nothing of the span is committed",
      async (_what, spans, said) => {
        await using database = await postgres.server().createDatabase();
        await expect(runOf(database, spans)).rejects.toMatchObject({
          code: "DUPLICATE_KEY",
          exitCode: 65,
          message: expect.stringContaining(said),
        });
        const [control] = await database.query(
          "SELECT (SELECT coalesce(sum(rows), 0)::int FROM infer_batch.spans) AS due, (SELECT count(*)::int FROM scores.predictions) AS there",
        );
        expect(control?.["there"]).toBe(control?.["due"]);
      },
    );

    test.each([[[0, 1, 2]], [[2, 1, 0]], [[1, 2, 0]]])(
      "the last row of a key counts where the spec says so, for any order in which spans are committed: %s",
      async (order) => {
        await using database = await postgres.server().createDatabase();
        const spans = [
          [7, 1, 7],
          [2, 7, 3],
          [4, 1, 5],
        ];
        await runOf(database, spans, { order, more: { on_duplicate: "last" } });
        expect(await scores(database)).toBe("1=7 2=3 3=5 4=6 5=8 7=4");
      },
    );

    test("a key in another run is no duplicate", async () => {
      await using database = await postgres.server().createDatabase();
      await runOf(database, [[1], [2]]);
      await runOf(database, [[2], [1]], { runId: "job-000000000001" });
      expect(await scores(database)).toBe("1=1 2=0");
    });
  });

  test("two upserts that share keys and spans do not deadlock", async () => {
    await using database = await postgres.server().createDatabase();
    const sinks = [upsert(database), upsert(database), upsert(database)];
    try {
      await Promise.all(sinks.map((sink) => carryOut(sink, planFor(sink.planTarget, { rows: 400, commitRows: 40 }))));
      expect(await database.query("SELECT count(*)::int AS rows, sum(id)::int AS sum FROM scores.predictions")).toEqual(
        [{ rows: 400, sum: (399 * 400) / 2 }],
      );
    } finally {
      await Promise.all(sinks.map((sink) => sink[Symbol.asyncDispose]()));
    }
  });

  test.each([
    ["no unique index", "CREATE TABLE scores.predictions (id int8, score real)"],
    ["one over more columns", "CREATE TABLE scores.predictions (id int8, score real, UNIQUE (id, score))"],
    [
      "one over some rows only",
      "CREATE TABLE scores.predictions (id int8, score real); CREATE UNIQUE INDEX ON scores.predictions (id) WHERE score > 0",
    ],
  ])("upsert is refused before anything is scored where the key has %s", async (_what, sql) => {
    await using database = await postgres.server().createDatabase();
    await database.query(`CREATE SCHEMA scores; ${sql}`);
    await using sink = upsert(database);
    await expect(sink.create(planFor(sink.planTarget))).rejects.toMatchObject({
      code: "OUTPUT_MISMATCH",
      exitCode: 64,
      message: expect.stringContaining("unique index over exactly (id)"),
    });
    expect(await sink.find(planFor(sink.planTarget).runId)).toBeUndefined();
  });

  test("upsert is refused when the table of its keys is gone, since a duplicate key would not be found", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = upsert(database);
    const { stored, run } = await begun(sink, planFor(sink.planTarget));
    const span = spanAt(stored.plan, 0);
    await run.commit(span, whole(outputOf(idsOf(span))));
    const [keys] = await database.query("SELECT tablename FROM pg_tables WHERE tablename LIKE 'keys%'");
    const taken = await sink.open(stored);
    await database.query(`DROP TABLE infer_batch.${String(keys?.["tablename"])}`);
    const gone = {
      code: "OUTPUT_DAMAGED",
      exitCode: 66,
      message: expect.stringContaining("the table of the run's keys is gone") as string,
    };
    await expect(taken.begin(alone)).rejects.toMatchObject(gone);
    await expect(sink.open(stored)).rejects.toMatchObject(gone);
  });

  test("two unfinished upserts each have their own keys", async () => {
    await using database = await postgres.server().createDatabase();
    await using sink = upsert(database);
    const other = { ...planFor(sink.planTarget), runId: planFor(sink.planTarget, { runId: "job-000000000001" }).runId };
    const first = await begun(sink, planFor(sink.planTarget));
    const second = await begun(sink, other);
    for (const { run, stored } of [first, second]) {
      await commitSpans(run, stored);
      await run.finish();
    }
    expect(await database.query("SELECT count(*)::int AS n FROM scores.predictions")).toEqual([{ n: 25 }]);
  });
});
