import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { httpProxy } from "../support/http-proxy.js";
import { type Fixture, fixtures, scratch, writeSpec } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { runInS3, upload } from "../support/s3-job.js";
import { useS3 } from "../support/s3.js";
import { tcpProxy } from "../support/tcp-proxy.js";
import { firstOf } from "../support/torture.js";

const s3 = useS3();

/** 50,000 rows in 25 row groups; some of the features are NULL, and most of the bytes are in `ballast`. */
const table = `SELECT i::BIGINT AS id, CASE WHEN i % 9973 = 5 THEN NULL ELSE i / 8 END::DOUBLE AS x,
  md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS ballast FROM range(50000) t(i)`;

const everything = {
  input: { where: "id % 3 <> 0", columns: { y: "x * 2" }, verify: "full" },
  output: { columns: ["id", "y"], parquet: { path: "out" } },
  on_bad_row: "reject",
  commit_rows: 7000,
  checks: { on_fail: "warn" },
} as const;

/** How many rows the plan of the only run in a folder has for each row of its sample. */
async function sampledEvery(out: string): Promise<unknown> {
  const control = join(out, "_infer-batch");
  const run = (await readdir(control)).find((name) => name !== "run.json") ?? "";
  const plan = JSON.parse(await readFile(join(control, run, "plan.json"), "utf8")) as Plan;
  return plan.checks?.sampleEvery;
}

const port = (): number => s3.server().port;

