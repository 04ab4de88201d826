import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, nightlyJob } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";

test("status, rejects, diff, approve and discard take the id of a run, as history lists it, in place of its params", async () => {
  const job = await nightlyJob(scratch.path);
  await job.night("run", "2026-01-01");
  await job.night("run", "2026-01-02");
  await job.rewrite(fewRows);
  await job.night("run", "2026-01-03");
  const { runs } = lastJson(await job.night("history", "2026-01-01", "--json")) as { runs: { run_id: string }[] };
  const [held = "", second = "", first = ""] = runs.map(({ run_id: id }) => id);
  const command = (verb: string, ...args: string[]) => runHere([verb, job.spec, ...args]);

  expect(lastJson(await command("status", "--run", held, "--json"))).toMatchObject({ run_id: held, status: "held" });
  expect((await command("rejects", "--run", second)).stdout).toBe("0 rows rejected in committed spans\n");
  const diff = await command("diff", "--run", second, "--against", first, "--json");
  expect(lastJson(diff)).toMatchObject({ a: first, b: second, rows_compared: 442 });
  expect(lastJson(await command("diff", "--run", second, "--against", "ds=2026-01-01", "--json"))).toMatchObject({
    a: first,
    b: second,
  });
  const approved = await command("approve", "--run", held, "--reason", "a holiday", "--json");
  expect(lastJson(approved)).toMatchObject({ run_id: held, status: "published" });

  const unknown = await command("status", "--run", "job-000000000000");
  expect(unknown).toMatchObject({
    code: 64,
    stderr: expect.stringContaining("infer-batch history lists the runs of all dates"),
  });
  await job.rewrite({});
  await job.night("run", "2026-01-01", "--new-run");
  expect(await command("rejects", "--run", first)).toMatchObject({
    code: 64,
    stderr: expect.stringContaining(`run ${first}-r2 came after it`),
  });
});

const requiredDate = { params: { ds: { type: "date" }, region: { type: "enum", values: ["EU", "US"] } } };

test("a run is found by its id, and the runs of a job are, without values for params that have no default", async () => {
  const job = await nightlyJob(scratch.path, {
    ...requiredDate,
    output: { parquet: { path: "out/${region}/dt=${ds}" } },
  });
  const night = (date: string) => job.night("run", date, "--param", "region=US", "--json");
  const [first, second] = [lastJson(await night("2026-01-01")), lastJson(await night("2026-01-02"))];
  await job.rewrite({ ...fewRows, output: { parquet: { path: "out/${region}/dt=${ds}" } } });
  const held = String(lastJson(await night("2026-01-03"))["run_id"]);
  const alsoHeld = String(lastJson(await night("2026-01-04"))["run_id"]);
  const command = (verb: string, ...args: string[]) => runHere([verb, job.spec, ...args]);

  const { runs } = lastJson(await command("history", "--json")) as { runs: { run_id: string }[] };
  expect(runs.map(({ run_id: id }) => id)).toEqual([alsoHeld, held, second?.["run_id"], first?.["run_id"]]);
  expect(lastJson(await command("status", "--run", held, "--json"))).toMatchObject({ run_id: held, status: "held" });
  expect(lastJson(await command("approve", "--run", held, "--json"))).toMatchObject({ status: "published" });
  expect(lastJson(await command("discard", "--run", alsoHeld, "--json"))).toMatchObject({ status: "discarded" });
  const stats = await command("stats", "--run", held, "--param", "region=US", "--json");
  expect(lastJson(stats)).toMatchObject({ run_id: held });
  const pruned = await command("prune", "--keep", "2", "--param", "region=US", "--json");
  expect(lastJson(pruned)).toMatchObject({ runs: [{ run_id: first?.["run_id"] }] });
  const keys = join(scratch.path, "keys.txt");
  await writeFile(keys, "5\n7\n");
  const erased = lastJson(await command("erase", "--keys", keys, "--json"));
  expect(erased).toMatchObject({ rows: 4, retained: 0, keys_not_found: 0 }); // in the two runs that are left
});

const postgres = usePostgres();

postgres.describe("a table whose runs have a date without a default", () => {
  test("rollback needs the date only if the table is named by it", async () => {
    await using database = await postgres.server().createDatabase();
    const into = (table: string) => ({
      params: { ds: { type: "date" } },
      output: { parquet: undefined, postgres: { url: database.url, table, mode: "replace", key: ["id"] } },
    });
    const job = await nightlyJob(scratch.path, into("scores.predictions"));
    for (const date of ["2026-01-01", "2026-01-02"]) {
      expect((await job.night("run", date)).code).toBe(0);
    }
    const undone = lastJson(await runHere(["rollback", job.spec, "--json"]));
    expect(undone).toMatchObject({ params: { ds: "2026-01-02" }, restored: { params: { ds: "2026-01-01" } } });
    await job.rewrite(into("scores.predictions_${ds}"));
    const refused = await runHere(["rollback", job.spec]);
    expect([refused.code, refused.stderr]).toEqual([
      64,
      expect.stringContaining("params.ds: it has no default, and output.postgres.table is made from it"),
    ]);
  });
});

test("a command that needs the run's params says so once, and prunes no series that was not named", async () => {
  const job = await nightlyJob(scratch.path, requiredDate);
  const status = await runHere(["status", job.spec]);
  expect(status).toMatchObject({ code: 64, stderr: expect.stringContaining("2 problems") });
  const prune = await runHere(["prune", job.spec, "--keep", "2"]);
  expect(prune.code).toBe(64);
  expect(prune.stderr).toContain("params.region: it has no default; set it with --param region=EU");
  expect(prune.stderr).not.toContain("params.ds");
});
