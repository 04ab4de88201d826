import { expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import type { Listing, Source } from "#src/sources/source.js";
import { httpProxy, type HttpProxy, s3Error, type Twist } from "../../support/http-proxy.js";
import { scratchFolder } from "../../support/job.js";
import { type Bucket, useS3 } from "../../support/s3.js";
import { sourceAt } from "../../support/s3-source.js";

const s3 = useS3();

interface World extends AsyncDisposable {
  readonly bucket: Bucket;
  readonly proxy: HttpProxy;
  readonly source: Source;
  list(...patterns: readonly string[]): Promise<Listing>;
}

async function bucketWith(keys: readonly string[]): Promise<Bucket> {
  const bucket = await s3.server().createBucket();
  const left = [...keys];
  const putAll = async (): Promise<void> => {
    for (let key = left.pop(); key !== undefined; key = left.pop()) {
      await bucket.put(key, key.endsWith("/") ? "" : "x");
    }
  };
  await Promise.all(Array.from({ length: 16 }, putAll));
  return bucket;
}

async function worldWith(content: readonly string[] | Promise<Bucket>, { retrySeconds = 0 } = {}): Promise<World> {
  const scratch = await scratchFolder();
  const proxy = await httpProxy(s3.server().port);
  const bucket = await (content instanceof Promise ? content : bucketWith(content));
  const source = sourceAt({ port: proxy.port, spool: scratch.path, retrySeconds });
  return {
    bucket,
    proxy,
    source,
    list: (...patterns) => source.list(patterns.map((pattern) => `s3://${bucket.name}/${pattern}`)),
    async [Symbol.asyncDispose]() {
      await source[Symbol.asyncDispose]();
      await proxy[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

const keysOf = ({ shards }: Listing): string[] => shards.map(({ uri }) => uri.split("/").slice(3).join("/"));

async function refusal(work: () => Promise<unknown>): Promise<JobError> {
  const error: unknown = await work().catch((refused: unknown) => refused);
  if (!(error instanceof JobError)) {
    throw new Error("nothing was refused", { cause: error });
  }
  return error;
}

/** One key more than a page holds. */
const many = Array.from({ length: 1001 }, (_, index) => `in/${String(index).padStart(4, "0")}.parquet`);
let bucketOfMany: Promise<Bucket> | undefined;

function answer(body: string): Twist {
  return { kind: "belie", status: 200, body };
}

const page = (rest: string): Twist =>
  answer(
    `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>b</Name><Prefix>in/</Prefix>${rest}</ListBucketResult>`,
  );
const object = "<Contents><Key>in/0000.parquet</Key><ETag>&quot;a&quot;</ETag><Size>1</Size></Contents>";

s3.describe("an incomplete listing in S3", () => {
  const faults: readonly { readonly what: string; readonly twist: Twist; readonly says: RegExp }[] = [
    { what: "the store fails", twist: s3Error(500, "InternalError"), says: /InternalError/ },
    { what: "the store asks to slow down", twist: s3Error(503, "SlowDown"), says: /SlowDown/ },
    { what: "the response is lost", twist: { kind: "lose" }, says: /connection was lost|socket hang up/ },
    { what: "the body is empty", twist: answer(""), says: /is not a listing/ },
    {
      what: "the body is a proxy's HTML page",
      twist: answer("<html><body>Please log in</body></html>"),
      says: /is not a listing/,
    },
    {
      what: "a truncated page has no continuation token",
      twist: page(`<IsTruncated>true</IsTruncated>${object}`),
      says: /does not say where it continues/,
    },
    {
      what: "an object has no ETag",
      twist: page(`<IsTruncated>false</IsTruncated><Contents><Key>in/0000.parquet</Key><Size>1</Size></Contents>`),
      says: /without its key, ETag or size/,
    },
    {
      what: "an object has no size",
      twist: page(`<IsTruncated>false</IsTruncated><Contents><Key>in/0</Key><ETag>&quot;a&quot;</ETag></Contents>`),
      says: /without its key, ETag or size/,
    },
  ];

  test.each(faults)("an S3 listing requests a page again when $what", async ({ twist, says }) => {
    bucketOfMany ??= bucketWith(many);
    await using world = await worldWith(bucketOfMany, { retrySeconds: 20 });
    let struck = 0;
    world.proxy.twist = (request) => {
      if (!request.includes("continuation-token") || struck > 0) {
        return undefined;
      }
      struck += 1;
      return twist;
    };

    expect(keysOf(await world.list("in/*.parquet"))).toEqual(many);

    expect(struck).toBe(1);
    world.proxy.twist = (request) => (request.includes("continuation-token") ? twist : undefined);
    await using hurried = sourceAt({ port: world.proxy.port });
    const refused = await refusal(() => hurried.list([`s3://${world.bucket.name}/in/*.parquet`]));
    expect(refused).toMatchObject({ code: "OBJECT_STORE", exitCode: 75 });
    expect(refused.message).toMatch(/^listing s3:\/\/bucket-\d+\/in\//);
    expect(refused.message).toMatch(says);
  });

  test.each([
    ["in//*.parquet", ["in//a.parquet", "in//b.parquet"]],
    ["/in/*.parquet", ["/in/a.parquet"]],
    ["in/*//c.parquet", ["in/x//c.parquet"]],
    ["in/**/*.parquet", ["in//a.parquet", "in//b.parquet", "in/a.parquet", "in/x//c.parquet"]],
  ])("an S3 listing finds objects whose keys have empty names between slashes: %s", async (pattern, keys) => {
    await using world = await worldWith([]);
    const all = ["/in/a.parquet", "in//a.parquet", "in//b.parquet", "in/a.parquet", "in/x//c.parquet"];
    const contents = all.map((key) => object.replace("in/0000.parquet", key)).join("");
    world.proxy.twist = () => page(`<IsTruncated>false</IsTruncated>${contents}`); // the server of the tests has files, and no such keys
    expect(keysOf(await world.list(pattern))).toEqual(keys);
  });

  test("an S3 listing rejects a page that names the same continuation token again", async () => {
    await using world = await worldWith(["in/a.parquet"]);
    world.proxy.twist = () =>
      page(`<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>${object}`);

    const refused = await refusal(() => world.list("in/*.parquet"));

    expect(refused.message).toMatch(/does not say where it continues/);
    expect(world.proxy.requests).toHaveLength(2);
  });

  test("listing one S3 key fails when the response to HEAD has no ETag", async () => {
    await using world = await worldWith(["in/a.parquet"]);
    world.proxy.twist = () => ({ kind: "answer", status: 200, body: "" });

    expect((await refusal(() => world.list("in/a.parquet"))).message).toMatch(
      /the response to HEAD has no ETag or no size/,
    );
  });
});

s3.describe("objects of a bucket", () => {
  test("an S3 listing leaves out the marker objects of folders", async () => {
    await using world = await worldWith(["in/", "in/dt=1/", "in/dt=1/a.parquet", "in/b.parquet"]);

    const found = await world.list("in/*.parquet", "in/**", "in/dt=1/*");

    expect(keysOf(found)).toEqual(["in/b.parquet", "in/dt=1/a.parquet"]);
    expect(found.unreadable).toEqual([]);
  });

  test.each([
    { pattern: "in/*.parquet", tells: ["in/x.parquet"] },
    { pattern: "in/*", tells: ["in/sub", "in/x.parquet"] },
    { pattern: "{in,on}/x*", tells: ["in/x.parquet"] },
    { pattern: "in/**/x.*", tells: ["in/x.parquet"] },
    { pattern: "in/**/*.parquet", tells: [] },
    { pattern: "in/**", tells: [] },
    { pattern: "in/*/*.parquet", tells: [] },
  ])(
    "an S3 listing reports folders that $pattern matches without matching files in them",
    async ({ pattern, tells }) => {
      const odd = ["in/_temporary/a", "in/.git/a"];
      await using world = await worldWith(["in/a.parquet", "in/x.parquet/part-0.parquet", "in/sub/b.csv", ...odd]);

      const { unreadable } = await world.list(pattern);

      const paths = tells.map((key) => `s3://${world.bucket.name}/${key}`);
      expect(unreadable.map(({ path }) => path).toSorted()).toEqual(paths);
      expect(
        unreadable.every(({ path, hint }) => hint.startsWith(`for its files add ${path}/*.parquet to input.path;`)),
      ).toBe(true);
      const both = await world.list(pattern, "in/x.parquet/*.parquet", "in/sub/*");
      expect(both.unreadable).toEqual([]);
    },
  );

  test("an S3 listing reports an object with bytes whose key ends in a slash", async () => {
    await using world = await worldWith(["in/a.parquet"]);
    const slashed = object.replace("in/0000.parquet", "in/b.parquet/");
    world.proxy.twist = () => page(`<IsTruncated>false</IsTruncated>${object}${slashed}`);

    const [told] = (await world.list("in/*.parquet")).unreadable;

    expect(told?.path).toBe(`s3://${world.bucket.name}/in/b.parquet/`);
    expect(told?.finding).toBe("which has bytes under the name of a folder");
  });

  test("an S3 listing matches names with a newline as a disk listing does", async () => {
    await using world = await worldWith(["in/a\nb/c\nd.parquet"]);

    for (const pattern of ["in/**", "in/**/*.parquet", "in/*/*"]) {
      expect(keysOf(await world.list(pattern))).toEqual(["in/a\nb/c\nd.parquet"]);
    }
  });
});

s3.describe("lakehouse tables in S3", () => {
  const days = Array.from({ length: 30 }, (_, day) => `lake/t/dt=${day}/a.parquet`);

  test.each([
    { pattern: "lake/t/**", roots: ["lake", ""] },
    { pattern: "lake/t/dt=*/*", roots: ["lake/t", "lake", ""] },
    { pattern: "lake/t/dt=1/*", roots: ["lake/t", "lake", ""] },
    { pattern: "lake/t/dt=1/a*", roots: ["lake/t/dt=1", "lake/t", "lake", ""] },
    { pattern: "*/**", roots: [] },
    { pattern: "lake/t/none*", roots: [] },
    { pattern: "lake/t/dt=1/a.parquet", roots: [] },
  ])(
    "an S3 listing of $pattern reports the folders above it as possible table roots, with one request",
    async ({ pattern, roots }) => {
      await using world = await worldWith(days);
      const before = world.proxy.requests.length;

      const { tableRoots } = await world.list(pattern);

      const uris = roots.map((key) => `s3://${world.bucket.name}${key === "" ? "" : `/${key}`}`);
      expect(tableRoots.map(({ folder }) => folder)).toEqual(uris);
      expect(world.proxy.requests.length - before).toBe(1);
    },
  );

  test.each(["lake/t/**", "lake/t/*", "lake/t/x/*"])(
    "an S3 listing recognizes lakehouse tables by their listed logs (%s)",
    async (pattern) => {
      const logs = ["lake/t/_delta_log/0.json", "lake/t/x/metadata/v1.metadata.json", "lake/t/none/.hoodie/0.commit"];
      await using world = await worldWith(["lake/t/a.parquet", "lake/t/x/b.parquet", ...logs]);

      const { tableRoots } = await world.list(pattern);

      const folders = tableRoots.map(({ folder }) => folder.split("/").slice(3).join("/"));
      expect(folders).toEqual(
        {
          "lake/t/**": ["lake/t", "lake/t/x", "lake", ""],
          "lake/t/*": ["lake/t", "lake", ""],
          "lake/t/x/*": ["lake/t/x", "lake/t", "lake", ""],
        }[pattern],
      );
    },
  );

  test("listNames lists a folder in S3 with one request, and returns none when listing is denied", async () => {
    await using world = await worldWith((bucketOfMany ??= bucketWith(many)));
    const folder = `s3://${world.bucket.name}/in`;

    expect(await world.source.listNames(folder)).toHaveLength(1000);
    expect(world.proxy.requests).toHaveLength(1);
    expect(await world.source.listNames(`${folder}/_delta_log`)).toEqual([]);
    world.proxy.twist = () => s3Error(403, "AccessDenied");
    expect(await world.source.listNames(folder)).toEqual([]);
    world.proxy.twist = () => s3Error(500, "InternalError");
    expect(await refusal(() => world.source.listNames(folder))).toMatchObject({ exitCode: 75 });
  });
});
