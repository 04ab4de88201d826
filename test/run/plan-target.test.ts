import { chmod, mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { rehearseOnDisk } from "#src/stores/disk-rehearsal.js";
import { expectEnd, runCli, runHere } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import { partNames } from "../support/output.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();
const wine = fixtureNamed("wine-forest");

describe("plan with an output in files", () => {
  test("plan and validate end with 64 if the output folder has files that no run wrote", async () => {
    const spec = await writeSpec(scratch.path, wine);
    await mkdir(join(scratch.path, "out"));
    await writeFile(join(scratch.path, "out/notes.txt"), "mine");
    for (const command of ["plan", "validate"]) {
      await expectEnd(runHere([command, spec]), 64, "notes.txt is there, which no run wrote");
    }
  });

  test("plan ends with 64 if a folder is in the place of _SUCCESS", async () => {
    const spec = await writeSpec(scratch.path, wine);
    await mkdir(join(scratch.path, "out/_SUCCESS"), { recursive: true });
    await expectEnd(runHere(["plan", spec]), 64, "remove this folder");
  });

  test("plan lists the checks that it did not carry out, and says that a run is complete", async () => {
    const spec = await writeSpec(scratch.path, wine);
    expect((await runHere(["plan", spec])).stdout).toContain("untried  hard links and quotas of the disk\n");
    expect(await readdir(scratch.path)).toEqual(["job.yaml"]);
    await runHere(["run", spec, "--quiet"]);
    const { stdout } = await runHere(["plan", spec]);
    expect(stdout).toMatch(/^target .*out, which has this run: published$/m);
    expect(stdout).not.toContain("untried");
    await runHere(["run", spec, "--quiet", "--new-run"]);
    expect((await runHere(["plan", spec])).stdout).toMatch(/^target .*out, which has run wine-\S+-r2: published$/m);
  });

  test("plan ends with 66 if a part of a finished run is gone", async () => {
    const spec = await writeSpec(scratch.path, wine);
    await runHere(["run", spec, "--quiet"]);
    const [part = ""] = await partNames(join(scratch.path, "out"));
    await rm(join(scratch.path, "out", part));
    await expectEnd(runHere(["plan", spec]), 66, part);
  });

  test("a disk with less space than the predictions may take is named", async () => {
    const rehearsed = (bytes: number): Promise<readonly string[]> =>
      rehearseOnDisk({ folder: join(scratch.path, "a/out"), working: [], bytes, columns: 2 });
    expect(await rehearsed(100)).toHaveLength(1);
    expect((await rehearsed(1e16))[0]).toMatch(/^whether the predictions fit: .* free, and 2 columns may take /);
  });

  test.skipIf(process.getuid?.() !== 0)("plan ends with 64 if the folder cannot be written to", async () => {
    const spec = await writeSpec(scratch.path, wine);
    await chmod(scratch.path, 0o755);
    await expectEnd(
      runCli(["plan", spec], { uid: 65_534, env: { HOME: "/nonexistent" } }),
      64,
      `this user may not write to ${scratch.path}`,
    );
  });
});

postgres.describe("plan with an output in Postgres", () => {
  test("plan leaves nothing in the database, and the run that follows is complete", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, wine, database);
    expect((await expectEnd(runHere(["plan", spec]), 0)).stdout).toContain(
      "untried  triggers, rules, constraints, partitions and policies of the table",
    );
    const left = await database.query(
      "SELECT nspname FROM pg_namespace WHERE nspname IN ('infer_batch', 'scores') UNION ALL SELECT relname FROM pg_class WHERE relname = 'predictions'",
    );
    expect(left).toEqual([]);
    await expectEnd(runHere(["run", spec, "--quiet"]), 0);
    expect((await runHere(["plan", spec])).stdout).toContain(", which has this run: published");
  });

  test("plan and validate end with 64 for a table with other columns, and for a role without the right to insert", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query("CREATE SCHEMA scores");
    await database.query("CREATE TABLE scores.predictions (id text)");
    const spec = await writePgSpec(scratch.path, wine, database);
    for (const command of ["plan", "validate"]) {
      await expectEnd(runHere([command, spec]), 64, "scores.predictions");
    }

    await database.query("DROP TABLE scores.predictions");
    await expectEnd(runHere(["run", spec, "--quiet"]), 0);
    await database.query("CREATE ROLE reader LOGIN");
    await database.query("GRANT USAGE ON SCHEMA scores, infer_batch TO reader");
    await database.query("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA infer_batch TO reader");
    await database.query("GRANT SELECT ON scores.predictions TO reader");
    try {
      const url = new URL(database.url);
      url.username = "reader";
      const limited = await writePgSpec(scratch.path, wine, { url: url.href }, { name: "other" });
      await expectEnd(runHere(["plan", limited]), 64, /reader lacks the privilege INSERT on/);
    } finally {
      await database.query("DROP OWNED BY reader");
      await database.query("DROP ROLE reader");
    }
  });

  test("plan ends with 64 for a role that lacks a right on the table or on a control table", async () => {
    await using database = await postgres.server().createDatabase();
    const upsert = { output: { postgres: { mode: "upsert", key: ["id"] } } };
    const spec = await writePgSpec(scratch.path, wine, database, upsert);
    await expectEnd(runHere(["run", spec, "--quiet"]), 0);
    await database.query(`CREATE ROLE writer LOGIN;
      GRANT USAGE, CREATE ON SCHEMA scores, infer_batch TO writer;
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA infer_batch TO writer;
      GRANT SELECT, INSERT, UPDATE ON scores.predictions TO writer`);
    try {
      const url = new URL(database.url);
      url.username = "writer";
      const planned = async (overrides: Parameters<typeof writePgSpec>[3]): Promise<unknown> => {
        const job = await writePgSpec(scratch.path, wine, { url: url.href }, { name: "other", ...overrides });
        const { code, stderr } = await runHere(["plan", job]);
        return [code, /lacks the privilege \w+ on \S+/.exec(stderr)?.[0]];
      };
      expect(await planned(upsert)).toEqual([0, undefined]);
      await database.query("REVOKE UPDATE ON scores.predictions FROM writer");
      expect(await planned(upsert)).toEqual([64, 'lacks the privilege UPDATE on "scores"."predictions"']);
      expect(await planned({})).toEqual([0, undefined]);
      await database.query("REVOKE INSERT ON infer_batch.spans FROM writer");
      expect(await planned({})).toEqual([64, 'lacks the privilege INSERT on "infer_batch".spans']);
      await database.query(
        "GRANT INSERT ON infer_batch.spans TO writer; REVOKE INSERT ON scores.predictions FROM writer",
      );
      const staged = { params: { ds: "2026-11-21" }, checks: {} }; // its rows are staged in another table
      expect(await planned(staged)).toEqual([64, 'lacks the privilege INSERT on "scores"."predictions"']);
    } finally {
      await database.query("DROP OWNED BY writer");
      await database.query("DROP ROLE writer");
    }
  });

  test("plan ends with 64 for what only a write meets: columns, policies and temporary tables", async () => {
    await using database = await postgres.server().createDatabase();
    const upsert = { output: { postgres: { mode: "upsert", key: ["id"] } } };
    await expectEnd(runHere(["run", await writePgSpec(scratch.path, wine, database, upsert), "--quiet"]), 0);
    const name = new URL(database.url).pathname.slice(1);
    await database.query(`CREATE ROLE filler LOGIN;
      GRANT USAGE, CREATE ON SCHEMA scores, infer_batch TO filler;
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA infer_batch TO filler;
      GRANT SELECT, INSERT, UPDATE ON scores.predictions TO filler`);
    const url = new URL(database.url);
    url.username = "filler";
    const spec = await writePgSpec(scratch.path, wine, { url: url.href }, { name: "other", ...upsert });
    const table = "ALTER TABLE scores.predictions";
    try {
      for (const [change, back, said] of [
        [
          "REVOKE INSERT ON scores.predictions FROM filler; GRANT INSERT (id) ON scores.predictions TO filler",
          "GRANT INSERT ON scores.predictions TO filler",
          "permission denied for table predictions",
        ],
        [
          `REVOKE TEMP ON DATABASE "${name}" FROM PUBLIC`,
          `GRANT TEMP ON DATABASE "${name}" TO PUBLIC`,
          "permission denied to create temporary tables",
        ],
      ] as const) {
        await database.query(change);
        const refused = await runHere(["plan", spec]);
        expect([refused.code, refused.stderr], change).toEqual([64, expect.stringContaining(said)]);
        await database.query(back);
      }
      await database.query(`${table} ENABLE ROW LEVEL SECURITY`);
      const appending = await writePgSpec(scratch.path, wine, { url: url.href }, { name: "third" });
      await expectEnd(runHere(["plan", appending]), 64, "row-level security");
      await database.query(`${table} DISABLE ROW LEVEL SECURITY`);
      await writePgSpec(scratch.path, wine, { url: url.href }, { name: "other", ...upsert });
      await expectEnd(runHere(["plan", spec]), 0);
      await expectEnd(runHere(["run", spec, "--quiet"]), 0);
    } finally {
      await database.query("DROP OWNED BY filler");
      await database.query("DROP ROLE filler");
    }
  });

  test("plan starts no trigger, and does not wait for a table that another session has locked", async () => {
    await using database = await postgres.server().createDatabase();
    await expectEnd(runHere(["run", await writePgSpec(scratch.path, wine, database), "--quiet"]), 0);
    const spec = await writePgSpec(scratch.path, wine, database, { name: "other" });
    await database.query("BEGIN; LOCK scores.predictions IN SHARE MODE"); // as CREATE INDEX does
    const locked = await runHere(["plan", spec]);
    await database.query("ROLLBACK");
    expect([locked.code, locked.stdout]).toEqual([0, expect.stringContaining("another session has locked it")]);
    await database.query(`CREATE SEQUENCE scores.started;
      CREATE FUNCTION scores.start() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('scores.started'); RETURN NULL; END $$;
      CREATE TRIGGER updates BEFORE UPDATE OR DELETE ON scores.predictions FOR EACH STATEMENT EXECUTE FUNCTION scores.start()`);
    const unconcerned = await runHere(["plan", spec]);
    expect([unconcerned.code, unconcerned.stdout]).toEqual([0, expect.not.stringContaining("statement-level")]);
    await database.query(
      `CREATE TRIGGER starts BEFORE INSERT ON scores.predictions FOR EACH STATEMENT EXECUTE FUNCTION scores.start()`,
    );
    expect((await expectEnd(runHere(["plan", spec]), 0)).stdout).toContain(
      "it has statement-level triggers, so plan runs no statement on it",
    );
    expect(await database.query("SELECT is_called FROM scores.started")).toEqual([{ is_called: false }]);
  });

  test("plan ends with 66 for a date before a published one", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, wine, database, {
      params: { ds: "${today}" },
      output: { postgres: { mode: "upsert", key: ["id"] } },
    });
    await expectEnd(runHere(["run", spec, "--param", "ds=2026-01-02", "--quiet"]), 0);
    await expectEnd(runHere(["plan", spec, "--param", "ds=2026-01-01"]), 66, "is for a later date than");
    await expectEnd(runHere(["plan", spec, "--param", "ds=2026-01-03"]), 0);
  });

  test("plan shows the plan of a job whose server is unreachable, and says that the target was not checked", async () => {
    const url = "postgres://nobody@127.0.0.1:1/none";
    const spec = await writePgSpec(scratch.path, wine, { url }, { retry: { max_seconds: 1 } });
    expect((await expectEnd(runHere(["plan", spec]), 0)).stdout).toMatch(/^untried {2}the target: .*127\.0\.0\.1:1/m);
  });
});
