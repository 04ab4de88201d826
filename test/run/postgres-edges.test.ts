import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import { readRows, writeRows } from "../support/parquet.js";
import { writePgSpec } from "../support/pg-job.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { runSpec, scoreHere } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();
const fixture = fixtureNamed("diabetes-mlp");

/** The fixture's first shard with a text column beside it, made by SQL. */
async function textJob(folder: string, database: Database, text: string, more: object = {}): Promise<string> {
  const table = join(folder, "table.parquet");
  const source = new URL("../../fixtures/data/diabetes/*.parquet", import.meta.url).pathname;
  await writeRows(table, `SELECT *, ${text} AS name FROM read_parquet('${source}') ORDER BY id LIMIT 20`);
  return await writePgSpec(folder, fixture, database, {
    input: { path: "table.parquet" },
    ...more,
    output: { columns: ["id", "name"], postgres: {} },
  });
}

const nulRow = "CASE WHEN id = (SELECT min(id) + 7 FROM read_parquet('@')) THEN 'a' || chr(0) || 'b' ELSE 'ok' END";
const withNul = nulRow.replace("@", new URL("../../fixtures/data/diabetes/*.parquet", import.meta.url).pathname);

postgres.describe("a value that Postgres cannot hold", () => {
  test("a value that Postgres cannot store ends the run, and is named with shard, row and column", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await textJob(scratch.path, database, withNul);
    await expectEnd(
      runHere(["run", spec, "--no-progress"]),
      65,
      String.raw`table.parquet: row 7, output column ${"`name`"} is "a\u0000b", and text in Postgres cannot hold`,
    );
    expect(await database.query("SELECT code FROM infer_batch.errors")).toEqual([{ code: "BAD_ROW" }]);
    const [progress] = await database.query("SELECT last_error FROM infer_batch.progress");
    expect(progress?.["last_error"]).toContain("row 7");
  });

  test("a value that Postgres cannot store is rejected with its reason, and the other rows of its span are written", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await textJob(scratch.path, database, withNul, { on_bad_row: "reject", max_rejects: 1 });
    const { summary } = await expectEnd(runSpec(spec), 0);
    expect(summary).toMatchObject({ status: "complete", rows_scored: 19, rows_rejected: 1 });
    expect(await database.query("SELECT count(*)::int AS n FROM scores.predictions")).toEqual([{ n: 19 }]);
    expect(
      await database.query("SELECT row::int, column_name, reason, columns->>'name' AS name FROM infer_batch.rejects"),
    ).toEqual([{ row: 7, column_name: "name", reason: "target_cannot_hold", name: "a␀b" }]);
    const { stdout } = await runHere(["rejects", spec, "--json"]);
    expect(JSON.parse(stdout)).toMatchObject({ row: 7, column: "name", reason: "target_cannot_hold" });
  });
});

/** A database whose encoding is not UTF-8. */
async function databaseIn(encoding: string): Promise<Database> {
  await using admin = await postgres.server().open("postgres");
  const name = `in_${encoding.toLowerCase()}`;
  await admin.query(`CREATE DATABASE ${name} ENCODING '${encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`);
  const database = await postgres.server().open(name);
  return {
    ...database,
    async [Symbol.asyncDispose]() {
      await database[Symbol.asyncDispose]();
      await using remover = await postgres.server().open("postgres");
      await remover.query(`DROP DATABASE ${name} WITH (FORCE)`);
    },
  };
}

postgres.describe("a text that the database's encoding cannot hold", () => {
  const names =
    "CASE (row_number() OVER (ORDER BY id)) WHEN 2 THEN 'n\u{e4}he' WHEN 4 THEN 'z\u{65e5}\u{672c}' ELSE 'ok' END";

  test("it ends the run, which says the column and the row of the span", async () => {
    await using database = await databaseIn("LATIN1");
    await expectEnd(
      runHere(["run", await textJob(scratch.path, database, names), "--no-progress"]),
      65,
      /has no equivalent in encoding "LATIN1" .*column name.*use a database with encoding UTF8/s,
    );
  });
});

