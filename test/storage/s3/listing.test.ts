import { expect, test } from "vitest";
import { JobError } from "#src/util/errors.js";
import type { Listing, Source } from "#src/storage/port.js";
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

/** A bucket behind a proxy: one with objects under these keys, or one that is there. */
async function worldWith(content: readonly string[] | Promise<Bucket>, { retrySeconds = 0 } = {}): Promise<World> {
  const scratch = await scratchFolder();
  const proxy = await httpProxy(s3.server().port);
  const bucket = await (content instanceof Promise ? content : bucketWith(content));
  const source = sourceAt({ port: proxy.port, spool: scratch.path, retrySeconds, thread: true });
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

/** One more than a page has. */
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

s3.describe("a listing that is not whole is asked for again, and never taken for a shorter one:", () => {
  const faults: readonly { readonly what: string; readonly twist: Twist; readonly says: RegExp }[] = [
    { what: "the store fails", twist: s3Error(500, "InternalError"), says: /InternalError/ },
    { what: "it asks to slow down", twist: s3Error(503, "SlowDown"), says: /SlowDown/ },
    { what: "the answer is lost", twist: { kind: "lose" }, says: /connection was lost|socket hang up/ },
    { what: "its body is empty", twist: answer(""), says: /is no listing/ },
    {
      what: "it is a page of a proxy",
      twist: answer("<html><body>Please log in</body></html>"),
      says: /is no listing/,
    },
    {
      what: "it goes on, and does not say from where",
      twist: page(`<IsTruncated>true</IsTruncated>${object}`),
      says: /goes on, and not from where/,
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

  test.each(faults)("$what, in the middle", async ({ twist, says }) => {
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

  test("it goes on from where it went on before", async () => {
    await using world = await worldWith(["in/a.parquet"]);
    world.proxy.twist = () =>
      page(`<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>${object}`);

    const refused = await refusal(() => world.list("in/*.parquet"));

    expect(refused.message).toMatch(/goes on, and not from where/);
    expect(world.proxy.requests).toHaveLength(2);
  });

  test("an object that is asked for by its name has no ETag", async () => {
    await using world = await worldWith(["in/a.parquet"]);
    world.proxy.twist = () => ({ kind: "answer", status: 200, body: "" });

    expect((await refusal(() => world.list("in/a.parquet"))).message).toMatch(/does not say an object's ETag or size/);
  });
});

s3.describe("what stands among the objects of a bucket", () => {
  test("objects that show a folder are none", async () => {
    await using world = await worldWith(["in/", "in/dt=1/", "in/dt=1/a.parquet", "in/b.parquet"]);

    const found = await world.list("in/*.parquet", "in/**", "in/dt=1/*");

    expect(keysOf(found)).toEqual(["in/b.parquet", "in/dt=1/a.parquet"]);
    expect(found.unread).toEqual([]);
  });

  test.each([
    { pattern: "in/*.parquet", tells: ["in/x.parquet"] },
    { pattern: "in/*", tells: ["in/sub", "in/x.parquet"] },
    { pattern: "{in,on}/x*", tells: ["in/x.parquet"] },
    { pattern: "in/**/x.*", tells: ["in/x.parquet"] },
    { pattern: "in/**/*.parquet", tells: [] },
    { pattern: "in/**", tells: [] },
    { pattern: "in/*/*.parquet", tells: [] },
  ])("folders that $pattern matches and does not look into are told", async ({ pattern, tells }) => {
    const odd = ["in/_temporary/a", "in/.git/a"];
    await using world = await worldWith(["in/a.parquet", "in/x.parquet/part-0.parquet", "in/sub/b.csv", ...odd]);

    const { unread } = await world.list(pattern);

    const paths = tells.map((key) => `s3://${world.bucket.name}/${key}`);
    expect(unread.map(({ path }) => path).toSorted()).toEqual(paths);
    expect(
      unread.every(({ path, hint }) => hint.startsWith(`for its files add ${path}/*.parquet to input.path;`)),
    ).toBe(true);
    const both = await world.list(pattern, "in/x.parquet/*.parquet", "in/sub/*");
    expect(both.unread).toEqual([]);
  });

  test("an object with bytes and a slash at its end is told", async () => {
    await using world = await worldWith(["in/a.parquet"]);
    const slashed = object.replace("in/0000.parquet", "in/b.parquet/");
    world.proxy.twist = () => page(`<IsTruncated>false</IsTruncated>${object}${slashed}`);

    const [told] = (await world.list("in/*.parquet")).unread;

    expect(told?.path).toBe(`s3://${world.bucket.name}/in/b.parquet/`);
    expect(told?.finding).toBe("which has bytes under the name of a folder");
  });

  test("names with a newline are matched as on a disk", async () => {
    await using world = await worldWith(["in/a\nb/c\nd.parquet"]);

    for (const pattern of ["in/**", "in/**/*.parquet", "in/*/*"]) {
      expect(keysOf(await world.list(pattern))).toEqual(["in/a\nb/c\nd.parquet"]);
    }
  });
});

s3.describe("folders that may be those of lakehouse tables", () => {
  const days = Array.from({ length: 30 }, (_, day) => `lake/t/dt=${day}/a.parquet`);

  test.each([
    { pattern: "lake/t/**", roots: ["lake", ""] },
    { pattern: "lake/t/dt=*/*", roots: ["lake/t", "lake", ""] },
    { pattern: "lake/t/dt=1/*", roots: ["lake/t", "lake", ""] },
    { pattern: "lake/t/dt=1/a*", roots: ["lake/t/dt=1", "lake/t", "lake", ""] },
    { pattern: "*/**", roots: [] },
    { pattern: "lake/t/none*", roots: [] },
    { pattern: "lake/t/dt=1/a.parquet", roots: [] },
  ])("are those above what $pattern lists, however many partitions there are", async ({ pattern, roots }) => {
    await using world = await worldWith(days);
    const before = world.proxy.requests.length;

    const { tableRoots } = await world.list(pattern);

    const uris = roots.map((key) => `s3://${world.bucket.name}${key === "" ? "" : `/${key}`}`);
    expect(tableRoots.map(({ folder }) => folder)).toEqual(uris);
    expect(world.proxy.requests.length - before).toBe(1);
  });

  test.each(["lake/t/**", "lake/t/*", "lake/t/x/*"])(
    "are seen by their logs where those are listed (%s)",
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

  test("tell their names by one request, and none where they may not be listed", async () => {
    await using world = await worldWith([...many.map((key) => key.replace("in/", "in/metadata/")), "in/metadata/z/a"]);
    const folder = `s3://${world.bucket.name}/in/metadata`;

    expect(await world.source.names(folder)).toHaveLength(1000);
    expect(world.proxy.requests).toHaveLength(1);
    expect(await world.source.names(`s3://${world.bucket.name}/in/_delta_log`)).toEqual([]);
    world.proxy.twist = () => s3Error(403, "AccessDenied");
    expect(await world.source.names(folder)).toEqual([]);
    world.proxy.twist = () => s3Error(500, "InternalError");
    expect(await refusal(() => world.source.names(folder))).toMatchObject({ exitCode: 75 });
  });
});
