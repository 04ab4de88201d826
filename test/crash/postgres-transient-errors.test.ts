import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "pg";
import { expect, test } from "vitest";
import { scratchFolder } from "../support/job.js";
import { expectFinishedPg, faultsInDatabase, type Mode, pgJob } from "../support/pg-crash.js";
import { usePostgres } from "../support/postgres.js";
import { scoreHere } from "../support/score.js";
import { type Fault, tcpProxy } from "../support/tcp-proxy.js";
import { firstOf } from "../support/torture.js";
import { watchQueries } from "./pg-calls.mjs";

const postgres = usePostgres({ own: true });
/** Silence is noticed after the statement timeout and five seconds. */
const timeouts = { connect: 5, statement: 1, lock: 1 };
const downMs = 50;

/** Scores while `strike` is called at a statement, once; the run must come through by itself. */
async function scoreThrough(
  mode: Mode,
  at: { readonly moment: "inCopy" | "sent"; readonly call: RegExp },
  strike: () => Promise<void>,
): Promise<void> {
  await using scratch = await scratchFolder();
  await using database = await postgres.server().createDatabase();
  const job = await pgJob(scratch.path, database, mode);
  let struck = 0;
  const stop = watchQueries(Client.prototype, {
    [at.moment]: async (call: string) => {
      if (struck === 0 && at.call.test(call)) {
        struck += 1;
        await strike();
      }
    },
  });
  try {
    expect(await scoreHere(job.spec)).toMatchObject({ status: "complete" });
  } finally {
    stop();
  }
  expect(struck).toBe(1);
  await database.query("SELECT 1").catch(() => undefined); // the connection that died with the server
  await expectFinishedPg(job);
}

async function bounce(afterMs: number): Promise<void> {
  await sleep(afterMs);
  await postgres.server().kill();
  void sleep(downMs).then(() => postgres.server().start());
}

postgres.describe("a Postgres server that is killed", () => {
  test.each(firstOf(["append", "upsert", "replace"] as const))(
    "a server that is killed in the middle of a COPY loses and doubles no row: %s",
    async (mode) => {
      await scoreThrough(mode, { moment: "inCopy", call: /^COPY .* #2$/ }, () => bounce(0));
    },
  );

  // The COMMIT was sent; what becomes of it depends on how far the server came.
  test.each(
    firstOf([5, 0, 1, 2, 10, 20]).flatMap((ms) => (["append", "replace"] as const).map((mode) => [mode, ms] as const)),
  )("right after COMMIT was sent: %s, %d ms", async (mode, ms) => {
    await scoreThrough(mode, { moment: "sent", call: /^COMMIT #(7|8)$/ }, () => bounce(ms));
  });

  test("a server that is killed while a run swaps its table loses and doubles no row", async () => {
    await scoreThrough("replace", { moment: "sent", call: /^ALTER TABLE .* RENAME/ }, () => bounce(5));
  });
});

const commit = (chunk: Buffer): boolean => chunk.includes("COMMIT\0");
/** The COMMIT of the second span: there are three transactions before the first one. */
const spanCommit = (): ((chunk: Buffer) => boolean) => {
  let spansSeen = 0;
  return (chunk) => {
    spansSeen += chunk.includes('INSERT INTO "infer_batch".spans') ? 1 : 0;
    return spansSeen >= 2 && commit(chunk);
  };
};
const inCopy = (chunk: Buffer): boolean => chunk.includes("PGCOPY");

const faults: readonly Fault[] = ["cut", "reset", "stall", "deaf"];

postgres.describe("a connection to Postgres that breaks", () => {
  // Together: all that most of them do is to wait for an answer that does not come.
  // The short form has each fault at the COMMIT of a span, and a cut at the other moments, too.
  test.concurrent.for(
    faults.flatMap((fault, index) =>
      firstOf(
        [
          ["at the COMMIT of a span", spanCommit] as const,
          ["in the middle of a COPY", () => inCopy] as const,
          ["at the first COMMIT", () => commit] as const,
        ],
        index === 0 ? 3 : 1,
      ).map(([when, trigger]) => [fault, when, trigger] as const),
    ),
  )("by a %s %s", async ([fault, , trigger]) => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    await using proxy = await tcpProxy(postgres.server().port);
    const url = database.url.replace(/:\d+\//, `:${proxy.port}/`);
    const job = await pgJob(scratch.path, database, "append", { url, postgres: { timeouts } });
    proxy.arm(fault, trigger());

    expect(await scoreHere(job.spec)).toMatchObject({ status: "complete" });

    expect(proxy.struck).toBe(1);
    await expectFinishedPg(job);
  });

  test("a connection that stays broken ends the run with 75 in time, and committed spans are kept", async () => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const proxy = await tcpProxy(postgres.server().port);
    const url = database.url.replace(/:\d+\//, `:${proxy.port}/`);
    const job = await pgJob(scratch.path, database, "append", { url, retry: { max_seconds: 1 } });
    const stop = watchQueries(Client.prototype, {
      inCopy: async (call) => {
        if (call.endsWith("#3")) {
          await proxy[Symbol.asyncDispose]();
        }
      },
    });
    try {
      await expect(scoreHere(job.spec)).rejects.toMatchObject({ code: "DATABASE", exitCode: 75 });
    } finally {
      stop();
    }
    expect(await faultsInDatabase(job)).toEqual([]);
    const [progress] = await database.query("SELECT spans_committed::int AS n FROM infer_batch.progress");
    expect(progress?.["n"]).toBeGreaterThan(0);
  });
});
