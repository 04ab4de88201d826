import { execFile } from "node:child_process";
import { cp, mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { projectFolder } from "../support/cli.js";
import { shareCode } from "../support/code-cache.js";
import { deployText } from "../support/deploy.js";
import { differences } from "../support/golden.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { type IdentityService, podIdentityAgent, securityTokenService } from "../support/identity.js";
import { outputRows } from "../support/output.js";
import { query, type Row, readRows } from "../support/parquet.js";
import type { Database } from "../support/pg-database.js";
import { jobOf, type ManifestFolder } from "../support/pod.js";
import { usePostgres } from "../support/postgres.js";
import { mirror } from "../support/s3-target.js";
import { type Bucket, useS3 } from "../support/s3.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf, torture } from "../support/torture.js";

const day = "2026-01-31";
const example = join(projectFolder, "examples/churn");

interface Ended {
  readonly code: number;
  readonly said: string;
}

async function carryOut(
  folder: string,
  [program = "", ...args]: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<Ended> {
  const bin = join(folder, "bin");
  const PATH = [bin, process.env["PATH"]].join(delimiter);
  if (env["XDG_CACHE_HOME"] !== undefined) {
    shareCode(env["XDG_CACHE_HOME"]);
  }
  return await new Promise((resolve) => {
    execFile(program, args, { env: { ...env, PATH } }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code), said: `${stdout}${stderr}` });
    });
  });
}

async function machine(): Promise<Awaited<ReturnType<typeof scratchFolder>>> {
  const scratch = await scratchFolder();
  const bin = join(scratch.path, "bin");
  await mkdir(bin);
  await symlink(join(projectFolder, "bin/infer-batch.js"), join(bin, "infer-batch"));
  return scratch;
}

/** A spec as it stands in deploy/, but for the names of its buckets, which are all `bucket`, and with work for four. */
async function writeDeployed(folder: string, text: string, bucket: Bucket): Promise<string> {
  const here = text.replaceAll(/s3:\/\/my-\w+/g, `s3://${bucket.name}`);
  const spec = join(folder, "job.yaml");
  await writeFile(spec, `${here}commit_rows: 100\n`);
  return spec;
}

async function upload(bucket: Bucket): Promise<void> {
  await bucket.putFile("churn/model.onnx", join(example, "churn.onnx"));
  for (const part of ["part-0.parquet", "part-1.parquet", "part-2.parquet"]) {
    await bucket.putFile(`features/dt=${day}/${part}`, join(example, "data", part));
  }
}

/** scikit-learn's. */
async function expected(): Promise<Row[]> {
  const rows = await readRows(join(example, "expected.parquet"));
  return rows.map(({ customer_id, leaves }) => ({ customer_id, score: leaves })).toSorted(byCustomer);
}

function byCustomer(one: Row, other: Row): number {
  return Number(one["customer_id"]) - Number(other["customer_id"]);
}

async function expectTable(database: Database): Promise<void> {
  const rows = await database.query("SELECT customer_id, score, dt::text AS dt FROM scores.daily_churn");
  expect(new Set(rows.map(({ dt }) => dt))).toEqual(new Set([day]));
  const found = rows.map(({ customer_id: id, score }) => ({ customer_id: BigInt(String(id)), score }));
  expect(differences(found.toSorted(byCustomer), await expected())).toEqual([]);
  const workers = await database.query("SELECT DISTINCT workers FROM infer_batch.spans");
  expect(workers, "as many workers as the schedule has, each a share").toEqual([{ workers: 4 }]);
}

async function tokenOf(folder: string): Promise<string> {
  const token = "token of the service account";
  await writeFile(join(folder, "token"), token);
  return token;
}

const role = "arn:aws:iam::123456789012:role/daily-churn";
const s3 = useS3();
const postgres = usePostgres();

