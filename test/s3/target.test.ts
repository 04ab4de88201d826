import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { creationIdOf, type ObjectStore } from "#src/stores/objects/store.js";
import { openStoreOfObjects } from "#src/stores/objects.js";
import type { Store } from "#src/stores/store.js";
import { openSpool } from "#src/base/spool.js";
import { httpProxy, s3Error, type Twist } from "../support/http-proxy.js";
import { scratchFolder } from "../support/job.js";
import { s3Target } from "../support/s3-target.js";
import { useS3 } from "../support/s3.js";
import { until } from "../support/waiting.js";

const s3 = useS3();

/** Larger than the largest file that is sent as a buffer. */
const largeBytes = 6 * 1024 * 1024;

s3.describe("creating an object from a large file", () => {
  test.each([
    ["the response is lost", { kind: "lose" } as const],
    ["the body is damaged on the way", { kind: "damage" } as const],
    ["nothing fails", undefined],
  ])("a large file is sent as a stream and stored once, whole, when %s", async (_what, twist) => {
    await using scratch = await scratchFolder();
    await using proxy = await httpProxy(s3.server().port);
    const bucket = await s3.server().createBucket();
    using store = s3Target({ port: proxy.port, retrySeconds: 10 });
    const bytes = randomBytes(largeBytes);
    const path = join(scratch.path, "file");
    await writeFile(path, bytes);
    let first: Twist | undefined = twist;
    proxy.twist = (request) => {
      const now = request.startsWith("PUT") ? first : undefined;
      first = request.startsWith("PUT") ? undefined : first;
      return now;
    };
    const object = { bucket: bucket.name, key: "a b/ä+c" };
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const body = { path, sizeBytes: bytes.length, sha256 };
    const creation = await store.create(object, { body, conditional: true });
    const stored = await store.head(object);
    expect(creation).toMatch(/./);
    expect(stored === undefined ? undefined : creationIdOf(stored)).toBe(creation);
    expect(Buffer.compare(await bucket.get(object.key), bytes)).toBe(0);
    expect(await store.create(object, { body, conditional: true })).toBeUndefined();
    expect(process.getActiveResourcesInfo().filter((name) => name.startsWith("FS"))).toEqual([]);
  });
});

test.each([
  { what: "large", sizeBytes: largeBytes },
  { what: "small", sizeBytes: 1 },
])("a $what file that is gone ends the run with that error (75), and its request at once", async ({ sizeBytes }) => {
  await using scratch = await scratchFolder();
  const puts: IncomingMessage[] = [];
  await using server = createServer(({ method }, answer) => answer.writeHead(method === "HEAD" ? 404 : 500).end());
  server.on("checkContinue", (put: IncomingMessage) => void puts.push(put)).listen(0, "127.0.0.1");
  await once(server, "listening");
  using store = s3Target({ port: (server.address() as AddressInfo).port, retrySeconds: 60 });
  const body = { path: join(scratch.path, "gone"), sizeBytes, sha256: "0".repeat(64) };

  const creation = store.create({ bucket: "b", key: "a" }, { body, conditional: true });

  await expect(creation).rejects.toMatchObject({
    code: "DISK",
    message: expect.stringMatching(/^writing s3:.*\/a: reading the file to send: ENOENT.*gone/) as string,
  });
  await sleep(100); // a request that goes on has come by then
  await until(() => puts.every(({ socket }) => socket.destroyed));
});

