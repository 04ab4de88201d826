import { readdir, readFile, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { outputs, shifted } from "../support/challenger.js";
import { runHere } from "../support/cli.js";
import { scratch, type SpecOverrides, writeSpec } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf } from "../support/torture.js";

const fixture = fixtureNamed("cancer-logistic");
/** The name of the job whose runs are the kept predictions, too. */
const name = "cancer-logistic-challenger";
const few = { where: "id < 50" };

const challengerWith = (output: object): SpecOverrides => ({
  commit_rows: 100,
  model: { outputs },
  challenger: { path: shifted, outputs, output },
});
const shadow: SpecOverrides = { name, commit_rows: 100, model: { path: shifted, outputs } };

type PgOverrides = Parameters<typeof writePgSpec>[3];
type Result = Awaited<ReturnType<typeof runHere>>;
const run = async (spec: string, ...args: string[]): Promise<Result> =>
  await runHere(["run", spec, "--json", "--no-progress", ...args]);

/** The dates of the runs that `history --json` lists. */
const datesOf = ({ runs }: { runs?: { params: { ds: string } }[] }) => runs?.map(({ params: { ds } }) => ds);

/** Expects a run to be published, with the warning that its challenger's predictions are not kept. */
function expectNotKept(done: Result, why: RegExp): void {
  expect([done.code, lastJson(done)["status"]], done.stderr).toEqual([0, "complete"]);
  expect(done.stderr).toMatch(new RegExp(`WARN.*challenger's predictions are not kept in this attempt: ${why.source}`));
  expect(done.stderr).toMatch(new RegExp(`WARN.*challenger's predictions are not finished: ${why.source}`));
}

const ofOtherJob = new RegExp(`run ${name}-\\S+ .*of a job called ${name}, .*left as it is; name another place`);

