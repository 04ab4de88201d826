import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type CliResult, runCommand, type RunningCli } from "../support/cli.js";
import { failuresOf } from "../support/crash.js";
import { type HttpProxy, httpProxy, type Twist } from "../support/http-proxy.js";
import { scratchFolder } from "../support/job.js";
import { randomOf } from "../support/random.js";
import { useFirstStores } from "../support/clouds.js";
import type { StoreServer } from "../support/s3.js";
import { type S3OutputJob, s3OutputJob } from "../support/s3-output.js";
import { scoreHere, workerOf } from "../support/score.js";
import { firstOf, torture } from "../support/torture.js";

const stores = useFirstStores();
const parallelRuns = 2;

interface World extends AsyncDisposable {
  readonly job: S3OutputJob;
  readonly proxy: HttpProxy;
}

async function worldOf(server: StoreServer): Promise<World> {
  const scratch = await scratchFolder();
  const proxy = await httpProxy(server.port);
  const bucket = await server.createBucket();
  const job = await s3OutputJob(scratch.path, { bucket, port: proxy.port });
  return {
    job,
    proxy,
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

/** Runs the command until `strike` says that it dies: told of the process as soon as there is one. */
async function runAndKill(
  { job }: World,
  args: readonly string[],
  strike: (kill: () => void) => void,
): Promise<CliResult> {
  return await runCommand(["run", job.spec, "--no-progress", ...args], {
    env: job.bucket.env(),
    onStart: (child: RunningCli) => {
      strike(() => void child.kill("SIGKILL"));
    },
  });
}

/**
 * Requests at which a process is killed, before they go on or after they were carried out; `sink/parquet/s3/every-request` has
 * the others, without processes.
 */
const moments: readonly (readonly [RegExp, "before" | "after"])[] = [
  [/^(?:PUT|POST) .*part-00002\..*\.parquet/, "after"],
  [/^(?:PUT|POST) .*_manifest\.json/, "after"],
];

for (const { name, describe, server } of stores) {
  describe(`a process that is killed while it writes to ${name}`, () => killsOf(server));
  describe(`several workers on one run in ${name}`, () => workersOf(server));
}

function killsOf(server: () => StoreServer): void {
  test.each(firstOf(moments))(
    "a process that is killed at %s (%s) leaves a run that the same command finishes",
    async (pattern, when) => {
      await using world = await worldOf(server());
      const killed = await runAndKill(world, [], (kill) => {
        let struck = false;
        world.proxy.twist = (request): Twist | undefined => {
          const hung = pattern.test(request) && !struck;
          struck ||= hung;
          return hung ? { kind: "hang", after: when === "after", hung: kill } : undefined;
        };
      });
      world.proxy.twist = undefined;
      expect(killed.signal, killed.stderr).toBe("SIGKILL");
      await world.job.expectSound();
      await scoreHere(world.job.spec);
      await world.job.expectDone();
    },
  );

  test("a process that is killed at any moment while it writes leaves a run that has each row once", async () => {
    const pace = await paceOf(server());
    const count = torture ? 200 : 1;
    let killed = 0;
    const how = { limit: parallelRuns, name: (seed: number) => `seed ${seed} of ${JSON.stringify(pace)}` };
    const failures = await failuresOf(
      Array.from({ length: count }, (_, index) => index),
      how,
      async (seed) => {
        const random = randomOf(seed);
        await using world = await worldOf(server());
        // By its requests, and a share of the time to the next one: in the middle, independent of the machine's load.
        const at = Math.floor(random() * pace.requests);
        const delayMs = random() * pace.requestMs;
        const reader = new AbortController();
        const reading = readUntil(reader.signal, world);
        reading.catch(() => undefined); // it is awaited later
        const { signal } = await runAndKill(world, [], (kill) => {
          let requests: number | undefined;
          world.proxy.twist = (request) => {
            requests = isFirstWrite(request) ? 0 : requests === undefined ? undefined : requests + 1;
            if (requests === at) {
              world.proxy.twist = undefined;
              setTimeout(kill, delayMs);
            }
            return undefined;
          };
        });
        killed += signal === "SIGKILL" ? 1 : 0;
        await world.job.expectSound();
        await scoreHere(world.job.spec);
        reader.abort();
        await reading;
        await world.job.expectDone();
      },
    );
    expect(failures).toEqual([]);
    expect(killed).toBeGreaterThan(count / 3);
  }, 3_600_000);
}

/** Reads what is there again and again: each part whole and right, and no row twice, at any moment. */
async function readUntil(stop: AbortSignal, { job }: World): Promise<void> {
  while (!stop.aborted) {
    await job.expectSound();
    await sleep(50);
  }
}

const isFirstWrite = (request: string): boolean => /^(?:PUT|POST) .*run\.json/.test(request);

/** The requests of an undisturbed run from its first write on, and how far apart they are here and now. */
async function paceOf(server: StoreServer): Promise<{ requests: number; requestMs: number }> {
  await using world = await worldOf(server);
  let first: number | undefined;
  let before = 0;
  world.proxy.twist = (request) => {
    if (isFirstWrite(request)) {
      first = performance.now();
      before = world.proxy.requests.length;
    }
    return undefined;
  };
  await runCommand(["run", world.job.spec, "--no-progress"], { env: world.job.bucket.env() });
  const requests = world.proxy.requests.length - before;
  const requestMs = (performance.now() - (first ?? 0)) / requests;
  await world.job.expectDone();
  return { requests, requestMs };
}

function workersOf(server: () => StoreServer): void {
  test.each(torture ? [2, 4] : [4])(
    "%i workers that steal from each other leave each row once and one manifest",
    async (count) => {
      await using world = await worldOf(server());
      const specs = await Promise.all(Array.from({ length: count }, () => world.job.specOfAnother()));
      const reports = await Promise.all(
        specs.map((spec, index) => scoreHere(spec, { ...workerOf(index, count), steal: true })),
      );
      expect(reports.map(({ status }) => status)).toContain("complete");
      await world.job.expectDone();
    },
  );

  test("a worker finishes the spans of another one that is killed again and again", async () => {
    await using world = await worldOf(server());
    const dying = async (part: RegExp, after: boolean): Promise<void> => {
      const killed = await runAndKill(world, ["--worker", "1/2"], (kill) => {
        world.proxy.twist = (request): Twist | undefined =>
          part.test(request) ? { kind: "hang", after, hung: kill } : undefined;
      });
      world.proxy.twist = undefined;
      expect(killed.signal, killed.stderr).toBe("SIGKILL");
    };
    await dying(/^(?:PUT|POST) .*part-00003\./, true);
    expect((await scoreHere(world.job.spec, workerOf(0, 2))).status).toBe("partial");
    await dying(/^(?:PUT|POST) .*part-00005\./, false);
    const last = await scoreHere(world.job.spec, { ...workerOf(0, 2), steal: true });
    expect(last.status).toBe("complete");
    await world.job.expectDone();
  });
}
