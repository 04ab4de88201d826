import { copyFile, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { outputs, shifted } from "../support/challenger.js";
import { runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, nightlyJob, publishedRun } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { query } from "../support/parquet.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();

test("prune removes the output of old nights, keeps what must stay, and pruned nights are not scored again by themselves", async () => {
  const job = await nightlyJob(scratch.path);
  const prune = (...args: string[]) => runHere(["prune", job.spec, ...args]);
  expect(await prune()).toMatchObject({ code: 64, stderr: expect.stringContaining("--older-than") });
  expect(await prune("--older-than", "90")).toMatchObject({ code: 64 });
  expect((await prune("--keep", "1")).stdout).toBe("pruned 0 runs: nothing; 0 runs not old\n");
  for (const date of ["2026-01-01", "2026-01-02", "2026-01-04"]) {
    await job.night("run", date);
  }
  await job.rewrite(fewRows);
  expect((await job.night("run", "2026-01-03")).code).toBe(67); // held; it pins the nights before it
  await job.rewrite({});

  const dry = lastJson(await prune("--keep", "1", "--dry-run", "--json"));
  expect(dry).toMatchObject({ dry_run: true, pruned: 0, retained: 3, kept: 1, files: 0 });
  await job.night("discard", "2026-01-03", "--by", "ana");
  const planned = lastJson(await prune("--keep", "1", "--dry-run", "--json"));
  expect(planned).toMatchObject({ pruned: 3, retained: 0, files: 14 });
  expect(await publishedRun(job.folder("2026-01-01"))).toBeDefined();

  const narrow = await runHere(["prune", job.spec, "--keep", "1", "--dry-run"], { columns: 40 });
  expect(narrow.stdout).toMatch(
    /^ {2}run\n {6}would be removed\n {2}diabetes-mlp-.{12}\n {6}nothing\n.*\nno room in 40 characters for: params\n/s,
  );
  const { stdout } = await prune("--keep", "1");
  expect(stdout).toMatch(
    /ds=2026-01-02 +7 files \(\d+ KiB\)\n.*ds=2026-01-01 .*\npruned 3 runs: 14 files \(\d+ KiB\); 1 run not old\n$/s,
  );
  expect((await prune("--keep", "1")).stdout).toBe("pruned 0 runs: nothing; 1 run not old\n");
  expect(await readdir(job.folder("2026-01-01"))).toEqual(["_infer-batch"]);
  expect(await outputRows(job.folder("2026-01-04"))).toHaveLength(442);

  const again = await job.night("run", "2026-01-01");
  expect(again).toMatchObject({
    code: 67,
    stderr: expect.stringMatching(/pruned it at .*\n.*--param ds=2026-01-01 --new-run/),
  });
  expect(await publishedRun(job.folder("2026-01-01"))).toBeUndefined();
  for (const decide of ["approve", "discard"]) {
    const { code, stderr } = await job.night(decide, "2026-01-01");
    expect([code, stderr]).toEqual([
      67,
      expect.stringMatching(/pruned it at .*\n.*infer-batch run \S+ --param ds=2026-01-01 --new-run/),
    ]);
  }
  expect((await job.night("rejects", "2026-01-01")).code).toBe(67);
  expect(lastJson(await job.night("status", "2026-01-01", "--json"))).toMatchObject({ status: "pruned", damage: [] });
  expect((await job.night("history", "2026-01-01")).stdout).toMatch(/ pruned +442 .* pruned by \w+\n/);
  const history = lastJson(await job.night("history", "2026-01-01", "--json"))["runs"] as {
    status: string;
    rows: number;
  }[];
  expect(history.map(({ status, rows }) => [status, rows])).toEqual([
    ["published", 442],
    ["pruned", null],
    ["pruned", 442],
    ["pruned", 442],
  ]);

  expect((await job.night("run", "2026-01-01", "--new-run")).code).toBe(0);
  expect(await outputRows(job.folder("2026-01-01"))).toHaveLength(442);
  expect((await prune("--older-than", "1w")).stdout).toMatch(
    /2026-01-01 .*\n.*pruned 1 run: .*; 1 old run retained; 0 runs not old/s,
  );
});

test("prune leaves no key in the verdicts of runs in other folders than that of the command", async () => {
  const features = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"];
  const job = await nightlyJob(scratch.path, {
    checks: { unique: ["age"], on_fail: "warn" },
    output: { parquet: { path: "out/dt=${ds}" }, columns: ["id", "age"] },
    model: { inputs: { features } },
  });
  for (const date of ["2026-01-01", "2026-01-02"]) {
    expect((await job.night("run", date)).code).toBe(0);
  }
  const verdict = async (): Promise<string> => {
    const control = join(job.folder("2026-01-01"), "_infer-batch");
    const run = (await readdir(control)).find((name) => /-[0-9a-f]{12}$/.test(name)) ?? "";
    return await readFile(join(control, run, "verdict.json"), "utf8");
  };
  expect(await verdict()).toContain('"examples"');
  expect((await runHere(["prune", job.spec, "--keep", "1"])).stdout).toContain("pruned 1 run");
  expect(await verdict()).not.toContain('"examples"');
});

test("a folder with a file of others is retained, and does not keep other nights from being pruned", async () => {
  const job = await nightlyJob(scratch.path, { checks: undefined });
  for (const date of ["2026-01-01", "2026-01-02", "2026-01-03"]) {
    await job.night("run", date);
  }
  await rm(join(job.folder("2026-01-02"), "_SUCCESS"));
  const note = join(job.folder("2026-01-01"), "notes.txt");
  await writeFile(note, "mine");
  const report = lastJson(await runHere(["prune", job.spec, "--keep", "1", "--json"]));
  const runs = report["runs"] as { params: { ds: string }; retained: string | null }[];
  expect(runs.map(({ params, retained }) => [params.ds, retained])).toEqual([
    ["2026-01-02", "it is not finished"],
    ["2026-01-01", expect.stringContaining("notes.txt is there, which no run wrote")],
  ]);
  await rm(note);
  expect(lastJson(await runHere(["prune", job.spec, "--keep", "1", "--json"]))).toMatchObject({ pruned: 1 });
});

test("prune removes the old runs of a challenger by the same rule, and leaves the others", async () => {
  const nights = await nightlyJob(
    scratch.path,
    {
      model: { outputs },
      challenger: { path: shifted, outputs },
    },
    "cancer-logistic",
  );
  for (const date of ["2026-01-01", "2026-01-02", "2026-01-03"]) {
    const { code, stderr } = await nights.night("run", date);
    expect(code, stderr).toBe(0);
  }
  const { spec } = nights;
  const kept = (date: string): string => join(nights.folder(date), "_challenger");
  const rowsIn = async (date: string): Promise<unknown> =>
    (await query(`SELECT count(*)::INTEGER AS n FROM read_parquet('${kept(date)}/part-*.compared')`))[0]?.["n"];
  const planned = lastJson(await runHere(["prune", spec, "--keep", "1", "--dry-run", "--json"]));
  expect(planned).toMatchObject({ pruned: 4, kept: 1, challenger_kept: 1, challenger_error: null });
  expect(await publishedRun(kept("2026-01-01"))).toBeDefined();

  const pruned = lastJson(await runHere(["prune", spec, "--keep", "1", "--json"]));

  expect(pruned).toMatchObject({ pruned: 4, kept: 1, challenger_kept: 1, challenger_error: null });
  for (const date of ["2026-01-01", "2026-01-02"]) {
    expect(await readdir(kept(date))).toEqual(["_infer-batch"]);
    expect(await readdir(nights.folder(date))).toEqual(["_challenger", "_infer-batch"]);
  }
  expect(await rowsIn("2026-01-03")).toBe(569);
  expect(await outputRows(nights.folder("2026-01-03"))).toHaveLength(569);

  const again = await nights.night("run", "2026-01-01", "--new-run");
  expect(again.code, again.stderr).toBe(0);
  expect(await rowsIn("2026-01-01"), again.stderr).toBe(569);
});

test("prune removes a challenger's predictions that are not complete once the run is over", async () => {
  const path = join(scratch.path, "challenger.onnx");
  const nights = await nightlyJob(
    scratch.path,
    { model: { outputs }, challenger: { path, outputs }, checks: undefined },
    "cancer-logistic",
  );
  const share = ["--worker", "0/2"];
  for (const date of ["2026-01-01", "2026-01-02"]) {
    await copyFile(shifted, path);
    expect(await nights.night("run", date, ...share)).toMatchObject({ code: 0 });
    await rm(path);
    expect(await nights.night("run", date)).toMatchObject({ code: 0, stderr: expect.stringContaining("not whole") });
  }
  await copyFile(shifted, path);
  expect(await nights.night("run", "2026-01-03", ...share)).toMatchObject({ code: 0 }); // not over
  const pruned = lastJson(await runHere(["prune", nights.spec, "--keep", "1", "--json"]));
  expect(pruned).toMatchObject({ pruned: 2, retained: 0, kept: 2, challenger_kept: 2 });
  expect(await readdir(join(nights.folder("2026-01-01"), "_challenger"))).toEqual(["_infer-batch"]);
});

postgres.describe("prune of a table that is replaced", () => {
  test("prune names the previous tables that it would drop, then those that it dropped", async () => {
    await using database = await postgres.server().createDatabase();
    const write = (url: string): Promise<string> =>
      writePgSpec(
        scratch.path,
        fixtureNamed("wine-forest"),
        { url },
        { params: { ds: "${today}" }, output: { postgres: { mode: "replace", keep_previous: 5 } } },
      );
    const spec = await write(database.url);
    for (const date of ["2026-01-01", "2026-01-02", "2026-01-03"]) {
      expect((await runHere(["run", spec, "--quiet", "--param", `ds=${date}`])).code).toBe(0);
    }
    const previous = async (): Promise<string[]> =>
      (
        await database.query(
          "SELECT format('scores.%I', relname) AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'scores'::regnamespace AND relname <> 'predictions' ORDER BY 1 DESC",
        )
      ).map(({ name }) => String(name));
    const tables = await previous();
    expect(tables).toHaveLength(2);
    const prune = async (...options: string[]): Promise<string> =>
      (await runHere(["prune", spec, "--keep", "1", ...options])).stdout;
    const lines = (verb: string): string => tables.map((name) => `  ${verb} table ${name}\n`).join("");
    expect(await prune("--dry-run")).toMatch(new RegExp(`^${lines("would drop")}would prune .*2 tables`, "m"));
    expect(await previous()).toEqual(tables);
    const [viewed = "", foreign = ""] = tables;
    await database.query(`CREATE VIEW scores.seen AS SELECT id FROM ${viewed};
      CREATE ROLE pruner LOGIN; GRANT USAGE ON SCHEMA scores, infer_batch TO pruner;
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA infer_batch TO pruner;
      ALTER TABLE ${viewed} OWNER TO pruner`);
    try {
      await write(postgres.server().url(database.name, "pruner"));
      for (const options of [["--dry-run"], []]) {
        const { stdout, stderr } = await runHere(["prune", spec, "--keep", "1", ...options]);
        expect(stdout).not.toContain("table");
        expect(stderr).toMatch(new RegExp(`${viewed}.* could not be dropped: .*depend`));
        expect(stderr).toMatch(new RegExp(`${foreign}.* could not be dropped: `));
      }
      expect(await previous()).toEqual(tables);
    } finally {
      await database.query("DROP VIEW scores.seen; REASSIGN OWNED BY pruner TO CURRENT_USER; DROP OWNED BY pruner");
      await database.query("DROP ROLE pruner");
    }
    await write(database.url);
    const own =
      "ADD UNIQUE (id), ADD twin int8 DEFAULT 1, ADD n serial, ADD half int8 GENERATED ALWAYS AS (id / 2) STORED";
    await database.query(`ALTER TABLE ${viewed} ${own}, ADD FOREIGN KEY (twin) REFERENCES ${viewed} (id) NOT VALID`);
    expect(await prune("--dry-run")).toContain(lines("would drop"));
    expect(await prune()).toMatch(new RegExp(`^${lines("dropped")}pruned .*2 tables`, "m"));
    expect(await previous()).toEqual([]);
  });

  test("prune --keep keeps the table before a run that was rolled back, and records the rows of the run in front of readers", async () => {
    await using database = await postgres.server().createDatabase();
    const write = (keys: object = {}): Promise<string> =>
      writePgSpec(scratch.path, fixtureNamed("wine-forest"), database, {
        params: { ds: "${today}" },
        output: { postgres: { mode: "replace", keep_previous: 5 } },
        ...keys,
      });
    const spec = await write();
    const run = async (date: string, ...options: string[]): Promise<void> => {
      expect((await runHere(["run", spec, "--quiet", "--param", `ds=${date}`, ...options])).code).toBe(0);
    };
    const rollBack = async (): Promise<void> => {
      expect((await runHere(["rollback", spec])).code).toBe(0);
    };
    const prune = async (keep: number): Promise<unknown> =>
      lastJson(await runHere(["prune", spec, "--keep", String(keep), "--json"]));
    await run("2026-01-01");
    await write({ input: { where: "id < 9" } });
    await run("2026-01-01", "--new-run");
    await rollBack();
    await write();
    await run("2026-01-02");
    await run("2026-01-03");
    await rollBack();

    // Newest first: the rows of the 3rd, of the 1st, and of its new run.
    const undone = /__undone_\w+$/;
    expect(await prune(2)).toMatchObject({ pruned: 0, kept: 3, tables: [expect.stringMatching(undone)] });
    expect(await prune(1)).toMatchObject({
      pruned: 1,
      kept: 2,
      tables: [expect.stringMatching(undone), expect.stringMatching(/__before_\w+$/)],
    });
    const [tombstone] = await database.query(
      "SELECT plan::jsonb -> 'rows' AS rows FROM infer_batch.runs WHERE run_id LIKE '%-r3'",
    );
    expect(tombstone).toEqual({ rows: fixtureNamed("wine-forest").rows });
  });
});
