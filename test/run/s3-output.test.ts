import { mkdir, mkdtemp, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { goldenRows } from "../support/golden.js";
import { type HttpProxy, httpProxy, s3Error } from "../support/http-proxy.js";
import { fixtures, scratch, scratchFolder, writeSpec } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { faultsOfFinished, outputRows } from "../support/output.js";
import { runInS3, upload } from "../support/s3-job.js";
import { folderName, type S3OutputJob, s3OutputJob, spans, useCredentials } from "../support/s3-output.js";
import { mirror } from "../support/s3-target.js";
import { type Bucket, useS3 } from "../support/s3.js";
import { scoreHere, workerOf } from "../support/score.js";
import { until } from "../support/waiting.js";

const s3 = useS3();
const port = (): number => s3.server().port;

interface World extends AsyncDisposable {
  readonly job: S3OutputJob;
  readonly proxy: HttpProxy;
  readonly bucket: Bucket;
  readonly folder: string;
}

async function worldOf(overrides: Parameters<typeof s3OutputJob>[2] = {}): Promise<World> {
  const ownFolder = await scratchFolder();
  const proxy = await httpProxy(port());
  const bucket = await s3.server().createBucket();
  const job = await s3OutputJob(ownFolder.path, { bucket, port: proxy.port }, overrides);
  return {
    job,
    proxy,
    bucket,
    folder: ownFolder.path,
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await ownFolder[Symbol.asyncDispose]();
    },
  };
}

