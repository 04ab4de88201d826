import { mkdir, readdir, readFile, rm, truncate, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openModelFile } from "#src/models/places/model-file.js";
import type { ModelFile } from "#src/models/places/place.js";
import { openModelCache } from "#src/models/places/cache.js";
import { objectModels } from "#src/models/places/objects.js";
import { identity, lookup, refusalOf } from "../../support/faulty.js";
import { type HttpProxy, httpProxy } from "../../support/http-proxy.js";
import { scratchFolder } from "../../support/job.js";
import { mayMount, smallDisk } from "../../support/mounts.js";
import { writeModel } from "../../support/onnx.js";
import { type Bucket, useS3 } from "../../support/s3.js";
import { storeAt } from "../../support/s3-source.js";

const s3 = useS3();

interface World extends AsyncDisposable {
  readonly bucket: Bucket;
  readonly proxy: HttpProxy;
  readonly cache: string;
  readonly scratch: string;
  /** GETs of objects since the last call. */
  fetched(): string[];
  open(pinned?: string, writer?: string): Promise<ModelFile>;
}

const isDead = (writer: string): boolean => writer.startsWith("dead");

async function modelInS3(location?: string): Promise<World> {
  const scratch = await scratchFolder();
  const bucket = await s3.server().createBucket();
  const proxy = await httpProxy(s3.server().port);
  const local = join(scratch.path, "net.onnx");
  await writeModel(local, {
    ...identity,
    ...(location === undefined
      ? {}
      : {
          nodes: [{ op: "Add", from: ["x", "bias"], to: "score" }],
          constants: [{ name: "bias", length: 1, location }],
        }),
  });
  await bucket.putFile("models/net.onnx", local);
  const cache = join(scratch.path, "cache");
  let seen = 0;
  return {
    bucket,
    proxy,
    cache,
    scratch: scratch.path,
    fetched() {
      const since = proxy.requests.slice(seen).filter((request) => request.startsWith("GET"));
      seen = proxy.requests.length;
      return since.map((request) => request.replace(/^GET \/[^/]+\/([^?]+).*/, "$1"));
    },
    async open(pinned, writer = "dead.as.an.earlier.container") {
      const store = storeAt({ port: proxy.port });
      using models = objectModels({
        store,
        endpoint: "test",
        cache: openModelCache({ folder: cache, writer, isDead }),
      });
      return (
        await models.resolve(
          `s3://${bucket.name}/models/net.onnx`,
          pinned === undefined ? undefined : { sha256: pinned },
        )
      ).file;
    },
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

s3.describe("a model in S3", () => {
  test("a model in S3 is fetched once, and has the digest that it would have on a disk", async () => {
    await using world = await modelInS3("weights/bias.bin");
    await world.bucket.put("models/weights/bias.bin", "1234");
    await mkdir(join(world.scratch, "weights"));
    await writeFile(join(world.scratch, "weights/bias.bin"), "1234");
    const local = await openModelFile(join(world.scratch, "net.onnx"));

    const first = await world.open();
    expect(world.fetched()).toEqual(["models/net.onnx", "models/weights/bias.bin"]);
    const second = await world.open(undefined, "test.2");
    expect(world.fetched()).toEqual([]);
    const pinned = await world.open(first.sha256);

    expect(first).toMatchObject({ sha256: local.sha256, sizeBytes: local.sizeBytes });
    expect(first.name).toBe(`s3://${world.bucket.name}/models/net.onnx`);
    expect([second.path, pinned.path]).toEqual([first.path, first.path]);
    expect(await readdir(join(world.cache, "tmp"))).toEqual([]);
  });

  test("a model in S3 is not requested if the spec pins a digest that is in the cache", async () => {
    await using world = await modelInS3();
    const { sha256 } = await world.open();
    const before = world.proxy.requests.length;

    await world.open(sha256);

    expect(world.proxy.requests.length).toBe(before);
  });

  test.each(["models/net.onnx", "models/bias.bin"])(
    "a model in S3 is fetched again when %s was replaced",
    async (key) => {
      await using world = await modelInS3("bias.bin");
      await world.bucket.put("models/bias.bin", "1234");
      const first = await world.open();
      if (key === "models/bias.bin") {
        await world.bucket.put(key, "4321");
      } else {
        await writeModel(join(world.scratch, "other.onnx"), identity);
        await world.bucket.putFile(key, join(world.scratch, "other.onnx"));
      }

      const second = await world.open();

      expect(second.sha256).not.toBe(first.sha256);
      await first.check();
    },
  );

  test.each([
    { how: "cut short", harm: (path: string) => truncate(path, 10) },
    { how: "gone", harm: (path: string) => rm(path) },
    { how: "another one", harm: (path: string) => writeModel(path, lookup()) },
  ])("a model in S3 is fetched again when the cache's is $how", async ({ harm }) => {
    await using world = await modelInS3();
    const first = await world.open();
    const bytes = await readFile(first.path);
    await harm(first.path);
    world.fetched();

    const second = await world.open();

    expect(second.sha256).toBe(first.sha256);
    expect((await readFile(second.path)).equals(bytes)).toBe(true);
  });

  test("a model in S3 is complete in the cache when several processes fetch it at once", async () => {
    await using world = await modelInS3("bias.bin");
    await world.bucket.put("models/bias.bin", "1234");

    const models = await Promise.all(["a", "b", "c", "d"].map((writer) => world.open(undefined, writer)));

    expect(new Set(models.map(({ sha256 }) => sha256)).size).toBe(1);
    await Promise.all(models.map(({ path }) => openModelFile(path)));
    expect(await readdir(join(world.cache, "tmp"))).toEqual([]);
  });

  test("a model in S3 is removed from the cache after long disuse, and so are leftovers of dead processes", async () => {
    await using world = await modelInS3();
    for (const name of ["tmp/dead.1", "tmp/alive.1", "a".repeat(64), "b".repeat(64)]) {
      await mkdir(join(world.cache, name), { recursive: true });
    }
    const long = new Date(Date.now() - 31 * 24 * 3600 * 1000);
    await utimes(join(world.cache, "a".repeat(64)), long, long);

    const { sha256 } = await world.open();

    const names = (await readdir(world.cache)).toSorted();
    expect(names).toEqual([sha256, "b".repeat(64), "by-object", "tmp"].toSorted());
    expect(await readdir(join(world.cache, "tmp"))).toEqual(["alive.1"]);
  });

  test.each(["../bias.bin", "/etc/passwd", "a/../../bias.bin", "infer-batch.model.onnx", "."])(
    "a model in S3 must not have its external data at %s",
    async (location) => {
      await using world = await modelInS3(location);

      const said = await refusalOf(world.open());

      expect(said).toContain("64 MODEL_INVALID\nloading model s3://");
      expect(world.fetched()).toEqual(["models/net.onnx"]);
      expect(await readdir(join(world.cache, "tmp"))).toEqual([]);
    },
  );

  test("a missing model in S3, or missing external data, is reported by name", async () => {
    await using world = await modelInS3("bias.bin");
    const named = async (): Promise<string> =>
      (await refusalOf(world.open())).replaceAll(world.bucket.name, "<bucket>");
    expect(await named()).toMatchInlineSnapshot(`
      "64 FILE_MISSING
      loading model s3://<bucket>/models/net.onnx: there is no object s3://<bucket>/models/bias.bin
      hint: set model.path to one object; external data is at the same place, under the names that the model uses"
    `);
    await world.bucket.remove("models/net.onnx");
    expect(await named()).toMatchInlineSnapshot(`
      "64 FILE_MISSING
      loading model s3://<bucket>/models/net.onnx: there is no object s3://<bucket>/models/net.onnx
      hint: set model.path to one object; external data is at the same place, under the names that the model uses"
    `);
    await world.bucket.put("models/net.onnx", "PK\x03\x04 no model");
    expect(await named()).toMatchInlineSnapshot(`
      "64 MODEL_INVALID
      loading model s3://<bucket>/models/net.onnx: it is not an ONNX file
      hint: is this the right file, and was it copied whole?"
    `);
  });

  test("a model in S3 that is replaced during the download is never a mix of two versions", async () => {
    await using world = await modelInS3();
    world.proxy.twist = (request) => {
      return request.startsWith("GET")
        ? { kind: "hold", until: world.bucket.put("models/net.onnx", "another one") }
        : undefined;
    };

    expect(await refusalOf(world.open())).toContain("66 MODEL_CHANGED");
  });

  test.skipIf(!mayMount)("a cache that was filled before it became read-only is used: nothing is fetched", async () => {
    await using world = await modelInS3();
    await using disk = await smallDisk(world.cache, "size=1m");
    const first = await world.open();
    world.fetched();

    disk.remount("ro");
    const pinned = await world.open(first.sha256, "test.2");
    const known = await world.open(undefined, "test.2");

    expect(world.fetched()).toEqual([]);
    expect([pinned.path, known.path]).toEqual([first.path, first.path]);
  });
});
