import { expect, test } from "vitest";
import { type BatchJob, batchJob } from "../support/batch-job.js";
import type { HeldCall } from "../support/prompt-server.js";
import type { CliResult } from "../support/cli.js";
import { lastJson } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";
import { filesTarget, killWhen, postgresTarget, type PromptTarget, s3PromptTarget } from "../support/prompt-torture.js";
import { randomOf } from "../support/random.js";
import { useS3 } from "../support/s3.js";
import { torture } from "../support/torture.js";

const timeout = torture ? 3_600_000 : 120_000;
const server = { runMs: 50, validateMs: 20 } as const;

const s3 = useS3();
const postgres = usePostgres();

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

type TargetIn = (folder: string) => PromptTarget;

/** Kills a run when all answers of a batch are durable, and no span is committed. */
async function killWithAnswers(batches: BatchJob): Promise<void> {
  const { job, server: mock } = batches;
  await killAt(batches, "errors", async () => (await job.target.kept()).size === (await mock.books()).distinct);
}

/** Requires that the next run finishes a job that was killed, with the answers that are kept and no other file. */
async function requireEnd(batches: BatchJob, created: number): Promise<void> {
  const { job, server: mock } = batches;
  await mock.control({ batch: server });
  const ended = await batches.run();
  await batches.requireRight(ended);
  expect(lastJson(ended)).toMatchObject({ spending: { answers: 0 } });
  expect(await job.target.kept()).toEqual(new Set());
  expect((await mock.books()).batches).toMatchObject({ created, files: created });
}

/** Kills a run at each step of two batches. */
async function outliveSteps(targetIn: TargetIn): Promise<void> {
  const tickets = { rows: 260, every: 40 };
  await using batches = await batchJob({ tickets, commitRows: 100, mock: { batch: server }, targetIn });
  for (const step of steps) {
    await killAt(batches, step);
  }
  await killWithAnswers(batches);
  await requireEnd(batches, 2);
}

/** Kills a run of one batch once, when its answers are durable. */
async function outliveOne(targetIn: TargetIn): Promise<void> {
  await using batches = await batchJob({ mock: { batch: server }, targetIn });
  await killWithAnswers(batches);
  await requireEnd(batches, 1);
}

const seeds = Array.from({ length: 10 }, (_, index) => index + 1);

/** Kills a run at moments that a seed draws, while its batches fail in every way. */
async function outliveAnyMoment(targetIn: TargetIn, seed: number): Promise<void> {
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
    targetIn,
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

const everyStep =
  "a client that is killed at every step of its batches creates none twice, loses no answer, and knows what it paid";
const anyMoment = "a client that is killed at any moment of batches that fail in every way pays for nothing twice";
/** What differs by target is how answers are kept. */
const kept = "a client that is killed when the answers of its batch are kept finds them again, and asks for none";

test(`${everyStep}: files`, { timeout }, () => outliveSteps(filesTarget));

test.runIf(torture)(`${anyMoment}: files`, { timeout }, async () => {
  for (const seed of seeds) {
    await outliveAnyMoment(filesTarget, seed);
  }
});

async function newS3Target(): Promise<TargetIn> {
  const bucket = await s3.server().createBucket();
  return (folder) => s3PromptTarget(folder, { bucket, port: s3.server().port });
}

s3.describe("", () => {
  test(`${kept}: S3`, { timeout }, async () => {
    await outliveOne(await newS3Target());
  });

  test.runIf(torture)(`${everyStep}: S3`, { timeout }, async () => {
    await outliveSteps(await newS3Target());
  });

  test.runIf(torture)(`${anyMoment}: S3`, { timeout }, async () => {
    for (const seed of seeds) {
      await outliveAnyMoment(await newS3Target(), seed);
    }
  });
});

postgres.describe("", () => {
  test(`${kept}: Postgres`, { timeout }, async () => {
    await using database = await postgres.server().createDatabase();
    await outliveOne(() => postgresTarget(database));
  });

  test.runIf(torture)(`${everyStep}: Postgres`, { timeout }, async () => {
    await using database = await postgres.server().createDatabase();
    await outliveSteps(() => postgresTarget(database));
  });

  test.runIf(torture)(`${anyMoment}: Postgres`, { timeout }, async () => {
    for (const seed of seeds) {
      await using database = await postgres.server().createDatabase();
      await outliveAnyMoment(() => postgresTarget(database), seed);
    }
  });
});
