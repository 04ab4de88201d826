import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { expectEnd, runCli, type RunningCli } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { expectFinishedPg, type Mode, pgJob, runWatchedPg } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { scoreHere } from "../support/score.js";
import { firstOf } from "../support/torture.js";
import { isStopped, until } from "../support/waiting.js";

const postgres = usePostgres();
const timeouts = { connect: 5, statement: 2, lock: 1 };

postgres.describe("several attempts at once into Postgres", () => {
  test.each(
    firstOf(
      [
        [3, "append"],
        [2, "replace"],
        [4, "upsert"],
      ] as const,
      2,
    ),
  )("%d attempts at once on one run leave each row once: %s", async (attempts, mode) => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const job = await pgJob(scratch.path, database, mode);
    const results = await Promise.all(
      Array.from({ length: attempts }, () => runCli(["run", job.spec, "--no-progress"])),
    );
    expect(results.map(({ code, stderr }) => (code === 0 ? 0 : stderr))).toEqual(results.map(() => 0));
    await expectFinishedPg(job);
  });
});

/** The server's session that an attempt left behind still holds what it did. */
async function isHolding(database: Database): Promise<boolean> {
  const [row] = await database.query(
    "SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = 'infer-batch' AND datname = current_database() AND xact_start IS NOT NULL",
  );
  return row?.["n"] !== 0;
}

postgres.describe("an attempt that is stopped for longer than every timeout", () => {
  // Together: what they do most is to wait.
  test.concurrent.for(
    firstOf(
      [
        // COPY into a table with a primary key: a process that sends the same rows waits for the one that was stopped.
        ["append", "torn COPY"],
        ["replace", "before COMMIT"],
        ["append", "before COMMIT"],
        ["upsert", "torn COPY"],
      ] as const,
      2,
    ),
  )("%s, %s: others finish the run, and it ends well", async ([mode, when]) => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const job = await pgJob(scratch.path, database, mode, { postgres: { timeouts } });
    const copy: Record<Mode, string> = {
      append: 'COPY "scores"."predictions" ("id", "score") FROM ',
      upsert: 'COPY pg_temp.infer_batch_span ("id", "score") FR',
      replace: 'COPY "scores"."predictions__staging_…" ("id", "s',
    };
    const at = when === "torn COPY" ? `torn ${copy[mode]} #2` : "before COMMIT #7";
    let child: RunningCli | undefined;
    const slow = runWatchedPg(
      job.spec,
      { CRASH_STOP: at.replace(/ {2}#/, " #") },
      {
        onStart: (started) => {
          child = started;
        },
      },
    );
    const state = { ended: false };
    void slow.finally(() => {
      state.ended = true;
    });
    await until(async () => state.ended || (await isStopped(child)));
    expect(state.ended, "it reached the statement").toBe(false);
    expect(await isHolding(database)).toBe(true);

    expect(await scoreHere(job.spec)).toMatchObject({ status: "complete" });
    await sleep((timeouts.statement + timeouts.lock) * 1000);
    child?.kill("SIGCONT");

    await expectEnd(slow, 0);
    await expectFinishedPg(job);
  });
});
