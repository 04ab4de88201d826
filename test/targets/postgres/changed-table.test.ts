import { expect, test } from "vitest";
import type { Database } from "../../support/pg-database.js";
import { changeAmid, count, modes, plainTable, runOf, wholeRun } from "../../support/pg-amid.js";
import { usePostgres } from "../../support/postgres.js";
import { carryOut, pgSink, planFor } from "../../support/sinks.js";
import { firstOf } from "../../support/torture.js";

const postgres = usePostgres();

const indexes = async (database: Database): Promise<unknown[]> =>
  await database.query(
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'scores' AND tablename = 'predictions' ORDER BY 1",
  );

const withTrigger = (body: string): string => `${plainTable};
  CREATE FUNCTION scores.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${body} RETURN NEW; END $$;
  CREATE TRIGGER t BEFORE INSERT ON scores.predictions FOR EACH ROW EXECUTE FUNCTION scores.f()`;

postgres.describe("a column whose type changes during a run", () => {
  test.each(firstOf(modes))(
    "a column whose type changes during a run is never given bytes of the old type: %s",
    async (_mode, spec) => {
      await using database = await postgres.server().createDatabase();
      await database.query(plainTable);
      const change = "ALTER TABLE scores.predictions ALTER score TYPE int4";
      await expect(changeAmid(database, spec, change)).rejects.toMatchObject({ code: "OUTPUT_MISMATCH", exitCode: 64 });
      expect(await database.query("SELECT count(*)::int AS n FROM scores.predictions WHERE score > 10")).toEqual([
        { n: 0 },
      ]);
    },
  );

  test.each([
    [
      "another width, append",
      { mode: "append" },
      "ALTER score TYPE float8",
      "was real when the run began, and is double precision",
    ],
    [
      "another width, upsert",
      { mode: "upsert", key: ["id"] },
      "ALTER score TYPE float8",
      "was real when the run began, and is double precision",
    ],
    ["a text", { mode: "append" }, "ALTER score TYPE text", "was real when the run began, and is text"],
    ["gone", { mode: "append" }, "DROP score", "was real when the run began, and is gone"],
    ["another name", { mode: "append" }, "RENAME score TO points", "was real when the run began, and is gone"],
  ] as const)(
    "a changed column is reported as such, not by the server's error about its bytes: %s",
    async (_what, spec, sql, said) => {
      await using database = await postgres.server().createDatabase();
      await database.query(plainTable);
      await expect(changeAmid(database, spec, `ALTER TABLE scores.predictions ${sql}`)).rejects.toMatchObject({
        code: "OUTPUT_MISMATCH",
        message: `writing to scores.predictions: column score ${said}`,
      });
      expect(await count(database)).toBe(10);
    },
  );

  test("a changed column is written where its values still fit", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = { mode: "append" } as const;
    const change = "ALTER TABLE scores.predictions ALTER score TYPE float8";
    await expect(changeAmid(database, spec, change)).rejects.toMatchObject({
      code: "OUTPUT_MISMATCH",
      message: "writing to scores.predictions: column score was real when the run began, and is double precision",
      hint: expect.stringContaining("run the same command again"),
    });
    await using sink = pgSink({ url: database.url, postgres: spec });
    await carryOut(sink, planFor(sink.planTarget, { rows: 40, runId: runOf(40) }));
    expect(await database.query("SELECT count(*)::int AS n, sum(score) AS sum FROM scores.predictions")).toEqual([
      { n: 40, sum: 195 },
    ]);
  });
});

postgres.describe("a table that is made anew in mid-run", () => {
  test.each(modes.slice(0, 2))(
    "a table that is created again during a run does not get the remaining rows: %s",
    async (_mode, spec) => {
      await using database = await postgres.server().createDatabase();
      const change = "DROP TABLE scores.predictions; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real)";
      await expect(changeAmid(database, spec, change)).rejects.toMatchObject({ code: "OUTPUT_DAMAGED", exitCode: 66 });
      await expect(changeAmid(database, spec, "SELECT 1")).rejects.toThrow(/this is another one of that name/);
      expect(await count(database)).toBe(0);

      await database.query("UPDATE infer_batch.spans SET table_oid = 'scores.predictions'::regclass"); // as the hint says
      await expect(changeAmid(database, spec, "SELECT 1")).rejects.toThrow(
        /holds 0 rows, and the run has put 10 there/,
      );
      await database.query("INSERT INTO scores.predictions SELECT n, n / 2.0 FROM generate_series(0, 9) AS n"); // a restore
      await changeAmid(database, spec, "SELECT 1");
      expect(await count(database)).toBe(40);
    },
  );
});

