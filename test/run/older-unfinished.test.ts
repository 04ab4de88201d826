import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { backfillLines, type DailyJob, dailyJob, days, statusesOf } from "../support/backfill-job.js";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { heldNight, nightlyJob, type Nights } from "../support/nights.js";
import type { Database } from "../support/pg-database.js";
import { tableFaults } from "../support/pg-job.js";
import { approvalSql } from "../support/pg-staged.js";
import { usePostgres } from "../support/postgres.js";
import { firstOf } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();

interface TableJob extends Nights {
  /** Ends with the code and the first line of the message of `plan`, `plan --json`, `validate` and `run`. */
  readonly endsOf: (date: string) => Promise<readonly (readonly [number | null, string | undefined])[]>;
}

async function endOf(...args: string[]): Promise<readonly [number | null, string | undefined]> {
  const { code, stderr } = await runHere(args);
  return [code, /^error: .*/m.exec(stderr)?.[0]];
}

async function tableJob(
  folder: string,
  { url }: Database,
  { mode, checks }: { readonly mode: string; readonly checks?: object },
): Promise<TableJob> {
  const job = await nightlyJob(folder, {
    checks,
    report: { html: "page-${ds}.html" },
    output: {
      parquet: undefined,
      lineage: true,
      postgres: { url, table: "scores.predictions", mode, key: mode === "append" ? [] : ["id"] },
    },
  });
  return {
    ...job,
    async endsOf(date) {
      const ds = ["--param", `ds=${date}`];
      return [
        await endOf("plan", job.spec, ...ds),
        await endOf("plan", job.spec, ...ds, "--json"),
        await endOf("validate", job.spec, ...ds),
        await endOf("run", job.spec, ...ds, "--quiet"),
      ];
    },
  };
}

async function succeed(job: Nights, ...args: Parameters<Nights["night"]>): Promise<string> {
  const { stderr } = await expectEnd(job.night(...args), 0);
  return stderr;
}

postgres.describe("an unfinished run whose table has rows of a run for a later date", () => {
  test.each(
    firstOf([
      ["upsert", "rows with the same keys"],
      ["replace", "the whole table"],
    ] as const),
  )("plan and validate end as run does, and each text names a command that works: %s", async (mode, replaced) => {
    await using database = await postgres.server().createDatabase();
    const job = await tableJob(scratch.path, database, { mode });
    await succeed(job, "run", "2026-11-20", "--worker", "0/2");
    await expectEnd(job.night("plan", "2026-11-20"), 0);
    expect((await job.night("stats", "2026-11-20")).stderr).toMatch(
      /hint: \S.* --param ds=2026-11-20 finishes it \(with --allow-older, if a run of a later date has published to the table\)$/m,
    );
    await succeed(job, "run", "2026-11-21");

    const ends = await job.endsOf("2026-11-20");
    const refused = expect.stringMatching(
      /^error: writing to scores.predictions: run \S+ is for a later date than \S+, and has published to this table$/,
    );
    expect(ends).toEqual(Array.from(ends, () => [66, refused]));

    const command = `infer-batch run ${job.spec} --param ds=2026-11-20 --allow-older`;
    for (const [dryRun, date] of [
      ["plan", "2026-11-20"],
      ["validate", "2026-11-20"],
      ["plan", "2026-11-19"], // is not planned yet
    ] as const) {
      const { code, stderr } = await job.night(dryRun, date);
      const named = command.replace("2026-11-20", date);
      expect([code, stderr], dryRun).toEqual([
        66,
        expect.stringMatching(/^ {2}hint: the newer rows stay(;|,) .*: (.*)$/m),
      ]);
      expect(stderr).toContain(`: ${named}\n`);
      const isKept = mode === "upsert" && date === "2026-11-20";
      expect(stderr.includes(", and so do the rows that this run has committed; ")).toBe(isKept);
    }

    const pageOf = (): Promise<string> => readFile(join(scratch.path, "page-2026-11-20.html"), "utf8");
    expect(await pageOf()).toContain(
      `<p>To run it although a newer run has published to the table:</p><pre>${command}</pre>`,
    );
    await job.rewrite({ model: { path: "none.onnx" } });
    await expectEnd(job.night("run", "2026-11-20"), 64);
    expect(await pageOf()).toContain(
      "after you fix the cause (with --allow-older, if a newer run has published to the table by then):</p>",
    );
    await job.rewrite({});
    await writeFile(join(scratch.path, "keys.txt"), "1\n");
    await expectEnd(
      runHere(["erase", job.spec, "--keys", join(scratch.path, "keys.txt"), "--key", "id"]),
      67,
      "--param ds=2026-11-20 (with --allow-older, if a newer run has published to the table)",
    );
    for (const verb of ["stats", "approve"]) {
      const { code, stderr } = await job.night(verb, "2026-11-20");
      const hint = `hint: ${command.replace(" --allow-older", "")} finishes it (with --allow-older, if a run of a later date`;
      expect([code, stderr]).toEqual([64, expect.stringContaining(hint)]);
    }
    const warned = await succeed(job, "run", "2026-11-20", "--allow-older");
    expect(warned).toContain(`this older run may replace ${replaced}, as --allow-older says`);
    expect((await job.endsOf("2026-11-20")).map(([code]) => code)).toEqual([0, 0, 0, 0]);
  });

  test("plan and validate end as run does for an approved run that was not published before", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await tableJob(scratch.path, database, { mode: "upsert", checks: {} });
    const held = await heldNight(job);
    await job.rewrite({});
    await succeed(job, "run", "2026-11-22");
    await database.query(approvalSql(held));
    await job.rewrite({ input: { where: "id < 50" } });
    const ends = await job.endsOf("2026-11-21");
    expect(ends).toEqual(Array.from(ends, () => [66, expect.stringContaining("and has published to this table")]));
  });

  test("plan and validate end with 0 for a run that only failed, in whose place run plans a newer one", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await tableJob(scratch.path, database, { mode: "replace" });
    await job.rewrite({ input: { columns: { age: "CASE WHEN id = 3 THEN 'nan'::double ELSE 0.5 END" } } });
    await expectEnd(job.night("run", "north"), 65);
    await job.rewrite({});
    await succeed(job, "run", "south");
    expect((await job.endsOf("north")).map(([code]) => code)).toEqual([0, 0, 0, 0]);
  });

  test("plan, validate and run go on in append, which replaces no row", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await tableJob(scratch.path, database, { mode: "append" });
    await succeed(job, "run", "2026-11-20", "--worker", "0/2");
    await succeed(job, "run", "2026-11-21");
    expect((await job.endsOf("2026-11-20")).map(([code]) => code)).toEqual([0, 0, 0, 0]);
  });
});

