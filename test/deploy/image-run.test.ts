import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, chown, cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { cacheFolder } from "../support/build-once.mjs";
import { projectFolder } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { query } from "../support/parquet.js";
import { firstBelow } from "../support/waiting.js";

const built = process.env["INFER_BATCH_IMAGE"] ?? cacheFolder("image");
const missing = !existsSync(join(built, "complete"))
  ? `no image in ${built}: test/deploy/build-image.sh builds one`
  : process.getuid?.() === 0
    ? undefined
    : "only root may change its root";
const image = z.object({
  OCIv1: z.object({
    config: z.object({
      User: z.string(),
      Env: z.array(z.string()),
      Entrypoint: z.array(z.string()).nullish(),
      Cmd: z.array(z.string()),
      Volumes: z.record(z.string(), z.object({})),
    }),
  }),
});

/**
 * As an engine does with --read-only: namespaces of its own, the image's user and variables, nothing to write to but its
 * volume, what is mounted, and Kubernetes' file for last words.
 */
const enter = `
  root=$1 jobs=$2 log=$3 scratch=$4 user=$5; shift 5
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mkdir -p "$root/jobs"
  touch "$root/dev/termination-log"
  mount -o remount,ro,bind "$root"
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=1777 scratch "$root$scratch"
  mount --bind "$jobs" "$root/jobs"
  mount --bind "$log" "$root/dev/termination-log"
  exec chroot --userspec="$user" "$root" env -i "$@"
`;

interface Container {
  readonly jobs: string;
  readonly log: string;
}

interface Ended {
  readonly code: number | null;
  readonly said: string;
}

async function runInImage(
  { jobs, log }: Container,
  args: readonly string[],
  onSaid?: (said: string, pid: number) => void,
): Promise<Ended> {
  const { config } = image.parse(JSON.parse(await readFile(join(built, "image.json"), "utf8"))).OCIv1;
  const [scratch = ""] = Object.keys(config.Volumes);
  const command = [...config.Env, ...(config.Entrypoint ?? []), ...(args.length === 0 ? config.Cmd : args)];
  const child = spawn(
    "unshare",
    [
      "--pid",
      "--fork",
      "--mount",
      "--kill-child",
      "sh",
      "-euc",
      enter,
      "sh",
      join(built, "root"),
      jobs,
      log,
      scratch,
      config.User,
      ...command,
    ],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  let said = "";
  const listen = (text: Buffer): void => {
    said += text.toString();
    onSaid?.(said, child.pid ?? 0);
  };
  child.stdout.on("data", listen);
  child.stderr.on("data", listen);
  return await new Promise((resolve) => {
    child.once("close", (code) => {
      resolve({ code, said });
    });
  });
}

const job = {
  version: 1,
  name: "churn",
  input: { path: "data/*.parquet" },
  model: { path: "churn.onnx", outputs: { score: "probabilities[1]" } },
  output: { columns: ["customer_id"], parquet: { path: "out" } },
};

async function container(): Promise<Container & AsyncDisposable> {
  const scratch = await scratchFolder();
  await chmod(scratch.path, 0o755);
  const jobs = join(scratch.path, "jobs");
  const log = join(scratch.path, "log");
  await mkdir(jobs);
  await chown(jobs, 10_001, 10_001);
  for (const name of ["churn.onnx", "data"]) {
    await cp(join(projectFolder, "examples/churn", name), join(jobs, name), { recursive: true });
  }
  await writeFile(join(jobs, "job.yaml"), JSON.stringify(job));
  await writeFile(log, "");
  await chown(log, 10_001, 10_001);
  return { jobs, log, [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose]() };
}

describe.skipIf(missing !== undefined)(`the image${missing === undefined ? "" : ` (skipped: ${missing})`}`, () => {
  test("the image scores without privileges, and with only a volume to write to", async () => {
    await using given = await container();
    const { code, said } = await runInImage(given, ["infer-batch", "run", "/jobs/job.yaml"]);
    expect(code, said).toBe(0);
    expect(await readdir(join(given.jobs, "out"))).toContain("_SUCCESS");
    expect(await query(`SELECT count(*)::INT AS rows FROM '${given.jobs}/out/*.parquet'`)).toEqual([{ rows: 2000 }]);
    expect((await runInImage(given, ["sh", "-c", "id -u; touch /app/file"])).said).toMatch(/^10001\n.*Read-only/);
  });

  test("the image prints its usage", async () => {
    await using given = await container();
    expect(await runInImage(given, [])).toMatchObject({ code: 0, said: expect.stringContaining("Usage: infer-batch") });
  });

  test("the image writes its last message to the file that Kubernetes reads", async () => {
    await using given = await container();
    const { code } = await runInImage(given, ["infer-batch", "run", "/jobs/nothing.yaml"]);
    expect([code, await readFile(given.log, "utf8")]).toEqual([
      64,
      expect.stringMatching(/^error: reading \/jobs\/no/),
    ]);
  });

  test("the image exits with 143 on SIGTERM as the first process", async () => {
    await using given = await container();
    // No server listens at that port, so the run waits and tries again.
    const output = { columns: ["customer_id"], postgres: { url: "postgres://nobody@127.0.0.1:9/none", table: "t" } };
    await writeFile(join(given.jobs, "job.yaml"), JSON.stringify({ ...job, output, retry: { max_seconds: 600 } }));
    let stopped = 0;
    const { code, said } = await runInImage(given, ["infer-batch", "run", "/jobs/job.yaml"], (text, pid) => {
      if (stopped === 0 && text.includes("ECONNREFUSED")) {
        stopped = performance.now();
        void firstBelow(pid).then((first) => process.kill(first, "SIGTERM"));
      }
    });
    expect(code, said).toBe(143);
    expect(performance.now() - stopped).toBeLessThan(20_000); // it is 5 s where nothing else is at work
  });
});
