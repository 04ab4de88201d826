import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { FileBody, ObjectStore } from "#src/stores/objects/store.js";
import { parseObjectUri } from "#src/job/jobfile/uri.js";
import { expect, test } from "vitest";
import { type ObjectsSetup, objectsAt, useStores } from "../../support/clouds.js";
import { type HttpProxy, httpProxy } from "../../support/http-proxy.js";
import { scratchFolder } from "../../support/job.js";
import type { Bucket, StoreServer } from "../../support/s3.js";
import { firstOf } from "../../support/torture.js";

interface World extends AsyncDisposable {
  readonly store: ObjectStore;
  readonly proxy: HttpProxy;
  readonly bucket: Bucket;
  readonly warnings: readonly string[];
  readonly folder: string;
  readonly at: (key: string) => { readonly bucket: string; readonly key: string };
}

async function worldOf(server: StoreServer, setup: ObjectsSetup = {}): Promise<World> {
  const scratch = await scratchFolder();
  const proxy = await httpProxy(server.port);
  const bucket = await server.createBucket();
  const warnings: string[] = [];
  const warn = (message: string): void => void warnings.push(message);
  const store = await objectsAt(server, bucket.uri, { port: proxy.port, retrySeconds: 20, warn, ...setup });
  return {
    store,
    proxy,
    bucket,
    warnings,
    folder: scratch.path,
    at: (key) => ({ bucket: parseObjectUri(bucket.uri).bucket, key }),
    async [Symbol.asyncDispose]() {
      store[Symbol.dispose]();
      await proxy[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

async function largeFile(folder: string, name: string): Promise<FileBody & { readonly bytes: Buffer }> {
  const bytes = Buffer.alloc(16 * 1024 * 1024 + 17, `rows of ${name}. `);
  const path = join(folder, name);
  await writeFile(path, bytes);
  return { path, bytes, sizeBytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}

function once(proxy: HttpProxy, pattern: RegExp, twist: ReturnType<NonNullable<HttpProxy["twist"]>>): void {
  proxy.twist = (request) => {
    if (!pattern.test(request)) {
      return undefined;
    }
    proxy.twist = undefined;
    return twist;
  };
}

for (const { name, describe, server } of useStores()) {
  describe(`objects in ${name}`, () => faultsOf(server));
}

function faultsOf(server: () => StoreServer): void {
  test("names may have any characters; a listing has them in order, page after page", async () => {
    await using world = await worldOf(server());
    const { store, at } = world;
    const odd = ["a b/ü&'(x)%2F.txt", "a+b=c,d;e@f:g$h!~"];
    const many = Array.from({ length: 1100 }, (_, n) => `n/${n + 1000}`);
    await Promise.all(odd.map((key) => store.put(at(key), key)));
    for (let start = 0; start < many.length; start += 50) {
      await Promise.all(many.slice(start, start + 50).map((key) => world.bucket.put(key, key)));
    }
    const names = [...odd, ...many];
    const keys: string[] = [];
    for await (const { key, etag, sizeBytes } of store.list(at("").bucket, "")) {
      expect([etag === "", sizeBytes]).toEqual([false, Buffer.byteLength(key)]);
      keys.push(key);
    }
    expect(keys).toEqual(names.toSorted((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other))));
    for (const key of odd) {
      expect((await store.readText(at(key)))?.text).toBe(key);
      await store.remove(at(key));
      expect(await store.head(at(key))).toBeUndefined();
    }
  }, 60_000);

  test("a large file is there whole or not at all, and of several writers one creates it", async () => {
    await using world = await worldOf(server());
    const { store, at, folder } = world;
    const files = await Promise.all(["a", "b"].map((name) => largeFile(folder, name)));
    const created = await Promise.all(
      files.map((body) => store.create(at("part"), { body, metadata: { digest: body.sha256 }, conditional: true })),
    );
    const winner = files[created.findIndex((id) => id !== undefined)];
    expect(created.filter((id) => id !== undefined)).toHaveLength(1);
    expect(Buffer.from(await world.bucket.get("part")).equals(winner?.bytes ?? Buffer.alloc(0))).toBe(true);
    expect(await store.head(at("part"))).toMatchObject({
      sizeBytes: winner?.sizeBytes,
      metadata: { digest: winner?.sha256 },
    });
  }, 60_000);

  test.each(
    firstOf(
      [
        ["lost", { kind: "lose" }],
        ["503", { kind: "answer", status: 503, body: "" }],
        ["429", { kind: "answer", status: 429, body: "" }],
      ] as const,
      2,
    ),
  )(
    "a large file whose second piece is %s is sent again, and created once",
    async (_what, twist) => {
      await using world = await worldOf(server());
      const { store, at, folder, proxy } = world;
      const body = await largeFile(folder, "a");
      let pieces = 0;
      proxy.twist = (request) => {
        pieces += /^PUT .*(?:part|upload_id)/.test(request) ? 1 : 0;
        const isSecond = pieces === (request.includes("blockid") || request.includes("upload_id") ? 2 : 1);
        proxy.twist = isSecond ? undefined : proxy.twist;
        return isSecond ? twist : undefined;
      };
      expect(await store.create(at("part"), { body, conditional: true })).toEqual(expect.any(String));
      expect(proxy.twist).toBeUndefined();
      expect(Buffer.from(await world.bucket.get("part")).equals(body.bytes)).toBe(true);
    },
    60_000,
  );

  test("a file that was changed since it was written is not created: 75, and says which object", async () => {
    await using world = await worldOf(server(), { retrySeconds: 1 });
    const { store, at, folder } = world;
    const body = await largeFile(folder, "a");
    await writeFile(body.path, Buffer.alloc(body.sizeBytes, "other rows. "));
    const changed = store.create(at("part"), { body, conditional: true });
    await expect(changed).rejects.toMatchObject({ exitCode: 75, message: expect.stringContaining("/part: ") });
    expect(await store.head(at("part"))).toBeUndefined();
  }, 60_000);

  test("an answer that is none of a store does not count as an upload", async () => {
    await using world = await worldOf(server());
    const { store, at, proxy } = world;
    once(proxy, /^(?:PUT|POST) /, { kind: "answer", status: 200, body: "<html>" });
    expect(await store.create(at("part"), { body: "rows", conditional: true })).toEqual(expect.any(String));
    expect((await store.readText(at("part")))?.text).toBe("rows");
  });

  test("a range whose body breaks off is read on where it ended", async () => {
    await using world = await worldOf(server());
    const { store, at, proxy } = world;
    const text = Array.from({ length: 20_000 }, (_, row) => `row ${row}\n`).join("");
    await store.put(at("shard"), text);
    const { etag = "" } = (await store.head(at("shard"))) ?? {};
    once(proxy, /^GET /, { kind: "shorten", bytes: 1000 });
    const bytes = Buffer.alloc(text.length);
    await store.read("reading", { object: at("shard"), etag, start: 0, end: text.length }, (chunk, offset) => {
      bytes.set(chunk, offset);
    });
    expect(bytes.toString()).toBe(text);
    expect(proxy.requests.filter((request) => request.startsWith("GET ")).length).toBeGreaterThan(1);
  });

  test("without conditions, what is there is not overwritten either, also by what was created before the answer was lost", async () => {
    await using world = await worldOf(server());
    const { store, at, proxy } = world;
    once(proxy, /^(?:PUT|POST) /, { kind: "lose" });
    expect(await store.create(at("part"), { body: "first", conditional: false })).toEqual(expect.any(String));
    expect(await store.create(at("part"), { body: "second", conditional: false })).toBeUndefined();
    expect((await store.readText(at("part")))?.text).toBe("first");
  });

  test("a version that was replaced is neither read nor replaced nor removed", async () => {
    await using world = await worldOf(server());
    const { store, at } = world;
    await store.put(at("text"), "planned");
    const { etag = "" } = (await store.head(at("text"))) ?? {};
    await store.put(at("text"), "another");
    const read = store.read("reading it", { object: at("text"), etag, start: 0, end: 4 }, () => undefined);
    await expect(read).rejects.toMatchObject({ code: "INPUT_CHANGED", exitCode: 66 });
    expect(await store.put(at("text"), "mine", etag)).toBe("changed");
    expect(await store.remove(at("text"), etag)).toBe("changed");
    expect((await store.readText(at("text")))?.text).toBe("another");
  });

  test("a copy has the bytes and the metadata; of what is not there, there is none", async () => {
    await using world = await worldOf(server());
    const { store, at } = world;
    await store.create(at("from a/b"), { body: "rows", metadata: { digest: "12" }, conditional: true });
    expect(await store.copy(at("from a/b"), at("to/c d"))).toBe(true);
    expect(await store.copy(at("nothing"), at("to/e"))).toBe(false);
    expect((await store.head(at("to/c d")))?.metadata["digest"]).toBe("12");
    expect((await store.readText(at("to/c d")))?.text).toBe("rows");
  });

  test("a store that stays away is 75 after its retries; one that refuses is 64 at once, and no secret is told", async () => {
    await using world = await worldOf(server(), { retrySeconds: 1 });
    const { store, at, proxy, warnings } = world;
    proxy.twist = () => ({ kind: "answer", status: 503, body: "" });
    await expect(store.put(at("text"), "x")).rejects.toMatchObject({ code: "OBJECT_STORE", exitCode: 75 });
    expect(warnings).toHaveLength(1);
    proxy.twist = () => ({ kind: "answer", status: 403, body: "" });
    const refused: unknown = await store.put(at("text"), "x").catch((error: unknown) => error);
    expect(refused).toMatchObject({
      code: "PERMISSION",
      exitCode: 64,
      hint: expect.stringContaining("these credentials need"),
    });
    expect(String(refused)).toContain(`writing ${world.bucket.uri}/text: access denied: the store says 403`);
  });

  test("a bucket that is not there is 64, and says so", async () => {
    await using world = await worldOf(server());
    const { store, at } = world;
    const absent = { bucket: `${at("").bucket}-absent`, key: "x" };
    await expect(store.put(absent, "x")).rejects.toMatchObject({ code: "FILE_MISSING", exitCode: 64 });
    const listing = async (): Promise<void> => {
      for await (const _ of store.list(absent.bucket, "")) {
        throw new Error("there is nothing");
      }
    };
    await expect(listing()).rejects.toMatchObject({ code: "FILE_MISSING", message: expect.stringContaining("absent") });
  });
}
