import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, projectFolder } from "../support/cli.js";
import { type Fixture, fixtures, scratch, scratchFolder, writeSpec } from "../support/job.js";
import { outputRows, partNames, spanOfName } from "../support/output.js";
import { runInS3 } from "../support/s3-job.js";
import { type Bucket, useS3 } from "../support/s3.js";
import { embeddingFaults, textJob, tokenInputs } from "../support/text-job.js";

const s3 = useS3();
const wine = fixtures[2] as Fixture;
const models = join(projectFolder, "fixtures/models");

interface ModelJob extends AsyncDisposable {
  readonly bucket: Bucket;
  readonly out: string;
  /** Runs with a cache of models of that name, one for each machine. */
  run(machine: string, key?: string): ReturnType<typeof runInS3>;
}

/** A run of which span 1 is not committed, with its model at `s3://…/wine.onnx`, which another model then replaces. */
async function unfinishedJob({ versions = false } = {}): Promise<ModelJob> {
  const folder = await scratchFolder();
  const bucket = await s3.server().createBucket();
  if (versions) {
    await bucket.keepVersions();
  }
  const out = join(folder.path, "out");
  await mkdir(join(folder.path, "caches"));
  await bucket.putFile("wine.onnx", join(models, wine.model));
  const run: ModelJob["run"] = async (machine, key = "wine.onnx") => {
    const spec = await writeSpec(folder.path, wine, { model: { path: `s3://${bucket.name}/${key}` }, commit_rows: 60 });
    const env = { XDG_CACHE_HOME: join(folder.path, "caches", machine) };
    return await runInS3(["run", spec, "--no-progress"], { port: s3.server().port, env });
  };
  await expectEnd(run("first"), 0);
  for (const name of ["_SUCCESS", "_manifest.json"]) {
    await rm(join(out, name));
  }
  for (const name of await partNames(out)) {
    await (spanOfName(name) === 1 ? rm(join(out, name)) : undefined);
  }
  await bucket.putFile("wine.onnx", join(models, "wine-zipmap.onnx"));
  return { bucket, out, run, [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose]() };
}

s3.describe("an unfinished run whose model in S3 was replaced", () => {
  test("an unfinished run whose model in S3 was replaced continues with the planned model from this machine's cache", async () => {
    await using job = await unfinishedJob();

    await expectEnd(job.run("first"), 0);
    expect((await outputRows(job.out)).length).toBe(wine.rows);
  });

  test("an unfinished run whose model in S3 was replaced continues with the planned version of a versioned bucket, also on another machine", async () => {
    await using job = await unfinishedJob({ versions: true });

    await expectEnd(job.run("another"), 0);
    expect((await outputRows(job.out)).length).toBe(wine.rows);
    const { model } = JSON.parse(await readFile(join(job.out, "_manifest.json"), "utf8")) as { model: unknown };
    expect(model).toMatchObject({ uri: `s3://${job.bucket.name}/wine.onnx`, version: expect.stringMatching(/\w{8,}/) });
  });

  test("a tokenizer in S3 is fetched into a cache of its own, and its planned version is used when the object was replaced", async () => {
    const bucket = await s3.server().createBucket();
    await bucket.keepVersions();
    const { spec, out, tokenizer } = await textJob(scratch.path, {
      model: { inputs: tokenInputs({ tokenizer: `s3://${bucket.name}/tokenizer.json` }) },
    });
    await bucket.putFile("tokenizer.json", tokenizer);
    const run = async (worker: string): ReturnType<typeof runInS3> =>
      await runInS3(["run", spec, "--no-progress", "--worker", worker], {
        port: s3.server().port,
        env: { XDG_CACHE_HOME: join(scratch.path, `cache-${worker.replace("/", "-")}`) },
      });
    await expectEnd(run("0/2"), 0);
    await writeFile(tokenizer, (await readFile(tokenizer, "utf8")).replace('"lowercase":true', '"lowercase":false'));
    await bucket.putFile("tokenizer.json", tokenizer);

    await expectEnd(run("1/2"), 0);
    expect(await embeddingFaults(out)).toEqual([]);
    expect(await readdir(join(scratch.path, "cache-0-2/infer-batch"))).toContain("tokenizers");
  });

  test("an unfinished run whose model in S3 was replaced ends with 66 if no copy of the planned model is left", async () => {
    await using job = await unfinishedJob();

    await expectEnd(job.run("another"), 66, /its sha256 is [0-9a-f]{64}, planned /);
    await job.bucket.putFile("wine.onnx", join(models, wine.model));
    await expectEnd(job.run("another"), 0);
    expect((await outputRows(job.out)).length).toBe(wine.rows);
  });

  test("an unfinished run whose model in S3 was replaced ends with 66 if the spec names another model, even if the cache has the planned one", async () => {
    await using job = await unfinishedJob();
    await job.bucket.putFile("other.onnx", join(models, "wine-zipmap.onnx"));

    await expectEnd(
      job.run("first", "other.onnx"),
      66,
      /model\.path is "s3:\S+\/other\.onnx", planned "s3:\S+\/wine\.onnx"/,
    );
  });
});