describe("a job called <job>-challenger, as the job of kept predictions is", () => {
  test("a run of a job called <job>-challenger in the folder for kept predictions stays as it is, even if it is incomplete", async () => {
    const path = join(scratch.path, "kept");
    const other = await writeSpec(scratch.path, fixture, { ...shadow, output: { parquet: { path } } });
    expect((await run(other, "--worker", "0/2")).code).toBe(0);

    const spec = await writeSpec(scratch.path, fixture, challengerWith({ parquet: { path } }));
    expectNotKept(await run(spec), ofOtherJob);

    await writeSpec(scratch.path, fixture, { ...shadow, output: { parquet: { path } } });
    const finished = await run(other);
    expect([finished.code, lastJson(finished)["run_id"]], finished.stderr).toEqual([
      0,
      expect.stringMatching(/-[0-9a-f]{12}$/),
    ]);
    expect(await outputRows(path)).toHaveLength(569);
  });

  test.each([
    ["complete", []],
    ["not complete", ["--worker", "0/2"]],
  ])(
    "a job called <job>-challenger does not change predictions that <job> keeps in its folder: %s",
    async (_, share) => {
      const path = join(scratch.path, "kept");
      const ofMain = challengerWith({ parquet: { path } });
      const spec = await writeSpec(scratch.path, fixture, ofMain);
      expect((await run(spec, ...share)).code).toBe(0);

      await writeSpec(scratch.path, fixture, { ...shadow, output: { parquet: { path } } });
      for (const args of [["run"], ["run", "--new-run"], ["plan"], ["status"], ["stats"]]) {
        const [command = "", ...more] = args;
        expect(await runHere([command, spec, ...more]), args.join(" ")).toMatchObject({
          code: 64,
          stderr: expect.stringMatching(
            /run cancer-logistic-challenger-\w+: it holds challenger predictions of job cancer-logistic\n.*give this job another name/,
          ),
        });
      }

      await writeSpec(scratch.path, fixture, ofMain);
      const main = await run(spec);
      expect([main.code, main.stderr.includes("WARN")], main.stderr).toEqual([0, false]);
      expect(await outputRows(path)).toHaveLength(569);
      expect(await readFile(join(path, "_SUCCESS"), "utf8")).toContain(`${name}-`);
    },
  );

  test.each(firstOf(["pruned", "damaged"]))(
    "a job called <job>-challenger does not replace %s predictions that <job> keeps in its folder",
    async (state) => {
      const path = `${scratch.path}/kept/dt=\${ds}`;
      const params = { ds: "${today}" };
      const output = { parquet: { path: "out/dt=${ds}" } };
      const spec = await writeSpec(scratch.path, fixture, { ...challengerWith({ parquet: { path } }), params, output });
      const night = ["--param", "ds=2026-01-01"];
      const kept = join(scratch.path, "kept", "dt=2026-01-01");
      if (state === "damaged") {
        expect((await run(spec, ...night, "--worker", "0/2")).code).toBe(0);
        const part = (await readdir(kept, { recursive: true })).find((file) => file.includes("part-"));
        await truncate(join(kept, part ?? ""), 100);
      } else {
        expect((await run(spec, ...night)).code).toBe(0);
        expect((await run(spec, "--param", "ds=2026-01-02")).code).toBe(0);
        expect((await runHere(["prune", spec, "--older-than", "1d"])).code).toBe(0);
      }
      const before = (await readdir(kept, { recursive: true })).toSorted();

      await writeSpec(scratch.path, fixture, { ...shadow, params, output: { parquet: { path } } });
      for (const args of [["run"], ["run", "--new-run"], ["plan"], ["status"], ["stats"], ["discard"]]) {
        const [command = "", ...more] = args;
        expect(await runHere([command, spec, ...night, ...more]), args.join(" ")).toMatchObject({
          code: 64,
          stderr: expect.stringContaining("it holds challenger predictions of job cancer-logistic"),
        });
      }
      expect((await readdir(kept, { recursive: true })).toSorted()).toEqual(before);
    },
  );

  test("erase of <job> or of a job called <job>-challenger leaves the rows of the other job, and status does not list unfinished kept predictions", async () => {
    const params = { ds: "${today}" };
    const path = `${scratch.path}/kept/dt=\${ds}`;
    const rowsOf = async (date: string) => await outputRows(join(scratch.path, "kept", `dt=${date}`));
    const ofShadow = { ...shadow, params, output: { parquet: { path } } };
    const output = { parquet: { path: "out/dt=${ds}" } };
    const ofMain = { ...challengerWith({ parquet: { path } }), params, output };
    const spec = await writeSpec(scratch.path, fixture, ofShadow);
    const night = async (date: string, ...args: string[]) => await run(spec, "--param", `ds=${date}`, ...args);
    expect((await night("2026-01-01")).code).toBe(0);
    await writeSpec(scratch.path, fixture, ofMain);
    expect([(await night("2026-01-01")).code, (await night("2026-01-02")).code]).toEqual([0, 0]);
    expect((await night("2026-01-03", "--worker", "0/2")).code).toBe(0);

    const keys = join(scratch.path, "keys.csv");
    await writeFile(keys, `id\n${String((await rowsOf("2026-01-01"))[3]?.["id"])}\n`);
    await writeSpec(scratch.path, fixture, ofShadow);
    const ofOther = await runHere(["erase", spec, "--keys", keys, "--json"]);
    expect([ofOther.code, lastJson(ofOther)], ofOther.stderr).toEqual([0, expect.objectContaining({ rows: 1 })]);
    expect([(await rowsOf("2026-01-01")).length, (await rowsOf("2026-01-02")).length]).toEqual([568, 569]);
    expect((await runHere(["status", spec, "--param", "ds=2026-01-01"])).stdout).not.toContain("not finished");

    await writeFile(keys, `id\n${String((await rowsOf("2026-01-02"))[9]?.["id"])}\n`);
    await writeSpec(scratch.path, fixture, ofMain);
    expect((await night("2026-01-03")).code).toBe(0);
    const erased = await runHere(["erase", spec, "--keys", keys, "--json"]);
    expect(erased.code, erased.stderr).toBe(0);
    expect([(await rowsOf("2026-01-01")).length, (await rowsOf("2026-01-02")).length]).toEqual([568, 568]);
  });

  test("history of <job> or of a job called <job>-challenger leaves out the runs of the other job", async () => {
    const params = { ds: "${today}" };
    const path = `${scratch.path}/kept/dt=\${ds}`;
    const ofShadow = { ...shadow, params, output: { parquet: { path } } };
    const output = { parquet: { path: "out/dt=${ds}" } };
    const spec = await writeSpec(scratch.path, fixture, ofShadow);
    expect((await run(spec, "--param", "ds=2026-01-01")).code).toBe(0);
    await writeSpec(scratch.path, fixture, { ...challengerWith({ parquet: { path } }), params, output });
    for (const ds of ["2026-01-02", "2026-01-03"]) {
      expect((await run(spec, "--param", `ds=${ds}`)).code).toBe(0);
    }
    const ofMain = lastJson(await runHere(["history", spec, "--json"]));
    expect([ofMain, ofMain["challenger"] ?? {}].map(datesOf)).toEqual(
      Array.from({ length: 2 }, () => ["2026-01-03", "2026-01-02"]),
    );

    await writeSpec(scratch.path, fixture, ofShadow);
    const ofOther = lastJson(await runHere(["history", spec, "--json", "--last", "1"]));
    expect([datesOf(ofOther), ofOther["more"]]).toEqual([["2026-01-01"], false]);
  });

  test("prune of <job> or of a job called <job>-challenger leaves the runs of the other job", async () => {
    const params = { ds: "${today}" };
    const path = `${scratch.path}/kept/dt=\${ds}`;
    const kept = (date: string): string => join(scratch.path, "kept", `dt=${date}`);
    const writeShadow = () => writeSpec(scratch.path, fixture, { ...shadow, params, output: { parquet: { path } } });
    const writeMain = () =>
      writeSpec(scratch.path, fixture, {
        ...challengerWith({ parquet: { path } }),
        params,
        output: { parquet: { path: "out/dt=${ds}" } },
      });
    const spec = await writeShadow();
    expect((await run(spec, "--param", "ds=2026-01-01")).code).toBe(0);
    await writeMain();
    for (const ds of ["2026-01-02", "2026-01-03"]) {
      expect((await run(spec, "--param", `ds=${ds}`)).code).toBe(0);
    }

    await writeShadow();
    expect(lastJson(await runHere(["prune", spec, "--older-than", "1d", "--dry-run", "--json"]))).toMatchObject({
      runs: [{ params: { ds: "2026-01-01" } }],
    });
    await writeMain();
    expect((await runHere(["prune", spec, "--older-than", "1d"])).code).toBe(0);
    expect(await outputRows(kept("2026-01-01"))).toHaveLength(569);
    expect(await outputRows(kept("2026-01-02"))).toHaveLength(0);
  });
});