postgres.describe("a table that does not fit", () => {
  test("a table that does not fit is refused before a row is scored, with both sides shown", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(
      "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id text, score real, added timestamptz NOT NULL, note text)",
    );
    const spec = await writePgSpec(scratch.path, fixture, database);
    const { stderr } = await expectEnd(runHere(["run", spec, "--no-progress"]), 64);
    expect(stderr.slice(stderr.indexOf("checking table"))).toMatchInlineSnapshot(`
      "checking table scores.predictions: 2 columns do not fit

        output          table
        id int64        id text                          does not fit: bigint would
        score float32   score real
        -               added timestamp with time zone   NOT NULL, and nothing to put there
        -               note text

        hint: change the table, output.columns or model.outputs; names must match exactly
      "
    `);
    expect(await database.query("SELECT count(*)::int AS n FROM infer_batch.runs")).toEqual([{ n: 0 }]);
  });

  test.each([
    ["missing, and not to be made", "CREATE SCHEMA scores", { create: false }, "there is no such table"],
    ["a view", "CREATE SCHEMA scores; CREATE VIEW scores.predictions AS SELECT 1 AS id", {}, "it is not a table"],
  ])("a table that does not fit is refused when it is %s", async (_what, sql, more, said) => {
    await using database = await postgres.server().createDatabase();
    await database.query(sql);
    const spec = await writePgSpec(scratch.path, fixture, database, { output: { postgres: more } });
    await expect(scoreHere(spec)).rejects.toMatchObject({ exitCode: 64, message: expect.stringContaining(said) });
  });

  test("a table that disappears during a run is not created again", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, fixture, database, { commit_rows: 100 });
    await scoreHere(spec);
    await database.query(
      "DROP TABLE scores.predictions; DELETE FROM infer_batch.finishes; DELETE FROM infer_batch.spans WHERE span = 1",
    );
    await expect(scoreHere(spec)).rejects.toMatchObject({ code: "OUTPUT_DAMAGED", exitCode: 66 });
  });
});

postgres.describe("a password", () => {
  test("a password is in no message, log or table", async () => {
    await using database = await postgres.server().createDatabase();
    const env = { DATABASE_URL: database.url.replace("postgres@", "postgres:s3cr3t-word@") };
    const spec = await writePgSpec(scratch.path, fixture, { url: "${DATABASE_URL}" });
    const said: string[] = [];
    for (const args of [
      ["plan", spec, "--json"],
      ["plan", spec],
      ["run", spec, "--json", "--log-level", "debug"],
      ["run", spec, "--log-format", "json"],
      ["status", spec, "--json"],
    ]) {
      const { stdout, stderr } = await expectEnd(runHere(args, { env }), 0);
      said.push(stdout, stderr);
    }
    const wrong = { DATABASE_URL: env.DATABASE_URL.replace(/127\.0\.0\.1:\d+/, "127.0.0.1:1") };
    const away = await writePgSpec(scratch.path, fixture, { url: "${DATABASE_URL}" }, { retry: { max_seconds: 1 } });
    const failed = await expectEnd(runHere(["run", away, "--log-level", "debug"], { env: wrong }), 75);
    said.push(failed.stdout, failed.stderr);
    const kept = await database.query(
      "SELECT to_jsonb(r)::text AS row FROM infer_batch.runs r UNION ALL SELECT to_jsonb(a)::text FROM infer_batch.attempts a",
    );
    expect([...said, ...kept.map(({ row }) => String(row))].filter((text) => text.includes("s3cr3t"))).toEqual([]);
  });
});

postgres.describe("lineage", () => {
  test("adds run, model and time to each row, in both targets", async () => {
    await using database = await postgres.server().createDatabase();
    const before = Date.now();
    const report = await scoreHere(await writePgSpec(scratch.path, fixture, database, { output: { lineage: true } }));
    const rows = await database.query("SELECT DISTINCT run_id, model_sha256, scored_at FROM scores.predictions");
    const [plan] = await database.query("SELECT plan::json->'model'->>'sha256' AS sha256 FROM infer_batch.runs");
    expect(rows).toEqual([{ run_id: report.runId, model_sha256: plan?.["sha256"], scored_at: expect.any(Date) }]);
    expect(Number(rows[0]?.["scored_at"])).toBeGreaterThanOrEqual(before - 1);

    const files = await writeSpec(scratch.path, fixture, { output: { lineage: true } });
    await scoreHere(files);
    const [part] = await readRows(join(scratch.path, "out/*.parquet"));
    expect(part).toMatchObject({ run_id: report.runId, model_sha256: plan?.["sha256"] });
    expect((await scoreHere(files)).status).toBe("already_complete");
  });
});
