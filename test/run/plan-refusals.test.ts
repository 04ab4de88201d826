import { chmod, chown, copyFile, mkdir, readdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, projectFolder, runCli, runHere } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { useS3 } from "../support/s3.js";
import { fixtureNamed } from "../support/world.js";

// What `plan` passes, `run` does not refuse for a reason that was there before.

const wine = fixtureNamed("wine-forest");
const postgres = usePostgres();
const s3 = useS3();

/** Expects that `plan` ends as `run` would, with the same error. */
async function expectAlike(spec: string, code: number, said: RegExp, ...options: string[]): Promise<CliResult> {
  const planned = await expectEnd(runHere(["plan", spec, ...options]), code, said);
  await expectEnd(runHere(["run", spec, "--quiet", ...options]), code, said);
  return planned;
}

test("plan ends as run does where a link in the place of the output folder, or of the run's folder in it, leads nowhere", async () => {
  const spec = await writeSpec(scratch.path, wine);
  const out = join(scratch.path, "out");
  await symlink("/nonexistent/folder", out);
  await expectAlike(spec, 64, /checking .*out: .*out is a symbolic link whose target does not exist/);
  await rm(out);
  await mkdir(out);
  await symlink("/nonexistent/folder", join(out, "_infer-batch"));
  await expectAlike(spec, 64, /out\/_infer-batch is a symbolic link$/m);
});

test("nothing is written through a link in the place of the folder of runs", async () => {
  const [out, elsewhere] = [join(scratch.path, "out"), join(scratch.path, "elsewhere")];
  await mkdir(out);
  await mkdir(elsewhere);
  await symlink(elsewhere, join(out, "_infer-batch"));
  const spec = await writeSpec(scratch.path, wine);
  await expectAlike(spec, 64, /out\/_infer-batch is a symbolic link$/m);
  expect(await readdir(elsewhere)).toEqual([]);

  await rm(join(out, "_infer-batch"));
  await expectEnd(runHere(["run", spec, "--quiet"]), 0);
  await rm(join(out, "_SUCCESS"));
  await rename(join(out, "_infer-batch"), join(elsewhere, "runs"));
  await symlink(join(elsewhere, "runs"), join(out, "_infer-batch"));
  const before = await readdir(elsewhere, { recursive: true });
  await expectEnd(runHere(["run", spec, "--quiet"]), 64);
  await expectEnd(runHere(["run", spec, "--quiet", "--new-run"]), 64);
  expect(await readdir(elsewhere, { recursive: true })).toEqual(before);
});

test("plan ends with 64 as run does for a provider that this machine lacks, and shows the plan with another one", async () => {
  const spec = await writeSpec(scratch.path, wine, { engine: { providers: ["coreml"] } });
  await expectAlike(spec, 64, /opening execution provider coreml/);
  expect((await expectEnd(runHere(["plan", spec, "--provider", "cpu"]), 0)).stdout).toMatch(/^target /m);
});

test("plan ends with 64 as run does for a report in the output folder, and warns of reports that cannot be written or sent", async () => {
  await expectAlike(await writeSpec(scratch.path, wine, { report: { html: "out/page.html" } }), 64, /report\.html/);
  await writeFile(join(scratch.path, "file"), "");
  const spec = await writeSpec(scratch.path, wine, {
    report: {
      html: "file/page.html",
      metrics: "fine/metrics.prom",
      on_success: "${file:absent-url}",
      openlineage: { url: "http://127.0.0.1:1", token: "${file:absent-token}" },
    },
  });
  const { stderr } = await expectEnd(
    runHere(["plan", spec]),
    0,
    "file/page.html cannot be written (ENOTDIR)",
    "calling report.on_success: ",
    "absent-token",
  );
  expect(stderr).not.toContain("metrics.prom");
  expect((await readdir(scratch.path)).toSorted()).toEqual(["file", "job.yaml"]);
});

test("plan ends with 64 as run does in a pod that does not say how many workers there are", async () => {
  const spec = await writeSpec(scratch.path, wine);
  for (const command of ["plan", "run"]) {
    await expectEnd(
      runHere([command, spec], { env: { JOB_COMPLETION_INDEX: "1" } }),
      64,
      "INFER_BATCH_WORKERS is not set",
    );
  }
});

