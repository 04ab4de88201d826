import { copyFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import type { Database } from "../support/pg-database.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf } from "../support/torture.js";

const postgres = usePostgres();
const fixture = fixtureNamed("diabetes-mlp");

interface Job {
  readonly night: (command: string, date: string, ...args: string[]) => ReturnType<typeof runHere>;
  readonly erase: (...args: string[]) => ReturnType<typeof runHere>;
}

async function jobIn(
  folder: string,
  database: Database,
  mode: object,
  { output = {}, ...overrides }: { readonly output?: object; readonly [key: string]: unknown } = {},
): Promise<Job> {
  const spec = await writePgSpec(folder, fixture, database, {
    params: { ds: "${today}" },
    commit_rows: 100,
    ...overrides,
    output: { ...output, postgres: mode },
  });
  const keys = join(folder, "keys.txt");
  await writeFile(keys, "5\n441\n9999\n");
  return {
    night: (command, date, ...args) => runHere([command, spec, "--param", `ds=${date}`, ...args]),
    erase: (...args) => runHere(["erase", spec, "--keys", keys, ...args]),
  };
}

const idsOf = async (database: Database, table = "scores.predictions"): Promise<number> =>
  Number((await database.query(`SELECT count(*)::int AS n FROM ${table} WHERE id IN (5, 441)`))[0]?.["n"]);

postgres.describe("erase in Postgres", () => {
  test.each(["upsert", "replace"])(
    "a run that is refused since a later date is published keeps no row from being erased: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const job = await jobIn(scratch.path, database, { mode, key: ["id"] });
      await expectEnd(job.night("run", "2026-01-02"), 0);
      await expectEnd(job.night("run", "2026-01-01"), 66);
      await expectEnd(job.erase(), 0);
      expect(await idsOf(database)).toBe(0);
      await expectEnd(job.night("run", "2026-01-01", "--allow-older"), 0);
    },
  );

  test("erase removes the errors of attempts, which quote keys", async () => {
    await using database = await postgres.server().createDatabase();
    const twice = { columns: { id: "CASE WHEN id = 6 THEN 5 ELSE id END" } };
    const mode = { mode: "upsert", key: ["id"] };
    const spoilt = await jobIn(scratch.path, database, mode, { input: twice, commit_rows: 1000 });
    await expectEnd(spoilt.night("run", "2026-01-01"), 65);
    const messages = (): ReturnType<Database["query"]> => database.query("SELECT message FROM infer_batch.errors");
    expect(await messages()).toEqual([{ message: expect.stringContaining('id = "5"') }]);
    const job = await jobIn(scratch.path, database, mode, { commit_rows: 1000 });
    await expectEnd(job.night("run", "2026-01-01"), 0);
    await expectEnd(job.erase(), 0);
    expect(await messages()).toEqual([]);
    expect(await database.query("SELECT FROM infer_batch.documents WHERE document::text LIKE '%\"5%'")).toEqual([]);
  });

  test("erase deletes the rows of keys from an upserted table, and records when and how many, never whose", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, { mode: "upsert", key: ["id"] });
    await expectEnd(job.night("run", "2026-01-01"), 0);
    expect(lastJson(await job.erase("--dry-run", "--json"))).toMatchObject({ rows: 2, keys_not_found: 1 });
    expect(await idsOf(database)).toBe(2);

    const erased = await expectEnd(job.erase("--json"), 0);
    expect(lastJson(erased)).toMatchObject({ keys: 3, keys_not_found: 1, rows: 2, rejects: 0 });
    expect(await idsOf(database)).toBe(0);
    expect(await database.query("SELECT count(*)::int AS n FROM scores.predictions")).toEqual([{ n: 440 }]);
    expect(
      await database.query("SELECT target, key, keys::int, keys_not_found::int, rows::int FROM infer_batch.erasures"),
    ).toEqual([{ target: "scores.predictions", key: ["id"], keys: 3, keys_not_found: 1, rows: 2 }]);
    expect(lastJson(await job.night("status", "2026-01-01", "--json"))).toMatchObject({
      status: "published",
      damage: [],
    });
    await database.query("VACUUM FULL scores.predictions");
    expect((await job.night("run", "2026-01-01")).stdout).toContain("already complete");
    await expectEnd(job.night("run", "2026-01-02"), 0);
    expect(await idsOf(database)).toBe(2); // the input has them
  });

  test("erase deletes from the tables that replace keeps, so that a rollback brings no row back", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, { mode: "replace", key: ["id"], keep_previous: 2 });
    await job.night("run", "2026-01-01");
    await job.night("run", "2026-01-02");
    const { stdout } = await job.erase();
    expect(stdout).toMatch(/scores\.predictions +2 +0\n.*scores\.predictions__\w+ +2 +0\n/);
    await expectEnd(job.night("rollback", "2026-01-02"), 0);
    expect(await idsOf(database)).toBe(0);
  });

  test.each([
    ["DECIMAL(9, 2)", "441"],
    ["DECIMAL(9, 0)", "441.0"],
  ])(
    "erase deletes rejected rows of the keys, of %s as %s, too, and nothing while a run is held",
    async (type, key) => {
      await using database = await postgres.server().createDatabase();
      const where = "id in (3, 4, 5) or id > 440";
      const columns = { id: `id::${type}`, age: "case when id = 441 then 'nan' else 0.5 end" };
      const overrides = { checks: {}, on_bad_row: "reject", input: { where, columns } };
      const job = await jobIn(scratch.path, database, { mode: "append" }, overrides);
      await writeFile(join(scratch.path, "keys.txt"), `5\n${key}\n9999\n`);
      await expectEnd(job.night("run", "2026-01-01"), 67);
      await expectEnd(
        job.erase(),
        67,
        /is held by its checks, so nothing was erased\n.*approve or discard it: infer-batch approve .*--param ds=2026-01-01/,
      );
      await expectEnd(job.night("approve", "2026-01-01", "--reason", "small"), 0);
      expect(lastJson(await job.erase("--json"))).toMatchObject({ rows: 1, rejects: 1, keys_not_found: 1 });
      expect(await database.query("SELECT columns->>'id' AS id FROM infer_batch.rejects")).toEqual([]);
      await expectEnd(job.night("rejects", "2026-01-01"), 0);
      expect((await job.night("status", "2026-01-01")).stdout).toContain("published");
    },
  );

  test.each(firstOf(["upsert", "replace", "append"]))(
    "predictions of a challenger that no run completes do not stop erase, which removes their rows, too: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const key = mode === "upsert" ? ["id"] : [];
      const path = join(scratch.path, "challenger.onnx");
      const outputs = { score: "score" };
      const challenger = { model: { outputs }, challenger: { path, outputs }, output: { lineage: mode !== "replace" } };
      const job = await jobIn(scratch.path, database, { mode, key }, challenger);
      await copyFile(join(projectFolder, "fixtures/models/diabetes-mlp.onnx"), path);
      await expectEnd(job.night("run", "2026-01-01", "--worker", "1/2"), 0);
      await rm(path);
      await expectEnd(job.night("run", "2026-01-01"), 0, "challenger: not whole");
      const [row] = await database.query(
        "SELECT schemaname, tablename FROM pg_tables WHERE tablename LIKE '%staging%'",
      );
      const table =
        mode === "replace"
          ? `${String(row?.["schemaname"])}."${String(row?.["tablename"])}"`
          : "scores.predictions_challenger";
      expect(await idsOf(database, table)).toBeGreaterThan(0);

      await expectEnd(job.erase(), 0);
      expect([await idsOf(database), await idsOf(database, table)]).toEqual([0, 0]);
      await copyFile(join(projectFolder, "fixtures/models/diabetes-mlp.onnx"), path);
      await expectEnd(job.night("run", "2026-01-01", "--new-run", "--allow-duplicates"), 0);
    },
  );

  test("predictions of a challenger whose run is not over stop erase", async () => {
    await using database = await postgres.server().createDatabase();
    const outputs = { score: "score" };
    const challenger = { path: join(projectFolder, "fixtures/models/diabetes-mlp.onnx"), outputs };
    const job = await jobIn(scratch.path, database, { mode: "replace", key: [] }, { model: { outputs }, challenger });
    await expectEnd(job.night("run", "2026-01-01", "--worker", "0/2"), 0);
    await expectEnd(job.erase(), 67, "is not finished");
  });

  test("the message about an open run of another job names that job", async () => {
    await using database = await postgres.server().createDatabase();
    const mode = { mode: "upsert", key: ["id"] };
    const other = await jobIn(scratch.path, database, mode, { name: "other" });
    await expectEnd(other.night("run", "2026-01-01", "--worker", "0/2"), 0);
    const job = await jobIn(scratch.path, database, mode);
    await expectEnd(
      job.erase(),
      67,
      /run other-\S+ is not finished, so nothing was erased\n.*finish it: it belongs to job other: use the spec of that job, or give this job its name\n {4}then run/,
    );
  });

  test("erase refuses a key that is not a value of its column, without the key in the message", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, { mode: "append" });
    await job.night("run", "2026-01-01");
    await writeFile(join(scratch.path, "keys.txt"), "5\nmiller\n");
    const { code, stderr } = await job.erase();
    expect([code, stderr.includes("miller")]).toEqual([64, false]);
    expect(await idsOf(database)).toBe(2);
  });

  test("diff prefers the key of the table to checks.unique, and erase asks for --key if they differ", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, fixture, database, {
      params: { ds: "${today}" },
      input: { columns: { place: "1000 + id" } },
      checks: { unique: ["place"] },
      output: { columns: ["id", "place"], postgres: { mode: "upsert", key: ["id"] } },
    });
    await expectEnd(runHere(["run", spec, "--param", "ds=2026-01-01"]), 0);
    const keys = join(scratch.path, "keys.txt");
    await writeFile(keys, "5\n");
    const diff = [
      "diff",
      spec,
      "--param",
      "ds=2026-01-01",
      "--table",
      "scores.predictions",
      "--against",
      "scores.before",
      "--json",
    ];
    await database.query("CREATE TABLE scores.before AS SELECT * FROM scores.predictions");
    const compared = await expectEnd(runHere(diff), 0);
    expect(lastJson(compared)).toMatchObject({ key: ["id"] });
    await expectEnd(
      runHere(["erase", spec, "--keys", keys]),
      64,
      /they may be values of id \(output\.postgres\.key\) or place \(checks\.unique\)\n.*--key id or --key place/,
    );
    expect(await database.query("SELECT count(*)::int AS n FROM scores.predictions")).toEqual([{ n: 442 }]);
    const erased = await runHere(["erase", spec, "--keys", keys, "--key", "id", "--json"]);
    expect(lastJson(erased)).toMatchObject({ key: ["id"], rows: 1 });
  });

  test("erase warns of the tables of a renamed job or table, and erases the rejects of a table that is gone", async () => {
    await using database = await postgres.server().createDatabase();
    const rejecting = {
      on_bad_row: "reject",
      input: { columns: { age: "case when id = 441 then 'nan' else 0.5 end" } },
    };
    const mode = { mode: "upsert", key: ["id"] };
    const job = await jobIn(scratch.path, database, mode, rejecting);
    await job.night("run", "2026-01-01");
    expect((await job.erase("--dry-run")).stderr).toBe("");
    expect((await (await jobIn(scratch.path, database, mode, { name: "other" })).erase("--dry-run")).stderr).toBe("");

    await database.query("ALTER TABLE scores.predictions RENAME TO kept");
    const moved = await jobIn(scratch.path, database, { ...mode, table: "scores.kept" }, rejecting);
    expect((await moved.erase()).stderr).toMatch(
      /^warning: runs of job \S+ also wrote to scores\.predictions, which is not searched; .*table: scores\.predictions\n$/,
    );
    expect(lastJson(await (await jobIn(scratch.path, database, mode, rejecting)).erase("--json"))).toMatchObject({
      rows: 0,
      rejects: 1,
    });
    const fresh = await jobIn(scratch.path, database, { ...mode, table: "scores.new" }, { name: "other" });
    expect((await fresh.erase()).stderr).toMatch(
      /^warning: no run in control_schema infer_batch is known for scores\.new at \S+; if the name of the job or output\.postgres\.table or control_schema was/,
    );
  });

  test("a key that is longer than its column erases no row of the text that it begins with", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query("CREATE SCHEMA scores");
    await database.query("CREATE TABLE scores.predictions (id bigint, who varchar(3), score real)");
    const spec = await writePgSpec(scratch.path, fixture, database, {
      input: { columns: { who: "cast(id as varchar)" } },
      output: { columns: ["id", "who"], postgres: { mode: "append", create: false } },
    });
    await expectEnd(runHere(["run", spec]), 0);
    const keys = join(scratch.path, "keys.txt");
    await writeFile(keys, "1234567\n");
    expect(lastJson(await runHere(["erase", spec, "--key", "who", "--keys", keys, "--json"]))).toMatchObject({
      rows: 0,
    });
    await writeFile(keys, "123\n");
    expect(lastJson(await runHere(["erase", spec, "--key", "who", "--keys", keys, "--json"]))).toMatchObject({
      rows: 1,
    });
  });
});
