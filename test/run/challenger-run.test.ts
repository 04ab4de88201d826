import { chmod, copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { type Found, outputs, shifted } from "../support/challenger.js";
import { expectEnd, projectFolder, runCli, runHere } from "../support/cli.js";
import { query } from "../support/parquet.js";
import { scratch, type SpecOverrides, writeSpec } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { useS3 } from "../support/s3.js";
import { s3OutputJob } from "../support/s3-output.js";
import { torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("cancer-logistic");

const jobOf = (overrides: SpecOverrides = {}): SpecOverrides => ({
  commit_rows: 40,
  model: { outputs },
  challenger: { path: shifted, outputs },
  ...overrides,
});

const run = async (spec: string, ...args: string[]): Promise<Awaited<ReturnType<typeof runHere>>> =>
  await runHere(["run", spec, "--json", "--no-progress", ...args]);

const folder = (): string => join(scratch.path, "out/_challenger");

/** The predictions of the challenger, by the number of their rows. */
const predictions = async (): Promise<readonly Record<string, unknown>[]> =>
  await query(
    `SELECT * EXCLUDE (_row), _row::INTEGER AS _row FROM read_parquet('${folder()}/part-*.compared') ORDER BY _row`,
  );

/** The rows of a job whose only model is the challenger. */
async function rowsAlone(): Promise<readonly Record<string, unknown>[]> {
  const alone = join(scratch.path, "alone");
  const spec = await writeSpec(scratch.path, fixture, {
    name: "alone",
    model: { path: shifted, outputs },
    output: { columns: ["id"], parquet: { path: alone } },
  });
  await expectEnd(run(spec), 0);
  const rows = await query(`SELECT * FROM read_parquet('${alone}/*.parquet', file_row_number = false)`);
  await rm(alone, { recursive: true });
  return rows;
}

const byId = (rows: readonly Record<string, unknown>[]): unknown[] =>
  rows.toSorted((one, other) => (String(one["id"]) < String(other["id"]) ? -1 : 1));

/** Kills a process once so many parts of both runs are there. */
async function killAt(child: { kill(signal: "SIGKILL"): boolean }, parts: number): Promise<void> {
  for (let tries = 0; tries < 5000; tries += 1) {
    const names = await readdir(join(scratch.path, "out"), { recursive: true }).catch(() => []);
    if (names.filter((name) => /part-\d+\./.test(name)).length >= parts) {
      child.kill("SIGKILL");
      return;
    }
    await sleep(2);
  }
}

/** The figures without their last digits, which depend on the rows that a model is given at once. */
function figuresOf(found: unknown): unknown {
  return JSON.parse(
    JSON.stringify(found, (name, value: unknown) =>
      name === "most_different" ? undefined : typeof value === "number" ? Number(value.toPrecision(5)) : value,
    ),
  );
}

async function resultNames(): Promise<string[]> {
  const names = await readdir(join(scratch.path, "out"), { recursive: true });
  return names.filter((name) => name.endsWith("comparison.json"));
}

describe("the run of a challenger", () => {
  test("its predictions are those of a job with that model alone, numbered, where no pattern for Parquet files finds them", async () => {
    const alone = await rowsAlone();
    const spec = await writeSpec(scratch.path, fixture, { ...jobOf(), checks: {} });
    const done = await expectEnd(run(spec), 0);
    const found = await predictions();
    expect(found.map(({ _row }) => _row)).toEqual(Array.from({ length: 569 }, (_, row) => row));
    expect(byId(found.map(({ _row, ...row }) => row))).toEqual(byId(alone));
    const names = await readdir(join(scratch.path, "out"), { recursive: true });
    expect(names.filter((name) => name.endsWith(".parquet"))).toHaveLength(15);
    const labels = join(scratch.path, "labels.parquet");
    await query(`COPY (SELECT id, label AS truth FROM read_parquet('${scratch.path}/out/*.parquet')) TO '${labels}'`);
    const asked = ["--labels", labels, "--label", "truth", "--prediction", "label", "--json"];
    const { nights } = lastJson(await runHere(["evaluate", spec, ...asked])) as { nights: [{ models: object[] }] };
    expect(nights[0].models).toMatchObject([
      { model: "champion", rows_judged: 569, accuracy: 1 },
      { model: "challenger", rows_judged: 569, accuracy: 554 / 569 },
    ]);
    const again = await run(spec, "--new-run");
    expect([again.code, lastJson(again)["status"]], again.stderr).toEqual([0, "complete"]);
    expect(lastJson(again)["challenger"]).toEqual(lastJson(done)["challenger"]);
  });

  test("killed at any moment, with two workers, held and discarded: the comparison is whole or absent, and so is every row", async () => {
    const spec = await writeSpec(scratch.path, fixture, jobOf({ checks: { sql: { many: "count(*) > 1000" } } }));
    const whole = await expectEnd(run(spec), 67);
    const expected = lastJson(whole)["challenger"];
    expect(expected).toMatchObject({ rows_compared: 569, rows_missed: {} });
    await rm(join(scratch.path, "out"), { recursive: true });
    // A worker whose share is done compares nothing yet.
    await expectEnd(run(spec, "--worker", "0/2"), 0);
    expect(await resultNames()).toEqual([]);
    let kills = 0;
    for (const parts of torture ? Array.from({ length: 14 }, (_, index) => 17 + index) : [18, 23, 28]) {
      const workers =
        parts % 2 === 0
          ? [
              ["--worker", "0/2"],
              ["--worker", "1/2"],
            ]
          : [[]];
      const ended = await Promise.all(
        workers.map((worker) => runCli(["run", spec, ...worker], { onStart: (child) => void killAt(child, parts) })),
      );
      kills += ended.filter(({ signal }) => signal === "SIGKILL").length;
      expect((await resultNames()).length).toBeLessThanOrEqual(1);
    }
    expect(kills).toBeGreaterThan(torture ? 2 : 0);
    const [one, other] = await Promise.all([run(spec, "--worker", "0/2"), run(spec, "--worker", "1/2")]);
    expect([0, 67]).toContain(one.code);
    expect([0, 67]).toContain(other.code);
    await expectEnd(run(spec), 67);
    expect((await resultNames()).length).toBe(1);
    const status = lastJson(await runHere(["status", spec, "--json"]));
    expect(status).toMatchObject({ status: "held" });
    expect(figuresOf(status["challenger"])).toEqual(figuresOf(expected));
    expect((await predictions()).map(({ _row }) => _row)).toEqual(Array.from({ length: 569 }, (_, row) => row));
    await expectEnd(runHere(["discard", spec, "--reason", "too few"]), 0);
    expect(lastJson(await runHere(["status", spec, "--json"]))["challenger"]).toEqual(status["challenger"]);
  }, 240_000);

  test("the keys of the model that name and bind it are not those of the challenger", async () => {
    const { sha256 } = lastJson(await runHere(["plan", await writeSpec(scratch.path, fixture), "--json"]))["model"] as {
      sha256: string;
    };
    const model = { sha256, inputs: undefined, outputs: { p: "probabilities[1]" } };
    const done = await expectEnd(
      run(await writeSpec(scratch.path, fixture, jobOf({ model, challenger: { path: shifted } }))),
      0,
    );
    expect(lastJson(done)["challenger"]).toMatchObject({ model: shifted, rows_compared: 569 });
  });

  test("erase and prune find the predictions of a challenger that the spec does not name any more", async () => {
    const dated = {
      commit_rows: 200,
      params: { ds: "2026-01-01" },
      output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
    };
    const spec = await writeSpec(scratch.path, fixture, jobOf(dated));
    for (const day of ["2026-01-01", "2026-01-02"]) {
      await expectEnd(run(spec, "--param", `ds=${day}`), 0);
    }
    const [first, second] = ["2026-01-01", "2026-01-02"].map((day) => join(scratch.path, `out/dt=${day}`)) as [
      string,
      string,
    ];
    const stored = async (at: string): Promise<string[]> =>
      (await query(`SELECT id FROM read_parquet('${at}/_challenger/part-*.compared')`)).map(({ id }) => String(id));
    const [key = ""] = await stored(first);
    await writeSpec(scratch.path, fixture, jobOf({ ...dated, challenger: undefined }));
    const keys = join(scratch.path, "keys.txt");
    await writeFile(keys, key);

    const erased = await expectEnd(runHere(["erase", spec, "--keys", keys, "--key", "id"]), 0);
    expect(erased.stdout).toContain("erased 4 rows");
    expect(await stored(first)).not.toContain(key);
    expect(await stored(second)).not.toContain(key);
    await expectEnd(runHere(["prune", spec, "--keep", "1"]), 0);
    expect(await readdir(join(first, "_challenger"))).toEqual(["_infer-batch"]);
    expect(await stored(second)).toHaveLength(568);
    // What is left of a pruned run says nothing of single rows.
    const names = await readdir(join(first, "_infer-batch"), { recursive: true });
    const comparisons = names.filter((name) => name.endsWith("comparison.json"));
    const texts = await Promise.all(comparisons.map((name) => readFile(join(first, "_infer-batch", name), "utf8")));
    expect(texts.join("\n")).not.toContain(`"keys"`);
  });

  test("predictions that cannot be written cost no row of the run, and it says that they are not compared", async () => {
    const spec = await writeSpec(scratch.path, fixture, jobOf());
    await mkdir(folder(), { recursive: true });
    await copyFile(join(projectFolder, "README.md"), join(folder(), "part-00000.other-0123456789ab.compared"));
    const done = await run(spec);
    expect([done.code, lastJson(done)["status"]], done.stderr).toEqual([0, "complete"]);
    expect(done.stderr).toMatch(/WARN.*challenger: not whole, so that the predictions are not compared: .*_challenger/);
    expect(lastJson(done)).not.toHaveProperty("challenger");
    expect(await outputRows(join(scratch.path, "out"))).toHaveLength(569);
  });

  test.skipIf(process.getuid?.() === 0)("a folder that may not be written costs no row either", async () => {
    await mkdir(folder(), { recursive: true });
    await chmod(folder(), 0o555);
    await expectEnd(run(await writeSpec(scratch.path, fixture, jobOf())), 0, "challenger: not whole");
  });

  test("a run that reuses predictions is compared with all of its challenger's", async () => {
    const overrides = { commit_rows: 200, params: { ds: "1" }, reuse: { key: ["id"] } };
    const output = { columns: ["id"], parquet: { path: "out/${ds}" } };
    const spec = await writeSpec(scratch.path, fixture, jobOf({ ...overrides, output }));
    await expectEnd(run(spec), 0);
    const done = await expectEnd(run(spec, "--new-run", "--reuse"), 0);
    expect(lastJson(done)).toMatchObject({ rows_reused: 569, challenger: { rows_compared: 569 } });
  });
});

const s3 = useS3();

s3.describe("in S3,", () => {
  test("a run and its challenger's, in a bucket, by two workers and anew, are compared by row", async () => {
    const bucket = await s3.server().createBucket();
    const challenger = { path: join(projectFolder, "fixtures/models/diabetes-mlp-quantised.onnx") };
    const target = { bucket, port: s3.server().port };
    const { spec } = await s3OutputJob(scratch.path, target, { checks: {}, commit_rows: 100, challenger });
    await expectEnd(run(spec, "--worker", "0/2"), 0);
    for (const args of [["--worker", "1/2"], ["--new-run"]]) {
      const done = await expectEnd(run(spec, ...args), 0);
      expect(lastJson(done)["challenger"]).toMatchObject({ rows_compared: 442, rows_missed: {} });
    }
  });
});

const postgres = usePostgres();

postgres.describe("in a database,", () => {
  test.each(["append", "upsert", "replace"])(
    "a run of mode %s is compared by key, and its challenger has a table of its own",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const key = mode === "upsert" ? { key: ["id"] } : {};
      const spec = await writePgSpec(scratch.path, fixture, database, {
        ...jobOf({ params: { ds: "2026-11-20" }, commit_rows: 200 }),
        output: { lineage: mode !== "replace", postgres: { mode, ...key } },
      });
      for (const date of ["2026-11-20", "2026-11-21"]) {
        const done = await expectEnd(run(spec, "--param", `ds=${date}`), 0);
        const { rows_compared: rows, rows_missed: missed, outputs: compared } = lastJson(done)["challenger"] as Found;
        expect([rows, missed]).toEqual([569, {}]);
        expect(compared.p.most_different).toHaveLength(10);
      }
      const rows = await database.query("SELECT count(*)::int AS n FROM scores.predictions_challenger");
      expect(rows).toEqual([{ n: mode === "append" ? 1138 : 569 }]);
    },
  );
});