test("plan ends with 64 as run does if the keys of all rows could not be spooled", async () => {
  const spec = await writeSpec(scratch.path, wine, { checks: { unique: ["id"] } });
  await writeFile(join(scratch.path, "file"), "");
  const env = { TMPDIR: join(scratch.path, "file") };
  for (const command of ["plan", "run"]) {
    await expectEnd(runHere([command, spec], { env }), 64, "it, or a folder above it, is a file");
  }
});

test("plan ends as run does where the input or the spec of a complete run has changed, and shows the plan of a new run", async () => {
  const spec = await writeSpec(scratch.path, wine);
  await expectEnd(runHere(["run", spec, "--quiet"]), 0);
  await expectEnd(runHere(["plan", spec]), 0);
  await writeSpec(scratch.path, wine, { timezone: "Asia/Tokyo" });
  const { stdout } = await expectAlike(spec, 66, /timezone is "Asia\/Tokyo"/);
  expect(stdout).toMatch(/^target .*, which has this run: published$/m);
  const shard = join(projectFolder, "fixtures/data/wine/part-00000.parquet");
  await copyFile(shard, join(scratch.path, "more.parquet"));
  const input = { path: [join(projectFolder, "fixtures/data/wine/*.parquet"), "*.parquet"] };
  await writeSpec(scratch.path, wine, { input });
  await expectAlike(spec, 66, /comparing the input with the plan of this finished run: added more\.parquet/);
});

test("plan ends as run does for a run that is held, discarded or pruned; its JSON names the run and what was not checked", async () => {
  const overrides = { params: { ds: "${today}" }, output: { parquet: { path: "out/dt=${ds}" } } };
  const held = { ...overrides, checks: { outputs: { label: { range: [8, 9] } } } };
  const spec = await writeSpec(scratch.path, wine, held);
  const first = ["--param", "ds=2026-01-01"];
  const jsonOf = async (...options: string[]): Promise<unknown> =>
    JSON.parse((await runHere(["plan", spec, "--json", ...options])).stdout);
  expect(await jsonOf(...first)).toMatchObject({ found: null, untried: ["hard links and quotas of the disk"] });

  await expectEnd(runHere(["run", spec, "--quiet", ...first]), 67);
  await expectAlike(spec, 67, /it is held and not published/, ...first);
  await expectEnd(runHere(["discard", spec, "--reason", "wrong", ...first]), 0);
  await expectAlike(spec, 67, /discarded it at/, ...first);
  expect(await jsonOf(...first)).toMatchObject({ found: { status: "discarded" }, untried: [] });
  const validated = await runHere(["validate", spec, ...first]); // which says so, and refuses nothing
  expect([validated.code, validated.stdout]).toEqual([0, expect.stringContaining("which has this run: discarded")]);

  await writeSpec(scratch.path, wine, overrides);
  for (const day of ["02", "03"]) {
    await expectEnd(runHere(["run", spec, "--quiet", "--param", `ds=2026-01-${day}`]), 0);
  }
  await expectEnd(runHere(["prune", spec, "--keep", "1"]), 0);
  await expectAlike(spec, 67, /pruned it at/, "--param", "ds=2026-01-02");
});

test.skipIf(process.getuid?.() !== 0)("plan ends with 64 as run does for a folder of another user", async () => {
  await chmod(scratch.path, 0o755);
  const spec = await writeSpec(scratch.path, wine);
  const out = join(scratch.path, "out");
  const nobody = 65_534;
  const expectDenied = async (said: Readonly<Record<string, string>>): Promise<void> => {
    for (const [command, text] of Object.entries(said)) {
      await expectEnd(runCli([command, spec], { uid: nobody, env: { HOME: "/nonexistent" } }), 64, text);
    }
  };
  await mkdir(join(out, "_infer-batch"), { recursive: true });
  await chown(out, nobody, nobody);
  await expectDenied({ plan: `may not write to ${out}/_infer-batch`, run: "EACCES" });
});

s3.describe("plan with an output in S3", () => {
  test("plan ends with 64 as run does for a spool folder that cannot be made, and makes none", async () => {
    const { name } = await s3.server().createBucket();
    await writeFile(join(scratch.path, "file"), "");
    const parquet = { path: `s3://${name}/out`, spool: { path: "file/spool" } };
    const spec = await writeSpec(scratch.path, wine, { output: { parquet } });
    for (const command of ["plan", "run"]) {
      await expectEnd(
        runHere([command, spec], { env: s3.server().env() }),
        64,
        "set output.parquet.spool.path to another folder",
      );
    }
    expect((await readdir(scratch.path)).toSorted()).toEqual(["file", "job.yaml"]);
  });
});