s3.describe("an S3 target", () => {
  test("an S3 target overwrites and removes only the version with the given ETag, and copies objects", async () => {
    const bucket = await s3.server().createBucket();
    using store = s3Target({ port: s3.server().port });
    const one = { bucket: bucket.name, key: "x/ä one?" };
    const other = { bucket: bucket.name, key: "y/other" };
    await store.create(one, { body: "first", metadata: { run: "r" }, conditional: true });
    const { etag = "" } = (await store.head(one)) ?? {};
    expect(await store.put(one, "second", etag)).toBe("written");
    expect(await store.put(one, "third", etag)).toBe("changed");
    expect(await store.put(other, "third", etag)).toBe("changed");
    expect(await store.remove(one, etag)).toBe("changed");
    expect((await store.readText(one))?.text).toBe("second");
    expect(await store.copy(one, other)).toBe(true);
    expect((await store.readText(other))?.text).toBe("second");
    expect(await store.remove(one)).toBe("removed");
    expect(await store.remove(one)).toBe("removed");
    expect(await store.copy(one, other)).toBe(false);
    expect([await store.readText(one), await store.head(one)]).toEqual([undefined, undefined]);
  });

  test("an S3 target omits If-Match for a store that does not implement it", async () => {
    await using proxy = await httpProxy(s3.server().port);
    const bucket = await s3.server().createBucket();
    using store = s3Target({ port: proxy.port });
    const object = { bucket: bucket.name, key: "x" };
    await store.create(object, { body: "first", conditional: true });
    proxy.twist = (_request, headers) =>
      headers["if-match"] === undefined ? undefined : s3Error(501, "NotImplemented");
    expect(await store.put(object, "second", '"any"')).toBe("written");
    expect((await store.readText(object))?.text).toBe("second");
    expect(await store.remove(object, '"any"')).toBe("removed");
    expect(await store.head(object)).toBeUndefined();
  });

  test.each([
    { what: "a page of a proxy", body: "<html>" },
    { what: "half an answer", body: '<?xml version="1.0"?><ListBucketResult><Name>x</Na' },
  ])("an S3 target takes $what for no answer of a store, and asks again", async ({ body }) => {
    await using proxy = await httpProxy(s3.server().port);
    const bucket = await s3.server().createBucket();
    using store = s3Target({ port: proxy.port, retrySeconds: 10 });
    const object = { bucket: bucket.name, key: "x" };
    const twistFirst = (pattern: RegExp): void => {
      proxy.twist = (request) => {
        const isFirst = pattern.test(request);
        proxy.twist = isFirst ? undefined : proxy.twist;
        return isFirst ? { kind: "answer", status: 200, body } : undefined;
      };
    };
    twistFirst(/^PUT/);
    expect(await store.create(object, { body: "text", conditional: true })).toMatch(/./);
    expect((await store.readText(object))?.text).toBe("text");
    twistFirst(/^PUT/);
    expect(await store.copy(object, { ...object, key: "y" })).toBe(true);
    twistFirst(/^GET/);
    const listed: string[] = [];
    for await (const { key } of store.list(bucket.name, "")) {
      listed.push(key);
    }
    expect(listed).toEqual(["x", "y"]);
  });

  test("an S3 target lists a folder without its marker object", async () => {
    const bucket = await s3.server().createBucket();
    using store = s3Target({ port: s3.server().port });
    for (const key of ["f/", "f/sub/deep/x", "f/sub/y", "f/b", "fx"]) {
      await bucket.put(key, "");
    }
    const root = `s3://${bucket.name}`;
    const opened = storeOver(store);
    const folder = (name: string): object => ({ name, sizeBytes: undefined });
    expect(await opened.list(`${root}/f`)).toEqual([{ name: "b", sizeBytes: 0 }, folder("sub")]);
    expect(await opened.list(root)).toEqual([{ name: "fx", sizeBytes: 0 }, folder("f")]);
  });

  test("an S3 target lists a folder of several pages", async () => {
    await using proxy = await httpProxy(s3.server().port);
    using store = s3Target({ port: proxy.port });
    proxy.twist = (request) => ({
      kind: "answer",
      status: 200,
      body: request.includes("continuation-token=more")
        ? page(["f/c"], ["f/d/"], false)
        : page(["f/a", "f/b"], [], true),
    });
    const entries = await storeOver(store).list("s3://any/f");
    expect(entries.map(({ name }) => name)).toEqual(["a", "b", "c", "d"]);
  });
});

function storeOver(objects: ObjectStore): Store {
  const spool = openSpool({ root: "unused", writer: "w", use: "out", isDead: () => false, maxBytes: 1 });
  return openStoreOfObjects({ objects, spool, writer: "w", isDead: () => false });
}

function page(keys: readonly string[], prefixes: readonly string[], more: boolean): string {
  const contents = keys.map((key) => `<Contents><Key>${key}</Key><ETag>"e"</ETag><Size>1</Size></Contents>`);
  const folders = prefixes.map((prefix) => `<CommonPrefixes><Prefix>${prefix}</Prefix></CommonPrefixes>`);
  const token = more ? "<NextContinuationToken>more</NextContinuationToken>" : "";
  return `<ListBucketResult><IsTruncated>${more}</IsTruncated>${[...contents, ...folders].join("")}${token}</ListBucketResult>`;
}
