import { expect, test } from "vitest";
import { type BatchJob, batchJob } from "../support/batch-job.js";
import type { HeldCall } from "../support/prompt-server.js";
import type { CliResult } from "../support/cli.js";
import { killWhen } from "../support/prompt-torture.js";
import { randomOf } from "../support/random.js";
import { torture } from "../support/torture.js";

const timeout = torture ? 3_600_000 : 120_000;
const server = { runMs: 50, validateMs: 20 } as const;

/** Kills a run while the server holds a call. @param isDue waits for more than the call */
async function killAt(
  { job, server: mock }: BatchJob,
  at: HeldCall,
  isDue: () => Promise<boolean> = () => Promise.resolve(true),
): Promise<void> {
  await mock.control({ batch: { ...server, hold: { at } } });
  const { signal, stderr } = await killWhen(
    job,
    async () => (await mock.books()).batches.held === at && (await isDue()),
  );
  expect(signal, `${at}: ${stderr}`).toBe("SIGKILL");
}

/** Before a file is uploaded and after it, after a batch is created, before it has ended, in the middle of its answers. */
const steps = ["upload", "uploaded", "created", "poll", "output"] as const;

test("a client that is killed at every step of its batches creates none twice, loses no answer, and knows what it paid", {
  timeout,
}, async () => {
  await using batches = await batchJob({ tickets: { rows: 260, every: 40 }, commitRows: 100, mock: { batch: server } });
  const { job, server: mock } = batches;

  for (const step of steps) {
    await killAt(batches, step);
  }
  // When all answers are durable, and no span is committed.
  const { distinct } = await mock.books();
  await killAt(batches, "errors", async () => (await job.target.kept()).size === distinct);
  await mock.control({ batch: server });

  await batches.requireRight(await job.run([]));
  // The file that was uploaded is not uploaded again.
  expect((await mock.books()).batches).toMatchObject({ created: 2, files: 2 });
});

test.runIf(torture)(
  "a client that is killed at any moment of batches that fail in every way pays for nothing twice",
  {
    timeout,
  },
  async () => {
    for (let seed = 1; seed <= 10; seed += 1) {
      const random = randomOf(seed);
      const batch = {
        ...server,
        refuseEvery: 11,
        cutDownloads: 3,
        loseCreates: 2,
        pageItems: 2,
        queue: 400,
        ending: ["expired", "cancelled"],
      } as const;
      const faults = { limited: 0.02, failed: 0.02 };
      await using batches = await batchJob({
        tickets: { rows: 2000, every: 200 },
        commitRows: 500,
        mock: { seed, batch, faults },
      });
      const { job, server: mock } = batches;
      let ended: CliResult | undefined;
      for (let kill = 0; kill < 8 && ended === undefined; kill += 1) {
        const { calls } = (await mock.books()).batches;
        const due = calls + 1 + Math.floor(random() * 25);
        const run = await killWhen(job, async () => (await mock.books()).batches.calls >= due);
        ended = run.code === 0 ? run : undefined;
      }
      await batches.requireRight(ended ?? (await job.run([])));
    }
  },
);