postgres.describe("plan with an output in Postgres", () => {
  test("plan ends as run does for a job that shares its name with a job of another table", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, wine, database);
    await expectEnd(runHere(["run", spec, "--quiet"]), 0);
    await writePgSpec(scratch.path, wine, database, { output: { postgres: { table: "scores.others" } } });
    await expectAlike(
      spec,
      66,
      /if another job is called wine-forest, too, give this job another name: the other one has run wine-forest-/,
    );
  });

  test("plan ends with 64 as run does for what is no table, and for a partitioned one that cannot be swapped", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(`CREATE SCHEMA scores; CREATE FOREIGN DATA WRAPPER none; CREATE SERVER none FOREIGN DATA WRAPPER none;
      CREATE FOREIGN TABLE scores.far (id bigint, label bigint) SERVER none;
      CREATE VIEW scores.shown AS SELECT 1::bigint AS id, 1::bigint AS label;
      CREATE TABLE scores.parts (id bigint, label bigint) PARTITION BY RANGE (id)`);
    const job = (postgresSpec: object): Promise<string> =>
      writePgSpec(scratch.path, { ...wine, outputs: { label: "label" } }, database, {
        output: { postgres: postgresSpec },
      });
    await expectAlike(await job({ table: "scores.far" }), 64, /scores\.far: it is not a table/);
    await expectAlike(await job({ table: "scores.shown" }), 64, /scores\.shown: it is not a table/);
    await expectAlike(await job({ table: "scores.parts", mode: "replace" }), 64, /scores\.parts: it is partitioned/);
  });

  test("plan ends with 64 for what a run would meet only when it finishes: rights and row-level security", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(`CREATE SCHEMA scores; CREATE TABLE scores.predictions (id bigint PRIMARY KEY, label bigint);
      CREATE ROLE swapper LOGIN; CREATE SCHEMA infer_batch AUTHORIZATION swapper;
      GRANT ALL ON SCHEMA scores TO swapper; GRANT SELECT, INSERT, UPDATE ON scores.predictions TO swapper`);
    const url = new URL(database.url);
    url.username = "swapper";
    const exchanged = { mode: "replace", swap: "delete_insert" };
    const planned = async (name: string, overrides: object, postgresSpec = {}): Promise<unknown> => {
      const fixture = { ...wine, outputs: { label: "label" } };
      const output = { postgres: postgresSpec };
      const spec = await writePgSpec(scratch.path, fixture, { url: url.href }, { name, ...overrides, output });
      const { code, stderr } = await runHere(["plan", spec]);
      return [code, /error: .*/.exec(stderr)?.[0]];
    };
    const denied = [64, expect.stringContaining("permission denied for table predictions")];
    try {
      expect(await planned("exchange", {}, exchanged)).toEqual(denied); // DELETE
      expect(await planned("exchange", {}, { ...exchanged, key: ["id"] })).toEqual(denied);
      await database.query("GRANT DELETE ON scores.predictions TO swapper");
      expect(await planned("exchange", {}, exchanged)).toEqual([0, undefined]);
      await database.query("ALTER TABLE scores.predictions ENABLE ROW LEVEL SECURITY");
      const hidden = [64, expect.stringContaining("would be affected by row-level security")];
      expect(await planned("exchange", {}, exchanged)).toEqual(hidden);
      await database.query("ALTER TABLE scores.predictions DISABLE ROW LEVEL SECURITY");

      // A staged run inserts its rows when it is approved.
      await database.query(
        "REVOKE ALL ON scores.predictions FROM swapper; GRANT INSERT (id) ON scores.predictions TO swapper",
      );
      expect(await planned("staged", { checks: {} })).toEqual(denied);
      expect(await database.query("SELECT count(*)::int AS n FROM pg_class WHERE relname LIKE '%staging%'")).toEqual([
        { n: 0 },
      ]);
    } finally {
      await database.query("DROP OWNED BY swapper CASCADE; DROP ROLE swapper");
    }
  });

  test("plan says what an attempt that resumes a run checks itself", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(
      "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id bigint, label bigint CHECK (label < 0))",
    );
    const spec = await writePgSpec(scratch.path, { ...wine, outputs: { label: "label" } }, database);
    await expectEnd(runHere(["run", spec, "--quiet"]), 65);
    expect((await expectEnd(runHere(["plan", spec]), 0)).stdout).toMatch(
      /this run: unfinished\nuntried {2}privileges and columns/,
    );
  });
});
