import { expect, test } from "vitest";
import type { CliResult, RunningCli } from "../support/cli.js";
import { type HttpProxy, httpProxy, type Twist } from "../support/http-proxy.js";
import { scratchFolder } from "../support/job.js";
import { useS3 } from "../support/s3.js";
import { runInS3 } from "../support/s3-job.js";
import { type S3OutputJob, s3OutputJob } from "../support/s3-output.js";
import { scoreHere, workerOf } from "../support/score.js";
import { torture } from "../support/torture.js";

const s3 = useS3();

interface World extends AsyncDisposable {
  readonly job: S3OutputJob;
  readonly proxy: HttpProxy;
}

async function worldOf(): Promise<World> {
  const scratch = await scratchFolder();
  const proxy = await httpProxy(s3.server().port);
  const bucket = await s3.server().createBucket();
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
  return await runInS3(["run", job.spec, "--no-progress", ...args], {
    port: s3.server().port,
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
  [/^PUT .*part-00002\..*\.parquet/, "after"],
  [/^PUT .*_manifest\.json/, "after"],
];

s3.describe("a process that is killed while it writes to S3", () => {
  test.each(moments)(
    "a process that is killed at %s (%s) leaves a run that the same command finishes",
    async (pattern, when) => {
      await using world = await worldOf();
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
});

s3.describe("several workers on one run in S3", () => {
  test.each(torture ? [2, 4] : [4])(
    "%i workers that steal from each other leave each row once and one manifest in S3",
    async (count) => {
      await using world = await worldOf();
      const specs = await Promise.all(Array.from({ length: count }, () => world.job.specOfAnother()));
      const reports = await Promise.all(
        specs.map((spec, index) => scoreHere(spec, { ...workerOf(index, count), steal: true })),
      );
      expect(reports.map(({ status }) => status)).toContain("complete");
      await world.job.expectDone();
    },
  );

  test("a worker finishes the spans of another one that is killed again and again", async () => {
    await using world = await worldOf();
    const dying = async (part: RegExp, after: boolean): Promise<void> => {
      const killed = await runAndKill(world, ["--worker", "1/2"], (kill) => {
        world.proxy.twist = (request): Twist | undefined =>
          part.test(request) ? { kind: "hang", after, hung: kill } : undefined;
      });
      world.proxy.twist = undefined;
      expect(killed.signal, killed.stderr).toBe("SIGKILL");
    };
    await dying(/^PUT .*part-00003\./, true);
    expect((await scoreHere(world.job.spec, workerOf(0, 2))).status).toBe("partial");
    await dying(/^PUT .*part-00005\./, false);
    const last = await scoreHere(world.job.spec, { ...workerOf(0, 2), steal: true });
    expect(last.status).toBe("complete");
    await world.job.expectDone();
  });
});