const { server, describe } = usePostgres();

async function jobInto(folder: string, database: Database, tableSpec: object): Promise<DailyJob> {
  const table = { url: database.url, table: "scores.predictions", ...tableSpec };
  return await dailyJob(folder, { output: { parquet: undefined, postgres: table } });
}

describe("a backfill into a table that later dates overwrite", () => {
  test("a backfill into upsert ends with a run that fails, so that no later date is published before it", async () => {
    await using database = await server().createDatabase();
    const job = await jobInto(scratch.path, database, { mode: "upsert", key: ["id"] });
    await job.damage("2026-01-02");

    const stopped = await job.backfill("--json", "--parallel", "3");
    expect([stopped.code, statusesOf(stopped)], stopped.stderr).toEqual([65, { "01": "complete", "02": "failed" }]);
    expect(stopped.stderr).toContain("one at a time, not 3 at once: mode upsert: later dates overwrite earlier ones");

    for (const day of ["2026-01-02", "2026-01-05"] as const) {
      await job.arrive(day);
    }
    const rest = await job.backfill("--json", "--reprocess", "failed");
    expect([rest.code, backfillLines(rest).all]).toMatchObject([75, { complete: 3, values_no_input: ["2026-01-04"] }]);
    expect(await tableFaults(database, fixtureNamed("diabetes-mlp"))).toEqual([]);
    const published = await database.query(
      "SELECT params->>'ds' AS ds FROM infer_batch.runs JOIN infer_batch.finishes USING (run_id) ORDER BY planned_at",
    );
    expect(published.map(({ ds }) => ds)).toEqual([days[0], days[1], days[2], days[4]]);
  });

  test.each(firstOf(["upsert", "replace"]))(
    "a backfill of dates before a published one ends with 66 before it scores in mode %s, and continues with --allow-older",
    async (mode) => {
      await using database = await server().createDatabase();
      const job = await jobInto(scratch.path, database, { mode, key: ["id"] });
      await job.arrive("2026-01-05");
      await expectEnd(runHere(["run", job.spec, "--param", "ds=2026-01-05", "--quiet"]), 0);

      const refused = await job.backfill("--json");
      expect([refused.code, statusesOf(refused)], refused.stderr).toEqual([66, { "01": "failed" }]);
      expect(refused.stderr).toContain("run the same command with --allow-older");

      const allowed = await job.backfill("--json", "--allow-older");
      expect(statusesOf(allowed)).toEqual({
        "01": "complete",
        "02": "complete",
        "03": "complete",
        "04": "no_input",
        "05": "already_complete",
      });
    },
  );
});