s3.describe("with buckets as the specs have them,", () => {
  interface World {
    readonly folder: string;
    readonly bucket: Bucket;
    readonly env: NodeJS.ProcessEnv;
  }

  /** The first pods of a Job, or all; what a manifest names of a pod's file system lies below `folder`. */
  async function runPods(
    path: ManifestFolder,
    { folder, bucket, env }: World,
    first = Number.POSITIVE_INFINITY,
  ): Promise<(Ended & { lastWords: string })[]> {
    const { job, container, env: said, jobSpec } = jobOf(path);
    const spec = await writeDeployed(folder, jobSpec, bucket);
    return await Promise.all(
      Array.from({ length: Math.min(first, job.completions) }, async (_, index) => {
        const log = join(folder, `log-${index}`);
        const scratch = join(folder, `scratch-${index}`);
        await writeFile(log, "");
        await mkdir(scratch, { recursive: true });
        const here = (text: string): string =>
          text
            .replace("/etc/infer-batch/job.yaml", spec)
            .replace("/dev/termination-log", log)
            .replace("/var/run/secrets/aws", folder)
            .replace(/^\/scratch/, scratch);
        const ended = await carryOut(folder, [...container.command, ...container.args].map(here), {
          ...Object.fromEntries(Object.entries(said).map(([name, value]) => [name, here(value)])),
          ...env,
          DS: day,
          JOB_COMPLETION_INDEX: String(index),
        });
        return { ...ended, lastWords: await readFile(log, "utf8") };
      }),
    );
  }

  test("the pods of Kubernetes wait for the features, then share the run", async () => {
    await using scratch = await machine();
    const bucket = await s3.server().createBucket();
    await upload(bucket);
    const world = { folder: scratch.path, bucket, env: s3.server().env() };

    const [early] = await runPods("base", world, 1);
    expect([early?.code, early?.lastWords]).toEqual([75, expect.stringMatching(/^error: .*_SUCCESS/)]);
    await bucket.put(`features/dt=${day}/_SUCCESS`, "");
    const ended = await runPods("base", world);
    expect(ended.map(({ code, said, lastWords }) => (code === 0 ? lastWords : said))).toEqual(["", "", "", ""]);

    const to = join(scratch.path, "predictions");
    await mirror(bucket, `churn/dt=${day}`, to);
    expect(differences((await outputRows(to)).toSorted(byCustomer), await expected())).toEqual([]);
  });

  const identities: { path: ManifestFolder; how: string; start: (folder: string) => Promise<IdentityService> }[] = [
    {
      path: "overlays/web-identity",
      how: "a token for STS",
      start: async (folder) => await securityTokenService(role, await tokenOf(folder)),
    },
    {
      path: "overlays/cloud-identity",
      how: "EKS Pod Identity",
      start: async (folder) => await podIdentityAgent(await tokenOf(folder), join(folder, "token")),
    },
    {
      path: "overlays/cloud-identity",
      how: "IRSA",
      start: async (folder) => {
        const service = await securityTokenService(role, await tokenOf(folder));
        // As EKS's webhook does by the annotation of the service account.
        const given = { AWS_ROLE_ARN: role, AWS_WEB_IDENTITY_TOKEN_FILE: join(folder, "token") };
        return { ...service, env: { ...service.env, ...given } };
      },
    },
  ];

  test.each(firstOf(identities))("a pod of $path reaches S3 without keys, by $how", async ({ path, start }) => {
    await using scratch = await machine();
    await using service = await start(scratch.path);
    const bucket = await s3.server().createBucket();
    await upload(bucket);
    await bucket.put(`features/dt=${day}/_SUCCESS`, "");
    const { AWS_ACCESS_KEY_ID: _id, AWS_SECRET_ACCESS_KEY: _key, ...env } = s3.server().env();
    const given = { ...env, ...service.env, AWS_REGION: "us-east-1" }; // the server's region
    const [first] = await runPods(path, { folder: scratch.path, bucket, env: given }, 1);
    expect(first?.code, first?.said).toBe(0);
    expect(service.asked()).toBeGreaterThanOrEqual(1);
    expect(await bucket.keys()).toContainEqual(expect.stringMatching(/^churn\/dt=2026-01-31\/part-00000\./));
  });

  test("a pod without the GPU that it asks for ends with 64, and its last words say what is missing", async () => {
    await using scratch = await machine();
    const bucket = await s3.server().createBucket();
    await upload(bucket);
    await bucket.put(`features/dt=${day}/_SUCCESS`, "");
    const env = { ...s3.server().env(), CUDA_VISIBLE_DEVICES: "" };
    const ended = await runPods("overlays/gpu", { folder: scratch.path, bucket, env });
    for (const { code, lastWords } of ended) {
      expect([code, lastWords]).toEqual([64, expect.stringMatching(/^error: .*cuda/)]);
    }
    expect(ended).toHaveLength(2);
  });

  postgres.describe("and a database,", () => {
    test.runIf(torture)("the pods of Kubernetes fill a table", async () => {
      await using scratch = await machine();
      await using database = await postgres.server().createDatabase();
      const bucket = await s3.server().createBucket();
      await upload(bucket);
      await bucket.put(`features/dt=${day}/_SUCCESS`, "");
      const env = { ...s3.server().env(), DATABASE_URL: database.url };
      const ended = await runPods("overlays/postgres", { folder: scratch.path, bucket, env });
      expect(ended.map(({ code, said }) => (code === 0 ? "" : said))).toEqual(["", "", "", ""]);
      await expectTable(database);
    });

    test("the children of an array job of AWS Batch fill a table", async () => {
      await using scratch = await machine();
      await using database = await postgres.server().createDatabase();
      const bucket = await s3.server().createBucket();
      await upload(bucket);
      await bucket.put(`features/dt=${day}/_SUCCESS`, "");
      const spec = await writeDeployed(scratch.path, deployText("aws-batch/job.yaml"), bucket);
      const { containerProperties } = z
        .object({ containerProperties: z.object({ command: z.array(z.string()) }) })
        .parse(JSON.parse(deployText("aws-batch/job-definition.json")));
      const command = containerProperties.command.map((text) => text.replace("/etc/infer-batch/job.yaml", spec));
      const ended = await Promise.all(
        [0, 1, 2, 3].map((index) =>
          carryOut(scratch.path, command, {
            ...s3.server().env(),
            DATABASE_URL: database.url,
            XDG_CACHE_HOME: join(scratch.path, "cache"),
            SCHEDULED_TIME: `${day}T02:10:00Z`,
            AWS_BATCH_JOB_ARRAY_INDEX: String(index),
            AWS_BATCH_JOB_ARRAY_SIZE: "4",
          }),
        ),
      );
      expect(ended.map(({ code, said }) => (code === 0 ? "" : said))).toEqual(["", "", "", ""]);
      await expectTable(database);
    });
  });
});

