import { rename } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { heldNight, nightlyJob } from "../support/nights.js";
import { writePgSpec } from "../support/pg-job.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { scoreHere, workerOf } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();
const fixture = fixtureNamed("diabetes-mlp");

interface Jobs {
  readonly spec: string;
  readonly other: string;
}

/** Two jobs of one name and one database, for different tables. */
async function jobsIn(folder: string, database: Database, ds = "2026-11-20"): Promise<Jobs> {
  const other = join(folder, "other.yaml");
  const more = { commit_rows: 40, params: { ds } };
  const upsert = { table: "scores.others", mode: "upsert", key: ["id"] };
  await rename(await writePgSpec(folder, fixture, database, { ...more, output: { postgres: upsert } }), other);
  return { spec: await writePgSpec(folder, fixture, database, more), other };
}

const message =
  /^error: comparing the spec with the plan of this finished run: output\.postgres\.table .*scores\.others.*\n {2}hint: if another job is called diabetes-mlp, too, give one of them another name/m;

postgres.describe("two jobs of one name for different tables", () => {
  test("no command shows the other job's run as this job's: they end with 66 and say what run says", async () => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const { spec, other } = await jobsIn(scratch.path, database);
    expect((await runHere(["run", other, "--quiet"])).code).toBe(0);
    const { stderr } = await runHere(["run", spec, "--quiet"]);
    expect(stderr).toMatch(message);
    for (const command of ["status", "stats", "rejects", "validate", "plan"]) {
      expect(await runHere([command, spec]), command).toMatchObject({ code: 66, stdout: "", stderr });
    }
    const diff = await runHere(["diff", spec, "--against", "scores.others", "--key", "id"]);
    expect([diff.code, diff.stderr]).toEqual([66, stderr]);

    const { code, stdout } = await runHere(["status", spec, other]);
    expect(code).toBe(66);
    expect(stdout).toMatch(/job\.yaml +error +comparing the spec with the plan of this finished run: output\.postgres/);
    expect(stdout).toMatch(/other\.yaml +diabetes-mlp-\S+ +published/);
    for (const command of ["status", "stats", "rejects", "validate"]) {
      expect((await runHere([command, other])).code, command).toBe(0);
    }
  });

  test("status and run do not offer to finish the other job's run", async () => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const { other } = await jobsIn(scratch.path, database);
    await scoreHere(other, workerOf(0, 2));
    const next = await jobsIn(scratch.path, database, "2026-11-21");
    expect((await runHere(["status", next.other])).stdout).toContain("is not finished; to finish it:");
    expect((await runHere(["status", next.spec])).stdout).not.toContain("is not finished");
    expect((await runHere(["run", next.spec])).stderr).not.toContain("is not finished");
  });

  test.each(["approve", "discard"])("%s, run and plan leave alone a held run of the other job", async (command) => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const output = (table: string): object => ({
      parquet: undefined,
      postgres: { url: database.url, table, timeouts: { lock: 1 } },
    });
    const nights = await nightlyJob(scratch.path, { output: output("scores.others") });
    await heldNight(nights);
    await nights.rewrite({ output: output("scores.predictions") });
    for (const refusing of [command, "run", "plan", "status"]) {
      const refused = await nights.night(refusing, "2026-11-21");
      expect([refused.code, refused.stderr], refusing).toEqual([66, expect.stringContaining("output.postgres.table")]);
    }
    await nights.rewrite({ output: output("scores.others") });
    expect((await nights.night(command, "2026-11-21")).code).toBe(0);
  });
});