postgres.describe("a trigger that keeps a row out", () => {
  test.each(firstOf(modes.toReversed()))("a trigger that rejects a row ends the run: %s", async (_mode, spec) => {
    for (const more of spec.mode === "upsert" ? [{}, { on_duplicate: "last" as const }] : [{}]) {
      await using database = await postgres.server().createDatabase();
      await database.query(withTrigger("IF NEW.id = 3 THEN RETURN NULL; END IF;"));
      const done = changeAmid(database, { ...spec, ...more }, "SELECT 1");
      await expect(done).rejects.toMatchObject({
        code: spec.mode === "replace" && spec.swap === "rename" ? "OUTPUT_MISMATCH" : "OUTPUT_REFUSED",
      });
      expect(await count(database)).toBe(0);
    }
  });

  test("a trigger that ignores updates without a change is no error in upsert", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(`${withTrigger("")};
      CREATE TRIGGER same BEFORE UPDATE ON scores.predictions FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`);
    for (const rows of [20, 40]) {
      await wholeRun(database, rows, { mode: "upsert" });
    }
    expect(await count(database)).toBe(40);
  });
});

postgres.describe("rules and policies of a table whose rows are exchanged", () => {
  const spec = { mode: "replace", key: [], swap: "delete_insert" } as const;

  test.each([
    ["a rule that eats rows", "CREATE RULE r AS ON INSERT TO scores.predictions DO INSTEAD NOTHING"],
    ["a rule that keeps rows", "CREATE RULE r AS ON DELETE TO scores.predictions DO INSTEAD NOTHING"],
  ])("a rule or trigger ends the run when rows are exchanged: %s", async (_what, sql) => {
    await using database = await postgres.server().createDatabase();
    await wholeRun(database, 25, spec);
    await database.query(sql);
    await expect(wholeRun(database, 40, spec)).rejects.toMatchObject({ code: "OUTPUT_REFUSED" });
    expect(await count(database)).toBe(25);
  });

  test("a policy that hides rows from the role that would delete them ends the run", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(`DROP ROLE IF EXISTS blinkered; CREATE ROLE blinkered LOGIN;
      GRANT CREATE ON DATABASE ${database.name} TO blinkered; CREATE SCHEMA scores; GRANT ALL ON SCHEMA scores TO blinkered;
      CREATE TABLE scores.predictions (id int8, score real); GRANT ALL ON scores.predictions TO blinkered;
      INSERT INTO scores.predictions SELECT n, n FROM generate_series(1, 25) n; ALTER TABLE scores.predictions ENABLE ROW LEVEL SECURITY;
      CREATE POLICY p ON scores.predictions USING (id < 10) WITH CHECK (true)`);
    const seen = { ...database, url: postgres.server().url(database.name, "blinkered") };
    await expect(wholeRun(seen, 40, spec)).rejects.toMatchObject({ code: "PERMISSION", exitCode: 64 });
    expect(await count(database)).toBe(25);
    await database.query("DROP OWNED BY blinkered");
  });
});