const postgres = usePostgres();

postgres.describe("a job in Postgres called <job>-challenger, as the job of kept predictions is", () => {
  test.each(firstOf(["the same table", "a table of its own"]))(
    "a held run in Postgres of a job called <job>-challenger stays as it is: %s",
    async (which) => {
      await using database = await postgres.server().createDatabase();
      const { url } = database;
      const table = which === "the same table" ? "s.kept" : "s.shadow";
      const kept = { postgres: { url, table: "s.kept", mode: "append" } };
      const write = async (overrides: PgOverrides): Promise<string> =>
        await writePgSpec(scratch.path, fixture, database, { ...overrides, params: { ds: "${today}" } });
      const night = ["--param", "ds=2026-11-21"];
      const ofShadow = { ...shadow, checks: {}, output: { postgres: { table, mode: "append" } } };
      const ofMain = { ...challengerWith(kept), output: { postgres: { table: "s.main", mode: "append" } } };
      expect((await run(await write(ofShadow), "--param", "ds=2026-11-20")).code).toBe(0);
      const held = await run(await write({ ...ofShadow, input: few }), ...night);
      expect(held.code, held.stderr).toBe(67);

      expectNotKept(await run(await write(ofMain), ...night), ofOtherJob);

      const spec = await write({ ...ofShadow, input: few });
      const approved = await runHere(["approve", spec, ...night]);
      expect([approved.code, approved.stdout]).toEqual([
        0,
        expect.stringContaining(`${String(lastJson(held)["run_id"])}: published`),
      ]);
    },
  );

  test("an unfinished run in Postgres of a job called <job>-challenger stays as it is, and continues", async () => {
    await using database = await postgres.server().createDatabase();
    const other = { ...shadow, output: { postgres: { table: "s.shadow" } } };
    const kept = { postgres: { url: database.url, table: "s.kept", mode: "append" } };
    const ofMain = { ...challengerWith(kept), output: { postgres: { table: "s.main" } } };
    const write = async (overrides: PgOverrides): Promise<string> =>
      await writePgSpec(scratch.path, fixture, database, overrides);
    expect((await run(await write(other), "--worker", "0/2")).code).toBe(0);
    expectNotKept(await run(await write(ofMain)), ofOtherJob);
    expect((await run(await write(other))).code).toBe(0);
    const rows = "SELECT count(*)::int AS n, count(DISTINCT id)::int AS ids FROM s.shadow";
    expect(await database.query(rows)).toEqual([{ n: 569, ids: 569 }]);
  });

  test("kept predictions in one table are not continued in another one", async () => {
    await using database = await postgres.server().createDatabase();
    const write = async (table: string): Promise<string> =>
      await writePgSpec(scratch.path, fixture, database, {
        ...challengerWith({ postgres: { url: database.url, table, mode: "append" } }),
        output: { postgres: { table: "s.main", mode: "append" } },
      });
    expect((await run(await write("s.kept"), "--worker", "0/2")).code).toBe(0);
    const moved = await run(await write("s.other"));
    expectNotKept(moved, /run \S+ keeps them in s\.kept; name this table again, or/);
    const states = await database.query("SELECT run_id, target FROM infer_batch.runs WHERE run_id LIKE '%challenger%'");
    expect(states).toEqual([{ run_id: expect.not.stringMatching(/-r2$/), target: "s.kept" }]);
  });
});