s3.describe("predictions in S3", () => {
  test("predictions in S3 are those that Python makes, from shards and a model in S3 too, and a second run says already_complete", async () => {
    await using ownFolder = await scratchFolder();
    const bucket = await s3.server().createBucket();
    const fixture = fixtures.find(({ name }) => name === "penguins-pipeline");
    if (fixture === undefined) {
      throw new Error("the fixture is gone");
    }
    await upload(bucket, join(projectFolder, "fixtures/data", fixture.table), "in/");
    await upload(bucket, join(projectFolder, "fixtures/models"), "models/");
    const spec = await writeSpec(ownFolder.path, fixture, {
      input: { path: `s3://${bucket.name}/in/*.parquet`, spool: { path: "spool" } },
      model: { path: `s3://${bucket.name}/models/${fixture.model}` },
      output: {
        columns: [fixture.key ?? "id"],
        parquet: { path: `s3://${bucket.name}/out/\${ds}/`, spool: { path: "spool" } },
      },
      params: { ds: "2026-01-31" },
      commit_rows: 100,
    });
    const env = { XDG_CACHE_HOME: join(ownFolder.path, "cache") };

    const first = await runInS3(["run", spec, "--json"], { port: port(), env });
    const keys = await bucket.keys();
    const second = await runInS3(["run", spec, "--json"], { port: port(), env });
    const status = await runInS3(["status", spec], { port: port(), env });

    expect(first, first.stderr).toMatchObject({ code: 0 });
    expect(first.stderr).not.toMatch(/warn/i);
    const output = `s3://${bucket.name}/out/2026-01-31`;
    expect(JSON.parse(first.stdout)).toMatchObject({ status: "complete", spans_planned: 4, output });
    const here = join(ownFolder.path, "here");
    await mirror(bucket, "out/2026-01-31", here);
    const golden = await goldenRows(fixture);
    expect(await outputRows(here)).toEqual(golden);
    expect(JSON.parse(second.stdout)).toMatchObject({ status: "already_complete" });
    expect(await bucket.keys()).toEqual(keys);
    expect(status.stdout).toMatch(/: published, 4 of 4 spans committed/);
    expect(await readdir(join(ownFolder.path, "spool"))).toEqual([]);
  });

  test("an output folder in S3 gets _SUCCESS last, and readers see only parts", async () => {
    await using world = await worldOf();
    await scoreHere(world.job.spec);
    await world.job.expectDone();
    const puts = world.proxy.requests.filter((request) => request.startsWith("PUT"));
    expect(puts.at(-1)).toContain("/_SUCCESS");
    expect(puts.at(-2)).toContain("/_manifest.json");
    expect(world.proxy.requests.filter((request) => /uploads|uploadId/.test(request))).toEqual([]);
    const seen = (await world.job.names()).filter((name) => !name.startsWith("_"));
    expect(seen.every((name) => /^part-\d{5}\..+\.parquet$/.test(name))).toBe(true);
  });

  test("an attempt at an output in S3 that ended with 75 is resumed, and committed parts do not change", async () => {
    await using world = await worldOf({ retry: { max_seconds: 0 } });
    const { job, proxy } = world;
    proxy.twist = (request) => (/^PUT .*part-00003/.test(request) ? s3Error(503, "SlowDown") : undefined);

    await expect(scoreHere(job.spec)).rejects.toMatchObject({
      code: "OBJECT_STORE",
      message: expect.stringMatching(
        /^writing s3:\/\/bucket-\d+\/lake\/dt=1\/part-00003.*: the store says SlowDown, 503/,
      ),
    });
    const before = (await job.names()).filter((name) => name.endsWith(".parquet"));
    await job.expectSound();
    proxy.twist = undefined;
    const sent = proxy.requests.length;
    const report = await scoreHere(job.spec);

    expect(before.length).toBeGreaterThanOrEqual(3);
    expect(report).toMatchObject({ status: "complete", spansResumed: before.length });
    const again = proxy.requests
      .slice(sent)
      .filter((request) => before.some((name) => request.startsWith(`PUT`) && request.includes(name)));
    expect(again).toEqual([]);
    await job.expectDone();
  });

  test("an output folder in S3 with other objects is refused, and empty objects that mark folders are accepted", async () => {
    await using world = await worldOf();
    const { bucket, job } = world;
    await bucket.put(`${folderName}/`, "");
    await bucket.put(`${folderName}/empty/`, "");
    await bucket.put(`${folderName}/data.parquet`, "x");
    await expect(scoreHere(job.spec)).rejects.toMatchObject({
      code: "OUTPUT_FOREIGN",
      message: `checking ${job.uri}: data.parquet is there, which no run wrote`,
    });
    expect((await job.names()).filter((name) => name.startsWith("_"))).toEqual([]);
    await bucket.remove(`${folderName}/data.parquet`);
    await bucket.put(`${folderName}/empty/x`, "x");
    await expect(scoreHere(job.spec)).rejects.toMatchObject({ message: expect.stringContaining("empty is there") });
    await bucket.remove(`${folderName}/empty/x`);
    expect((await scoreHere(job.spec)).status).toBe("complete");
    await job.expectDone();
  });

  test("predictions in S3 of two workers are finished by the last of them; one that steals does the rest", async () => {
    await using world = await worldOf();
    const first = await scoreHere(world.job.spec, workerOf(0, 3));
    expect(first.status).toBe("partial");
    expect((await world.job.names()).some((name) => name.includes("_SUCCESS"))).toBe(false);
    const second = await scoreHere(world.job.spec, { ...workerOf(1, 3), steal: true });
    expect(second.status).toBe("complete");
    await world.job.expectDone();
  });

  test("predictions in S3 are those of the new run, once --new-run has finished it, and nothing is left of the one before", async () => {
    await using world = await worldOf();
    const { job } = world;
    await scoreHere(job.spec);
    const report = await scoreHere(job.spec, { newRun: true });
    expect(report).toMatchObject({ status: "complete", runId: expect.stringMatching(/-r2$/), spansResumed: 0 });
    await job.expectDone(2);
    expect((await scoreHere(job.spec)).status).toBe("already_complete");
  });

  test("an output folder in S3 has the rejected rows, and `rejects` shows them", async () => {
    await using ownFolder = await scratchFolder();
    const bucket = await s3.server().createBucket();
    const job = await smallJob(ownFolder.path, {
      model: identity,
      select: "SELECT i::BIGINT AS id, CASE WHEN i % 10 = 3 THEN NULL ELSE i END::FLOAT AS x FROM range(50) t(i)",
      output: { columns: ["id"], parquet: { path: `s3://${bucket.name}/out` } },
      on_bad_row: "reject",
      max_rejects: 10,
      commit_rows: 20,
    });
    const result = await runInS3(["run", job.spec, "--json"], { port: port() });
    const rejects = await runInS3(["rejects", job.spec, "--json"], { port: port() });
    expect(result, result.stderr).toMatchObject({ code: 0 });
    expect(JSON.parse(result.stdout)).toMatchObject({ rows_rejected: 5, rows_scored: 50 - 5 });
    const rows = rejects.stdout
      .trim()
      .split("\n")
      .map((line) => (JSON.parse(line) as { row: number }).row);
    expect(rows).toEqual([3, 13, 23, 33, 43]);
  });

  test("SIGTERM during the upload of a part ends the run with 143 at once, and committed parts are kept", async () => {
    await using world = await worldOf({ output: { timeouts: { silence: 3600, request: 3600 } } });
    const { job, proxy } = world;
    let stopped = 0;
    const result = await runInS3(["run", job.spec], {
      port: port(),
      onStart: (child) => {
        // Those before it may be on their way too, and have to arrive first, also on a slow machine.
        const stop = async (): Promise<void> => {
          await until(async () => (await job.names()).filter((name) => name.startsWith("part-")).length >= 3);
          stopped = performance.now();
          child.kill("SIGTERM");
        };
        proxy.twist = (request) =>
          /^PUT .*part-00003/.test(request) ? { kind: "hang", after: false, hung: () => void stop() } : undefined;
      },
    });
    expect(performance.now() - stopped).toBeLessThan(20_000); // it would wait for an hour
    proxy.twist = undefined;
    expect(result.code, result.stderr).toBe(143);
    await job.expectSound();
    expect((await scoreHere(job.spec)).spansResumed).toBeGreaterThanOrEqual(3);
    await job.expectDone();
  });

  test("a run into S3 with long footers is resumed", async () => {
    await using ownFolder = await scratchFolder();
    useCredentials();
    const bucket = await s3.server().createBucket();
    const names = Array.from({ length: 400 }, (_, index) => `carried_through_${index}`);
    const carried = names.map((name, index) => `i + ${index} AS ${name}`);
    const job = await smallJob(ownFolder.path, {
      model: identity,
      select: `SELECT i::FLOAT AS x, ${carried.join(", ")} FROM range(20) t(i)`,
      modelSpec: { inputs: { x: ["x"] } },
      output: { columns: names, parquet: { path: `s3://${bucket.name}/out`, endpoint: s3.server().endpoint } },
      commit_rows: 10,
    });
    await scoreHere(job.spec);
    const keys = await bucket.keys();
    const [first = "", second = ""] = keys.filter((key) => key.endsWith(".parquet"));
    const bytes = Buffer.from(await bucket.get(first));
    expect(bytes.readUInt32LE(bytes.length - 8)).toBeGreaterThan(40_000);
    await bucket.remove("out/_SUCCESS");
    await bucket.remove(second);
    expect(await scoreHere(job.spec)).toMatchObject({ status: "complete", spansResumed: 1 });
    expect(await bucket.keys()).toEqual(keys);
  });

  test("an output folder in S3 that the input pattern matches is refused", async () => {
    await using ownFolder = await scratchFolder();
    useCredentials();
    const bucket = await s3.server().createBucket();
    const fixture = fixtures[0];
    if (fixture === undefined) {
      throw new Error("no fixture");
    }
    await upload(bucket, join(projectFolder, "fixtures/data", fixture.table), "lake/in/");
    const [one = ""] = await bucket.keys();
    await bucket.put("lake/in/out/_old/a.parquet", await bucket.get(one));
    const endpoint = s3.server().endpoint;
    const specOf = async (name: string, pattern: string): Promise<string> => {
      await mkdir(join(ownFolder.path, name));
      return await writeSpec(join(ownFolder.path, name), fixture, {
        input: { path: `s3://${bucket.name}/${pattern}`, endpoint },
        output: { columns: ["id"], parquet: { path: `s3://${bucket.name}/lake/in/out`, endpoint } },
      });
    };
    await expect(scoreHere(await specOf("pattern", "lake/**/*.parquet"))).rejects.toMatchObject({
      code: "SPEC_INVALID",
      message: expect.stringContaining("matches what is written to output.parquet.path"),
    });
    await expect(scoreHere(await specOf("one", "lake/in/out/_old/*.parquet"))).rejects.toMatchObject({
      code: "SPEC_INVALID",
      message: expect.stringContaining("is in output.parquet.path"),
    });
  });

  test("a missing permission or bucket for the output in S3 ends with 64 and is named", async () => {
    await using world = await worldOf();
    world.proxy.twist = (request) => (/^PUT .*part-00000/.test(request) ? s3Error(403, "AccessDenied") : undefined);
    await expect(scoreHere(world.job.spec)).rejects.toMatchObject({
      code: "PERMISSION",
      hint: expect.stringMatching(/need s3:PutObject on arn:aws:s3:::bucket-\d+\/lake\/dt=1\/part-00000/),
    });
    await world.job.rewrite(port(), { output: { path: "s3://no-such-bucket/out" } });
    await expect(scoreHere(world.job.spec)).rejects.toMatchObject({
      code: "FILE_MISSING",
      message: expect.stringMatching(/^listing s3:.*: there is no bucket no-such-bucket$/),
    });
  });

  test("status of a job in S3 names other runs that are not finished", async () => {
    await using world = await worldOf({ retry: { max_seconds: 0 } });
    const { job, proxy, bucket } = world;
    const output = { path: `s3://${bucket.name}/lake/dt=\${ds}` };
    await job.rewrite(proxy.port, { params: { ds: "1" }, output });
    proxy.twist = (request) => (/^PUT .*part-00003/.test(request) ? s3Error(400, "Whatever") : undefined);
    await expect(scoreHere(job.spec)).rejects.toMatchObject({ code: "PERMISSION" });
    proxy.twist = undefined;
    await job.rewrite(proxy.port, { params: { ds: "2" }, output });
    const status = await runInS3(["status", job.spec, "--json"], { port: port() });
    const { unfinished } = JSON.parse(status.stdout) as { unfinished: { command: string }[] };
    expect(unfinished.map(({ command }) => command)).toEqual([expect.stringMatching(/--param ds=1$/)]);
  });
});