s3.describe("shards in S3", () => {
  test.each(
    fixtures.filter(({ name }) => firstOf(["cancer-logistic", "penguins-pipeline", "sentences-mean"]).includes(name)),
  )("shards in S3 are scored as on a disk ($name)", async (fixture) => {
    const bucket = await s3.server().createBucket();
    await upload(bucket, join(projectFolder, "fixtures/data", fixture.table), "lake/");
    await bucket.put("lake/_SUCCESS", "");
    const input = { path: `s3://${bucket.name}/lake/*.parquet`, ready: `s3://${bucket.name}/lake/_SUCCESS` };
    const spool = join(scratch.path, "spool");
    const [there, here] = [join(scratch.path, "s3"), join(scratch.path, "disk")];
    await mkdir(there);
    await mkdir(here);

    const far = await runInS3(
      ["run", await writeSpec(there, fixture, { input: { ...input, spool: { path: spool } }, commit_rows: 100 })],
      { port: port() },
    );
    const near = await runHere(["run", await writeSpec(here, fixture, { commit_rows: 100 })]);

    expect(far, far.stderr).toMatchObject({ code: 0 });
    expect(far.stderr).not.toContain("Warning");
    expect(near.code).toBe(0);
    expect(await outputRows(join(there, "out"))).toEqual(await outputRows(join(here, "out")));
    expect(await readdir(spool)).toEqual([]);
  });

  test("shards in S3 are waited for as long as input.wait says, with the marker in S3 too", async () => {
    const bucket = await s3.server().createBucket();
    const [fixture] = fixtures;
    const input = { path: `s3://${bucket.name}/in/*.parquet`, ready: `s3://${bucket.name}/in/_SUCCESS`, wait: "60s" };
    let arriving: Promise<void> | undefined;
    const arrive = async (): Promise<void> => {
      await upload(bucket, join(projectFolder, "fixtures/data", fixture?.table ?? ""), "in/");
      await bucket.put("in/_SUCCESS", "");
    };
    const { code, stdout, stderr } = await runInS3(
      ["run", await writeSpec(scratch.path, fixture as Fixture, { input }), "--json"],
      {
        port: port(),
        onStderr: (seen) => {
          arriving ??= seen.includes("checking again") ? arrive() : undefined;
        },
      },
    );
    await arriving;
    expect([code, stderr]).toEqual([
      0,
      expect.stringContaining("in/_SUCCESS (input.ready) is not there yet; checking"),
    ]);
    expect(JSON.parse(stdout)).toMatchObject({ status: "complete", rows_planned: fixture?.rows });
  });

  test("shards in S3 are read by a thread that uses the cached code of the SDK", async () => {
    const bucket = await s3.server().createBucket();
    const [fixture] = fixtures;
    await upload(bucket, join(projectFolder, "fixtures/data", fixture?.table ?? ""), "lake/");
    const input = { path: `s3://${bucket.name}/lake/*.parquet` };
    const spec = await writeSpec(scratch.path, fixture as Fixture, { input });
    const cache = join(scratch.path, "cache");
    const env = { XDG_CACHE_HOME: cache };
    await expectEnd(runInS3(["run", spec], { port: port(), ownProcess: true, ownCode: true, env }), 0);
    expect(await readdir(join(cache, "infer-batch/code"), { recursive: true })).toContainEqual(
      expect.stringMatching(/thread-entry-reader-worker\.js$/),
    );
  });

  test("shards in S3 may be filtered, computed with, verified and rejected as on a disk", async () => {
    const bucket = await s3.server().createBucket();
    const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1", ...everything });
    await writeRows(join(scratch.path, "in/a.parquet"), table, "ROW_GROUP_SIZE 2048");
    await upload(bucket, join(scratch.path, "in"), "in/");
    const near = await runHere(["run", job.spec]);
    const rows = await outputRows(job.out);
    const rejects = await linesIn(join(job.out, "_rejects"));
    const every = await sampledEvery(job.out);
    await rm(job.out, { recursive: true });
    const input = { ...everything.input, path: `s3://${bucket.name}/in/*.parquet`, spool: { path: "spool" } };
    await job.rewrite({ ...everything, input });

    const far = await runInS3(["run", job.spec], { port: port() });

    expect(near.code).toBe(0);
    expect(far, far.stderr).toMatchObject({ code: 0 });
    expect(await outputRows(job.out)).toEqual(rows);
    expect([every, await sampledEvery(job.out)]).toEqual([4, 4]); // of 33,333 rows that were counted, not of 50,000
    expect(rejects.length).toBe(4);
    expect((await linesIn(join(job.out, "_rejects"))).map((line) => line.replace(`s3://${bucket.name}/`, ""))).toEqual(
      rejects,
    );
  });

  test("shards in S3 are scored with a model in S3, which is fetched once", async () => {
    await using http = await httpProxy(port());
    const bucket = await s3.server().createBucket();
    const fixture = fixtures.find(({ name }) => name === "external-data");
    if (fixture === undefined) {
      throw new Error("the fixture is not there");
    }
    await upload(bucket, join(projectFolder, "fixtures/data", fixture.table), "lake/");
    await upload(bucket, join(projectFolder, "fixtures/models/external-data"), "models/");
    const input = { path: `s3://${bucket.name}/lake/*.parquet` };
    const env = { XDG_CACHE_HOME: join(scratch.path, "cache") };
    const [there, here] = [join(scratch.path, "s3"), join(scratch.path, "disk")];
    await mkdir(there);
    await mkdir(here);
    const spec = await writeSpec(there, fixture, { input, model: { path: `s3://${bucket.name}/models/model.onnx` } });

    const far = await runInS3(["run", spec], { port: http.port, env });
    const before = http.requests.length;
    const again = await runInS3(["run", spec], { port: http.port, env });
    const near = await runHere(["run", await writeSpec(here, fixture)]);

    expect(far, far.stderr).toMatchObject({ code: 0 });
    expect(again, again.stderr).toMatchObject({ code: 0 });
    expect(near.code).toBe(0);
    expect(await outputRows(join(there, "out"))).toEqual(await outputRows(join(here, "out")));
    const gets = http.requests.filter((request) => request.startsWith("GET") && request.includes("models/"));
    expect(gets).toHaveLength(2);
    expect(http.requests.length).toBeGreaterThan(before);
  });

  test("shards in S3 and on disk may be in one job", async () => {
    const bucket = await s3.server().createBucket();
    const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1::BIGINT AS id, 1::FLOAT AS x" });
    await writeRows(join(scratch.path, "b.parquet"), "SELECT 2::BIGINT AS id, 2::FLOAT AS x");
    await bucket.putFile("in/b.parquet", join(scratch.path, "b.parquet"));
    await job.rewrite({ input: { path: ["in/*.parquet", `s3://${bucket.name}/in/*.parquet`] } });

    await expectEnd(runInS3(["run", job.spec], { port: port() }), 0);
    expect((await outputRows(job.out)).map(({ id }) => Number(id))).toEqual([1, 2]);
  });

  test("shards in S3 are fetched by the columns that are needed", async () => {
    await using proxy = await tcpProxy(port());
    const bucket = await s3.server().createBucket();
    const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1" });
    const columns = Array.from({ length: 32 }, (_, index) => `hash(i + ${index})::DOUBLE AS f${index}`);
    const path = join(scratch.path, "in/a.parquet");
    await writeRows(path, `SELECT i::BIGINT AS id, ${columns.join(", ")} FROM range(100000) t(i)`);
    await upload(bucket, join(scratch.path, "in"), "in/");
    await job.rewrite({
      input: { path: `s3://${bucket.name}/in/*.parquet` },
      model: { inputs: { x: ["f7"] } },
      output: { columns: ["id", "f20"] },
    });

    await expectEnd(runInS3(["run", job.spec], { port: proxy.port }), 0);
    const bytes = (await readFile(path)).length;
    const needed = bytes * (3 / 33);
    expect(proxy.bytesFromServer).toBeGreaterThan(needed * 0.8);
    expect(proxy.bytesFromServer).toBeLessThan(needed * 1.1 + 64 * 1024);
  });

  test("shards in S3 are not fetched again where their spans are committed", async () => {
    await using proxy = await tcpProxy(port());
    const bucket = await s3.server().createBucket();
    const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1" });
    const path = join(scratch.path, "in/a.parquet");
    const rows = "SELECT i::BIGINT AS id, hash(i)::FLOAT AS x, hash(i + 1)::DOUBLE AS y FROM range(102400) t(i)";
    await writeRows(path, rows, "ROW_GROUP_SIZE 10240");
    await upload(bucket, join(scratch.path, "in"), "in/");
    await job.rewrite({
      input: { path: `s3://${bucket.name}/in/*.parquet` },
      output: { columns: ["id", "y"] },
      model: { inputs: { x: ["x"] } },
      commit_rows: 10_240,
    });
    const first = await runInS3(["run", job.spec, "--worker", "0/2"], { port: proxy.port });
    const before = proxy.bytesFromServer;

    const result = await runInS3(["run", job.spec, "--json"], { port: proxy.port });

    expect([first.code, result.code], first.stderr + result.stderr).toEqual([0, 0]);
    expect(JSON.parse(result.stdout)).toMatchObject({ status: "complete", rows_scored: 51_200 });
    const bytes = (await readFile(path)).length;
    expect((proxy.bytesFromServer - before) / bytes).toBeLessThan(0.6);
    expect((proxy.bytesFromServer - before) / bytes).toBeGreaterThan(0.4);
  });

  test("the next run removes the spooled shards of a process that has died", async () => {
    const bucket = await s3.server().createBucket();
    const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1::BIGINT AS id, 1::FLOAT AS x" });
    await upload(bucket, join(scratch.path, "in"), "in/");
    await job.rewrite({ input: { path: `s3://${bucket.name}/in/*.parquet`, spool: { path: "spool" } } });
    const dead = await killedWithSpool(job.spec, join(scratch.path, "spool"));
    await mkdir(join(scratch.path, "spool/elsewhere.1.ab"));
    await writeFile(join(scratch.path, "spool/elsewhere.1.ab/1.spool"), "of a process on another machine");

    const result = await runInS3(["run", job.spec], { port: port() });

    expect(dead).toHaveLength(1);
    expect(result, result.stderr).toMatchObject({ code: 0 });
    expect(await readdir(join(scratch.path, "spool"))).toEqual(["elsewhere.1.ab"]);
  });
});

/** Kills a run as soon as it has a folder for fetched bytes; what it leaves. */
async function killedWithSpool(spec: string, spool: string): Promise<string[]> {
  const namesOf = (): Promise<string[]> => readdir(spool).catch(() => []);
  let looking: NodeJS.Timeout | undefined;
  await runInS3(["run", spec], {
    port: port(),
    onStart: (child) => {
      looking = setInterval(() => void namesOf().then((names) => names.length > 0 && child.kill("SIGKILL")), 2);
    },
  });
  clearInterval(looking);
  return await namesOf();
}

async function linesIn(folder: string): Promise<string[]> {
  const names = (await readdir(folder)).toSorted();
  const texts = await Promise.all(names.map((name) => readFile(join(folder, name), "utf8")));
  return texts.flatMap((text) => text.split("\n").filter((line) => line !== ""));
}
