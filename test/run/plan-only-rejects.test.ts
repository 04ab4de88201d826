import { chmod } from "node:fs/promises";
import { expect, test } from "vitest";
import { runCli, runHere } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { nightlyJob } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";
import { promptJob } from "../support/prompt-job.js";
import { byZero, rejectingJob, settings } from "../support/rejecting-job.js";
import { reject } from "../support/rejects.js";

const postgres = usePostgres();

test("plan --only-rejects ends as run --only-rejects does for a run that is unfinished, held, discarded or not there", async () => {
  await using scratch = await scratchFolder();
  const nights = await nightlyJob(scratch.path, {});
  const date = "2026-11-20";
  const expectAlike = async (code: number, said: RegExp): Promise<void> => {
    for (const command of ["plan", "run"]) {
      const ended = await nights.night(command, date, "--only-rejects");
      expect([ended.code, ended.stderr]).toEqual([code, expect.stringMatching(said)]);
    }
  };
  await expectAlike(64, /there is none\n/);
  expect((await nights.night("run", date, "--worker", "0/2")).code).toBe(0);
  const unfinished = await nights.night("plan", date, "--only-rejects");
  expect([unfinished.code, unfinished.stdout]).toEqual([0, expect.stringMatching(/which has this run: unfinished\n/)]);
  await nights.rewrite({ timezone: "Asia/Tokyo" });
  await expectAlike(66, /timezone is "Asia\/Tokyo"/);
  await nights.rewrite({ checks: { outputs: { score: { range: [0, 1] } } } });
  expect((await nights.night("run", date)).code).toBe(67);
  await expectAlike(67, /it is held and not published/);
  expect((await nights.night("discard", date)).code).toBe(0);
  await expectAlike(67, /discarded it at/);
});

test.skipIf(process.getuid?.() !== 0)(
  "plan --only-rejects ends with 64 where this user may not write to the folder of the complete run",
  async () => {
    await using scratch = await scratchFolder();
    const job = await rejectingJob(scratch.path);
    await chmod(scratch.path, 0o755);

    const { code, stderr } = await runCli(["plan", job.spec, "--only-rejects"], {
      uid: 65_534,
      env: { HOME: "/nonexistent" },
    });

    expect([code, stderr]).toEqual([64, expect.stringMatching(/this user may not write to \S+out\n/)]);
  },
);

postgres.describe("plan --only-rejects of a table", () => {
  test("a correction after a failed --only-rejects into append is planned and run, and adds the rejected rows only", async () => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const output = { parquet: undefined, postgres: { url: database.url, table: "scores.predictions", mode: "append" } };
    const job = await rejectingJob(scratch.path, { output });
    await job.rewrite({ ...settings, output, on_bad_row: "fail" });
    expect((await runHere(["run", job.spec, "--only-rejects"])).code).toBe(65);
    await job.rewrite({ ...settings, ...byZero, output, on_bad_row: "fail" });

    for (const command of ["plan", "run"]) {
      const { code, stderr } = await runHere([command, job.spec, "--only-rejects"]);
      expect(code, stderr).toBe(0);
    }

    const [counts] = await database.query(
      "SELECT count(*)::int AS rows, count(DISTINCT id)::int AS ids FROM scores.predictions",
    );
    expect(counts).toEqual({ rows: 90, ids: 90 });
  });

  test("plan --only-rejects ends as run does for a role that lacks a right on the table, and leaves nothing there", async () => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const table = { url: database.url, table: "scores.predictions", mode: "upsert", key: ["id"] };
    const job = await rejectingJob(scratch.path, { output: { parquet: undefined, postgres: table } });
    await database.query(`CREATE ROLE rescorer LOGIN;
      GRANT USAGE, CREATE ON SCHEMA scores, infer_batch TO rescorer;
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA infer_batch TO rescorer;
      GRANT SELECT, INSERT ON scores.predictions TO rescorer`);
    try {
      const url = postgres.server().url(database.name, "rescorer");
      await job.rewrite({ ...settings, ...byZero, output: { parquet: undefined, postgres: { ...table, url } } });
      const refused = [64, expect.stringMatching(/UPDATE|permission denied/)];
      const said = async (command: string): Promise<unknown> => {
        const { code, stderr } = await runHere([command, job.spec, "--only-rejects"]);
        return [code, stderr];
      };
      expect(await said("plan")).toEqual(refused);
      await database.query("GRANT UPDATE ON scores.predictions TO rescorer");
      const planned = await runHere(["plan", job.spec, "--only-rejects"]);
      expect([planned.code, planned.stdout], planned.stderr).toEqual([0, expect.stringContaining("18 rejected rows")]);
      expect(await database.query("SELECT run_id FROM infer_batch.runs")).toHaveLength(1);
      await database.query("REVOKE UPDATE ON scores.predictions FROM rescorer");
      expect(await said("run")).toEqual(refused);
    } finally {
      await database.query("DROP OWNED BY rescorer");
      await database.query("DROP ROLE rescorer");
    }
  });
});

test("plan --only-rejects counts the rejected rows of a complete run, and estimates their prompts alone", async () => {
  // Every twentieth row has a long text; the server refuses these, and some others have none.
  const body = "CASE WHEN i % 20 = 3 THEN repeat('long ', 400) || i WHEN i % 20 <> 7 THEN 'text ' || i END";
  const price = { input: 1, output: 1 };
  await using job = await promptJob({
    reply: ({ text }) => (text.length > 1000 ? { content: "", finish: "length" } : { content: text }),
    select: `SELECT i::INTEGER AS id, ${body} AS body FROM range(100) t(i)`,
    ...reject,
    model: { sampling: { max_tokens: 10 }, budget: { price } },
    output: { columns: ["id"], parquet: { path: "out/ds=${ds}" } },
    params: { ds: "a" },
  });
  const plan = (...args: readonly string[]): ReturnType<typeof job.command> =>
    job.command("plan", job.spec, "--only-rejects", "--json", ...args);
  expect(await plan()).toMatchObject({ code: 64, stderr: expect.stringContaining("there is none") });
  expect(await job.run()).toMatchObject({ report: { rows_rejected: 10 } });

  const { code, stdout, stderr } = await plan();

  expect(code, stderr).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({
    runId: expect.stringMatching(/-r2$/),
    rejected_rows: 10,
    rejectsOf: { runId: expect.not.stringMatching(/-r2$/) },
    estimate: { requests: 5, prompt_tokens: 5 * (500 + 6) + 2, most_completion_tokens: 50 },
  });
  await job.rewrite({ on_bad_row: "fail", model: { sampling: { max_tokens: 10 } } });
  expect(await job.run("--param", "ds=b")).toMatchObject({ code: 65 });
  const unfinished = await plan("--param", "ds=b"); // which goes first
  expect(unfinished.code, unfinished.stderr).toBe(0);
  expect(JSON.parse(unfinished.stdout)).toMatchObject({ found: { status: "unfinished" } });
  expect(JSON.parse(unfinished.stdout)).not.toHaveProperty("rejected_rows");
});