test("six spans are what the tests above count on", () => {
  expect(spans).toBe(6);
});

s3.describe("erase in S3", () => {
  test("erase replaces the objects of a run by objects without the rows of the keys, and all commands take them for whole", async () => {
    const bucket = await s3.server().createBucket();
    const job = await s3OutputJob(scratch.path, { bucket, port: s3.server().port }, { checks: {}, commit_rows: 200 });
    await expectEnd(runHere(["run", job.spec]), 0);
    const keys = join(scratch.path, "keys.txt");
    await writeFile(keys, "5\n441\n9999\n");
    const erase = (...args: string[]) => runHere(["erase", job.spec, "--keys", keys, ...args]);
    expect(lastJson(await erase("--dry-run", "--json"))).toMatchObject({ rows: 2 });

    const erased = await expectEnd(erase("--json"), 0);
    expect(lastJson(erased)).toMatchObject({ rows: 2, rejects: 0, keys_not_found: 1, retained: 0 });
    const here = await mkdtemp(join(scratch.path, "mirror-"));
    await mirror(bucket, folderName, here);
    const ids = (await outputRows(here)).map(({ id }) => Number(id));
    expect([ids.length, ids.includes(5), ids.includes(441)]).toEqual([440, false, false]);
    expect(await faultsOfFinished(here, 440)).toEqual([]);
    const names = await job.names();
    expect(names.filter((name) => name.startsWith("part-")).every((name) => name.includes("-r2."))).toBe(true);
    expect(names.filter((name) => name.includes("staged"))).toEqual([]);
    expect(lastJson(await runHere(["status", job.spec, "--json"]))).toMatchObject({ status: "published", damage: [] });
    expect((await runHere(["run", job.spec])).stdout).toContain("already complete");
    expect((await erase()).stdout).toContain("3 keys not found");
  });
});