describe("on one machine,", () => {
  test.each([
    {
      what: "cron's line",
      line: () =>
        /^(?:[\d*]\S* +){5}\S+ (.*)$/m.exec(deployText("cron/infer-batch.cron"))?.[1]?.replaceAll(String.raw`\%`, "%"),
      spec: "/etc/infer-batch/daily-churn.yaml",
    },
    {
      what: "systemd's service",
      line: () =>
        /^ExecStart=\/bin\/sh -euc '(.*)'$/m
          .exec(deployText("systemd/infer-batch@.service"))?.[1]
          ?.replaceAll(/([$%])\1/g, "$1")
          .replace("/usr/local/bin/", ""),
      spec: "/etc/infer-batch/%i.yaml",
    },
  ])("$what scores, and ends as the run does", async ({ line, spec: usual }) => {
    await using scratch = await machine();
    const spec = await writeSpec(scratch.path, fixtureNamed("wine-forest"), {
      params: { ds: "${today}" },
      input: { path: "features/*.parquet", ready: "features/_SUCCESS" },
      output: { parquet: { path: "out/dt=${ds}" } },
    });
    await cp(join(projectFolder, "fixtures/data/wine"), join(scratch.path, "features"), { recursive: true });
    await writeFile(join(scratch.path, "stamp-%N.timer"), "");
    const command = (line() ?? "")
      .replace(usual, spec)
      .replace("/var/lib/systemd/timers", scratch.path)
      .replace("/var/cache/infer-batch", scratch.path);
    const start = (): Promise<Ended> =>
      carryOut(scratch.path, ["/bin/sh", "-euc", command], { TZ: "UTC", XDG_CACHE_HOME: join(scratch.path, "cache") });

    expect(await start()).toMatchObject({ code: 75, said: expect.stringContaining("_SUCCESS") });
    await writeFile(join(scratch.path, "features/_SUCCESS"), "");
    expect(await start()).toMatchObject({ code: 0 });
    expect(await query(`SELECT count(*)::INT AS rows FROM '${scratch.path}/out/*/*.parquet'`)).toEqual([{ rows: 178 }]);
  });
});
