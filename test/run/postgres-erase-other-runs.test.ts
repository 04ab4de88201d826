import { copyFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { RunId } from "#src/run/plan/plan.js";
import { stagedRowsTable } from "#src/targets/postgres/table.js";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { connect, type Database } from "../support/pg-database.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { until } from "../support/waiting.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();
const fixture = fixtureNamed("diabetes-mlp");
const params = { ds: "${today}" };
const night = ["--param", "ds=2026-01-01"];

async function writeKeys(folder: string, text: string): Promise<string> {
  const keys = join(folder, "keys.txt");
  await writeFile(keys, text);
  return keys;
}

interface IncompleteKept {
  readonly erase: (...args: string[]) => ReturnType<typeof runHere>;
  /** The id of the kept run. */
  readonly kept: string;
  /** Makes `erase` connect with another URL. */
  readonly use: (url: string) => Promise<void>;
}

/** Publishes a run (mode `replace`) whose challenger's lacks spans. */
async function incompleteKept(folder: string, database: Database): Promise<IncompleteKept> {
  const outputs = { score: "score" };
  const path = join(folder, "challenger.onnx");
  const write = async (url = database.url): Promise<string> =>
    await writePgSpec(
      folder,
      fixture,
      { ...database, url },
      {
        params,
        commit_rows: 100,
        model: { outputs },
        challenger: { path, outputs },
        output: { postgres: { mode: "replace" } },
      },
    );
  const spec = await write();
  await copyFile(join(projectFolder, "fixtures/models/diabetes-mlp.onnx"), path);
  await expectEnd(runHere(["run", spec, ...night, "--worker", "1/2"]), 0);
  await rm(path);
  await expectEnd(runHere(["run", spec, ...night]), 0);
  const [row] = await database.query("SELECT run_id FROM infer_batch.runs WHERE job LIKE '%.challenger'");
  const keys = await writeKeys(folder, "5\n441\n");
  return {
    erase: (...args) => runHere(["erase", spec, "--keys", keys, ...args]),
    kept: String(row?.["run_id"]),
    use: async (url) => {
      await write(url);
    },
  };
}

const keptSpans = async (database: Database): Promise<number> =>
  Number(
    (await database.query("SELECT count(*)::int AS n FROM infer_batch.spans WHERE run_id LIKE '%.challenger-%'"))[0]?.[
      "n"
    ],
  );

postgres.describe("erase in Postgres: keys, and runs of other tables and jobs", () => {
  test("erase finds the rejects of a dropped table by value, and refuses a key that is not a value of its column", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, fixture, database, {
      params,
      on_bad_row: "reject",
      input: { columns: { age: "case when id = 7 then 'nan' else 0.5 end" } },
      output: { columns: ["id"], postgres: { mode: "append" } },
    });
    await expectEnd(runHere(["run", spec, ...night]), 0);
    await database.query("DROP TABLE scores.predictions");
    const keys = await writeKeys(scratch.path, "abc\n");
    await expectEnd(runHere(["erase", spec, "--keys", keys]), 64, "one is not a value of id");
    await writeKeys(scratch.path, "007\n");
    expect(lastJson(await runHere(["erase", spec, "--keys", keys, "--json"]))).toMatchObject({
      rejects: 1,
      keys_not_found: 0,
    });
  });

  test.each([
    ["id", ["id"], 0],
    ["nothing", undefined, 64],
  ])("a text file of keys, where the key of the table has several columns and checks.unique %s", async (...given) => {
    const [, unique, code] = given;
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, fixture, database, {
      input: { columns: { place: "1000 + id" } },
      checks: { unique },
      output: { columns: ["id", "place"], postgres: { mode: "upsert", key: ["id", "place"] } },
    });
    const keys = join(scratch.path, "keys.txt");
    await writeFile(keys, "5\n");
    const erased = await expectEnd(runHere(["erase", spec, "--keys", keys, "--json"]), code);
    expect(`${erased.stdout}${erased.stderr}`).toContain(
      code === 0 ? '"key":["id"]' : "the key has several columns: id, place",
    );
  });

  test("erase warns of the other tables of a spec whose table name depends on a param, with the param of each", async () => {
    await using database = await postgres.server().createDatabase();
    const write = async (table: string): Promise<string> =>
      await writePgSpec(scratch.path, fixture, database, {
        params: { ...params, region: "eu" },
        output: { columns: ["id"], postgres: { mode: "append", table } },
      });
    const spec = await write("scores.p_${region}");
    for (const region of ["eu", "us"]) {
      await expectEnd(runHere(["run", spec, ...night, "--param", `region=${region}`]), 0);
    }
    const keys = await writeKeys(scratch.path, "7\n");
    expect(await runHere(["erase", spec, "--keys", keys])).toMatchObject({
      code: 0,
      stderr:
        "warning: erasing rows: only scores.p_eu is searched; the spec also writes to scores.p_us (--param region=us); run erase for each of them\n",
    });
    const other = await runHere(["erase", spec, "--keys", keys, "--param", "region=us", "--json"]);
    expect([lastJson(other)["rows"], other.stderr]).toEqual([
      1,
      expect.stringContaining("scores.p_eu (--param region=eu)"),
    ]);
    await write("scores.q_${region}");
    expect((await runHere(["erase", spec, "--keys", keys])).stderr).toMatch(
      /^warning: runs of job \S+ also wrote to scores\.p_us, scores\.p_eu, which is not searched; .*table: scores\.p_us\n$/,
    );
  });

  test("erase warns that the control_schema has no run for the table", async () => {
    await using database = await postgres.server().createDatabase();
    const write = async (schema: string): Promise<string> =>
      await writePgSpec(scratch.path, fixture, database, {
        output: { columns: ["id"], postgres: { mode: "append", control_schema: schema } },
      });
    await expectEnd(runHere(["run", await write("ib_one")]), 0);
    const keys = await writeKeys(scratch.path, "7\n");
    const erased = await runHere(["erase", await write("ib_two"), "--keys", keys, "--json"]);
    expect([erased.code, lastJson(erased)["rows"], erased.stderr]).toEqual([
      0,
      1,
      expect.stringMatching(
        /^warning: no run in control_schema ib_two is known for scores\.predictions at \S+; if the name of the job or output\.postgres\.table or control_schema was changed/,
      ),
    ]);
  });

  test("neither a dry run of erase nor a role that may not delete spans takes back spans of a challenger's run that is not complete", async () => {
    await using database = await postgres.server().createDatabase();
    const { erase, use } = await incompleteKept(scratch.path, database);
    const before = await keptSpans(database);
    expect(before).toBeGreaterThan(0);
    await expectEnd(erase("--dry-run"), 0);
    expect(await keptSpans(database)).toBe(before);

    const staged =
      "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE tablename LIKE '%staging%'";
    const staging = String((await database.query(staged))[0]?.["name"]);
    const rowsOf = async (): Promise<unknown> => (await database.query(`SELECT count(*)::int AS n FROM ${staging}`))[0];
    expect(await rowsOf()).toEqual({ n: 242 });
    await database.query(`CREATE ROLE spanless LOGIN; GRANT USAGE, CREATE ON SCHEMA scores, infer_batch TO spanless;
      GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA scores, infer_batch TO spanless;
      ALTER TABLE ${staging} OWNER TO spanless; REVOKE DELETE ON infer_batch.spans FROM spanless`);
    try {
      await use(postgres.server().url(database.name, "spanless"));
      const erased = await erase("--json");
      expect([erased.code, lastJson(erased)["rows"]], erased.stderr).toEqual([0, 3]);
      expect(await rowsOf()).toEqual({ n: 241 });
      expect(await keptSpans(database)).toBe(before);
    } finally {
      await database.query("DROP OWNED BY spanless; DROP ROLE spanless");
    }
  });

  test("erase fails if a run has left a table of another role whose rows this role may not delete, and erases them if it may", async () => {
    await using database = await postgres.server().createDatabase();
    const write = (url: string): Promise<string> =>
      writePgSpec(scratch.path, fixture, database, {
        params,
        checks: {},
        output: { postgres: { url, mode: "append" } },
      });
    const spec = await write(database.url);
    await expectEnd(runHere(["run", spec, ...night]), 0);
    const [run] = await database.query("SELECT run_id FROM infer_batch.runs");
    const runId = String(run?.["run_id"]) as RunId;
    const { schema, table } = stagedRowsTable("infer_batch", runId);
    const left = `${schema}.${table}`;
    const rowsOf = async (of: string): Promise<unknown> =>
      (await database.query(`SELECT count(*)::int AS n FROM ${of}`))[0];
    const keys = await writeKeys(scratch.path, "5\n441\n");
    const erase = (...args: string[]) => runHere(["erase", spec, "--keys", keys, ...args]);
    await database.query(`CREATE TABLE ${left} AS TABLE scores.predictions; CREATE ROLE eraser LOGIN;
      GRANT USAGE, CREATE ON SCHEMA scores, infer_batch TO eraser;
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA scores, infer_batch TO eraser;
      REVOKE DELETE ON ${left} FROM eraser`);
    try {
      await write(postgres.server().url(database.name, "eraser"));
      await expectEnd(erase("--dry-run"), 64);
      const [{ owner } = {}] = await database.query("SELECT current_user AS owner");
      const refused = await erase();
      expect([refused.code, await rowsOf("scores.predictions"), await rowsOf(left)]).toEqual([
        64,
        { n: 442 },
        { n: 442 },
      ]);
      expect(refused.stderr).toContain(
        `erasing rows of ${left}, a table of run ${runId}: it belongs to ${String(owner)}, and eraser may not erase its rows, so nothing was erased from it and from the other tables of the target`,
      );
      const grant = `GRANT SELECT, DELETE ON "${schema}"."${table}" TO "eraser"`;
      expect(refused.stderr).toContain(`hint: as ${String(owner)}: ${grant}\n`);
      await database.query(grant);
      const erased = await erase("--json");
      expect([erased.code, lastJson(erased)["rows"]], erased.stderr).toEqual([0, 4]);
      expect([await rowsOf("scores.predictions"), await rowsOf(left)]).toEqual([{ n: 440 }, { n: 440 }]);
    } finally {
      await database.query("DROP OWNED BY eraser; DROP ROLE eraser");
    }
  });

  test("erase takes locks in the same order as a finish, so that the two cannot deadlock", async () => {
    await using database = await postgres.server().createDatabase();
    const { erase, kept } = await incompleteKept(scratch.path, database);
    const finish = await connect(database.url);
    try {
      await finish.query("BEGIN");
      await finish.query(
        `SELECT pg_advisory_xact_lock_shared(hashtextextended('infer-batch runs ${kept}', 0))`, // finishRun
      );
      const erased = erase();
      await until(async () => {
        const waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        return (await database.query(waiting)).length > 0;
      });
      const swap =
        "SELECT pg_try_advisory_xact_lock(hashtextextended('infer-batch swap scores.predictions_challenger', 0)) AS free";
      expect((await finish.query(swap)).rows).toEqual([{ free: true }]); // swapIn
      await finish.query("COMMIT");
      await expectEnd(erased, 0);
    } finally {
      await finish.end();
    }
    expect(await keptSpans(database)).toBe(0);
  });
});