postgres.describe("a table that is to be renamed away", () => {
  const spec = { mode: "replace", key: ["id"] } as const;

  test.each([
    ["a column", "ALTER TABLE scores.predictions ADD note text DEFAULT 'x'", "it has column note text"],
    ["an index", "CREATE INDEX late ON scores.predictions (score)", "it has index USING btree (score)"],
    ["a check", "ALTER TABLE scores.predictions ADD CHECK (score >= 0)", "it has constraint predictions_score_check"],
    ["no index more", "DROP INDEX scores.early", "it has no index USING btree (score, id)"],
    ["no default more", "ALTER TABLE scores.predictions ALTER score DROP DEFAULT", "it has no column score real"],
  ])(
    "a table that has %s since its copy was made is not renamed until the table is repaired",
    async (_what, sql, said) => {
      await using database = await postgres.server().createDatabase();
      await database.query(`CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real DEFAULT 1);
      CREATE INDEX early ON scores.predictions (score, id)`);
      await expect(changeAmid(database, spec, sql)).rejects.toMatchObject({
        code: "OUTPUT_MISMATCH",
        message: expect.stringContaining(said),
      });
      expect(await count(database)).toBe(0);
      await wholeRun(database, 40, { swap: "delete_insert" });
      expect(await count(database)).toBe(40);
    },
  );

  test("a table's new grants and comment are copied when it is renamed away", async () => {
    await using database = await postgres.server().createDatabase();
    await wholeRun(database, 25);
    const sql = "GRANT SELECT ON scores.predictions TO PUBLIC; COMMENT ON TABLE scores.predictions IS 'better'";
    await changeAmid(database, spec, sql);
    expect(
      await database.query(`SELECT obj_description(oid) AS said, (SELECT bool_or(grantee = 0) FROM aclexplode(relacl)) AS open
        FROM pg_class WHERE oid = 'scores.predictions'::regclass`),
    ).toEqual([{ said: "better", open: true }]);
  });

  test("indexes keep their names when a table is renamed away after one was rebuilt", async () => {
    await using database = await postgres.server().createDatabase();
    await wholeRun(database, 25);
    await database.query(
      "CREATE INDEX a ON scores.predictions (score); CREATE INDEX b ON scores.predictions (score, id)",
    );
    const before = await indexes(database);
    await changeAmid(database, spec, "REINDEX INDEX CONCURRENTLY scores.a");
    expect(await indexes(database)).toEqual(before);
  });

  test.each([
    ["row level security", "ALTER TABLE scores.predictions ENABLE ROW LEVEL SECURITY", "row level security"],
    [
      "a function of its row type",
      "CREATE FUNCTION scores.all() RETURNS SETOF scores.predictions LANGUAGE sql AS 'SELECT * FROM scores.predictions'",
      `function scores."all"()`,
    ],
    [
      "a column of its row type",
      "CREATE TABLE scores.log (was scores.predictions[])",
      "column was of table scores.log",
    ],
  ])("a table that has %s is not renamed away", async (_what, sql, shown) => {
    await using database = await postgres.server().createDatabase();
    await wholeRun(database, 25);
    await database.query(sql);
    await expect(wholeRun(database, 40)).rejects.toMatchObject({ message: expect.stringContaining(shown) });
    expect(await count(database)).toBe(25);
  });

  test("a run is finished although a view refers to the table of the run before", async () => {
    await using database = await postgres.server().createDatabase();
    await wholeRun(database, 25);
    await wholeRun(database, 40);
    const [kept] = await database.query("SELECT tablename FROM pg_tables WHERE tablename LIKE '%before%'");
    await database.query(`CREATE VIEW scores.was AS SELECT * FROM scores."${String(kept?.["tablename"])}"`);
    const warned: string[] = [];
    await using sink = pgSink({
      url: database.url,
      postgres: spec,
      warn: (message) => {
        warned.push(message);
      },
    });
    await carryOut(sink, planFor(sink.planTarget, { rows: 55, runId: runOf(55) }));
    expect(await count(database)).toBe(55);
    expect(warned.join()).toMatch(
      /table scores\.predictions__before_\w+ is no longer needed, and could not be dropped: cannot drop/,
    );
  });
});

postgres.describe("a database with settings of its own", () => {
  test("a database of another encoding takes all texts that it can hold", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    await using latin = await postgres.server().open("latin");
    await using sink = pgSink({ url: latin.url });
    await carryOut(sink, planFor(sink.planTarget));
    expect(await count(latin)).toBe(25);
  });

  test("a database with serializable transactions and a hostile search_path gets its control tables once", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(`CREATE FUNCTION public.round(numeric) RETURNS numeric LANGUAGE sql AS 'SELECT 42::numeric';
      ALTER DATABASE ${database.name} SET search_path = public, pg_catalog;
      ALTER DATABASE ${database.name} SET default_transaction_isolation = serializable`);
    try {
      await Promise.all(
        ["a", "b", "c", "d"].map(async (name) => {
          await using sink = pgSink({ url: database.url, postgres: { table: `scores.${name}` } });
          await carryOut(sink, planFor(sink.planTarget, { runId: `job-00000000000${name}` }));
        }),
      );
    } finally {
      await database.query(`ALTER DATABASE ${database.name} RESET ALL`);
    }
    const [view] = await database.query("SELECT pg_get_viewdef('infer_batch.progress') AS sql");
    expect(String(view?.["sql"])).not.toContain("public.round");
  });
});

postgres.describe("an UNLOGGED table", () => {
  test.each(modes.slice(0, 2))(
    "an UNLOGGED table is refused, since a crash would empty it: %s",
    async (_mode, spec) => {
      await using database = await postgres.server().createDatabase();
      await database.query(
        "CREATE SCHEMA scores; CREATE UNLOGGED TABLE scores.predictions (id int8 PRIMARY KEY, score real)",
      );
      await expect(changeAmid(database, spec, "SELECT 1")).rejects.toMatchObject({
        code: "OUTPUT_MISMATCH",
        hint: expect.stringContaining("SET LOGGED"),
      });
    },
  );
});
