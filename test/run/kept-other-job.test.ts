import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { outputs, shifted } from "../support/challenger.js";
import { runHere } from "../support/cli.js";
import { scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("cancer-logistic");
/** The name that the run of kept predictions has, too. */
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

/** Expects a run to be published, with the warning that its challenger's predictions are not kept. */
function expectNotKept(done: Result, why: RegExp): void {
  expect([done.code, lastJson(done)["status"]], done.stderr).toEqual([0, "complete"]);
  expect(done.stderr).toMatch(new RegExp(`WARN.*challenger's predictions are not kept in this attempt: ${why.source}`));
  expect(done.stderr).toMatch(new RegExp(`WARN.*challenger's predictions are not finished: ${why.source}`));
}

const ofOtherJob = new RegExp(`run ${name}-\\S+ .*of a job called ${name}, .*left as it is; name another place`);

describe("a job that is called as the run of kept predictions", () => {
  test("its run in the same folder is left as it is, also one that is not complete", async () => {
    await using scratch = await scratchFolder();
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
});

const postgres = usePostgres();

postgres.describe("a job in Postgres that is called as the run of kept predictions", () => {
  test.each(["a table of its own", "the same table"])("its held run is left as it is: %s", async (which) => {
    await using scratch = await scratchFolder();
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
  });

  test("an unfinished run of it is left as it is, and continues", async () => {
    await using scratch = await scratchFolder();
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
    await using scratch = await scratchFolder();
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
