import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { JobError } from "#src/base/errors.js";
import type { Source } from "#src/sources/source.js";
import { httpProxy, s3Error } from "../../support/http-proxy.js";
import { scratch, scratchFolder } from "../../support/job.js";
import { useS3 } from "../../support/s3.js";
import { type S3SourceSetup, sourceAt, storeAt } from "../../support/s3-source.js";
import { tcpProxy } from "../../support/tcp-proxy.js";

const s3 = useS3();

const bytes = randomBytes(5_000_000);
/** Timeouts that no store exceeds, however busy the machine is. */
const patient = { connectMs: 30_000, silenceMs: 30_000, requestMs: 60_000 };
const impatient = { ...patient, silenceMs: 1000 };

async function openWorld(setup: Partial<S3SourceSetup> = {}): Promise<
  AsyncDisposable & {
    readonly proxy: Awaited<ReturnType<typeof tcpProxy>>;
    readonly source: Source;
    readonly warnings: string[];
    read(): Promise<Uint8Array>;
  }
> {
  const folder = await scratchFolder();
  const proxy = await tcpProxy(s3.server().port);
  const bucket = await s3.server().createBucket();
  await bucket.put("in/a", bytes);
  const warnings: string[] = [];
  const tries = { timeouts: patient, retrySeconds: 20, warnings };
  const source = sourceAt({ port: proxy.port, spool: folder.path, ...tries, ...setup });
  return {
    proxy,
    source,
    warnings,
    async read() {
      const { shards } = await source.list([`s3://${bucket.name}/in/*`]);
      const [shard] = shards;
      if (shard === undefined) {
        throw new Error("nothing is listed");
      }
      await using opened = await source.open(shard);
      await opened.remote?.fetch([{ start: 0, end: shard.sizeBytes }]);
      return await readFile(opened.path);
    },
    async [Symbol.asyncDispose]() {
      await source[Symbol.asyncDispose]();
      await proxy[Symbol.asyncDispose]();
      await folder[Symbol.asyncDispose]();
    },
  };
}

async function refusal(work: () => Promise<unknown>): Promise<{ code: string; message: string; hint: string }> {
  const error: unknown = await work().then(
    () => "nothing was refused",
    (refused: unknown) => refused,
  );
  if (!(error instanceof JobError)) {
    throw error;
  }
  return { code: error.code, message: error.message, hint: error.hint ?? "" };
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
  }
  return found;
}

s3.describe("reading an S3 object with transient errors", () => {
  test.each(["cut", "reset", "stall"] as const)(
    "reading an S3 object resumes where a body broke off (%s)",
    async (fault) => {
      const stalls = fault === "stall";
      await using world = await openWorld({ thread: true, timeouts: stalls ? impatient : patient });
      let seen = 0;
      world.proxy.armAnswers(fault, (chunk) => {
        seen += chunk.length;
        return seen > 4_000_000;
      });

      expect(bytes.equals(await world.read())).toBe(true);

      expect(world.proxy.struck).toBe(1);
      expect(world.warnings).toHaveLength(1);
      expect(world.warnings[0]).toMatch(/^reading s3:\/\/bucket-\d+\/in\/a: .*; trying again for up to /);
      expect(world.warnings[0]).toContain(stalls ? "silent for 1 s" : "the connection was lost");
      expect(world.proxy.bytesFromServer).toBeLessThan(9_000_000);
    },
  );

  test.each([
    { what: "a body is shorter than its range", twist: { kind: "shorten", bytes: 1_000_000 } as const },
    { what: "the store asks to slow down", twist: s3Error(503, "SlowDown") },
    { what: "the store has an internal error", twist: s3Error(500, "InternalError") },
    { what: "the store says RequestTimeout", twist: s3Error(400, "RequestTimeout") },
  ])("reading an S3 object retries when $what", async ({ twist }) => {
    await using http = await httpProxy(s3.server().port);
    await using world = await openWorld({ port: http.port });
    let twisted = 0;
    http.twist = (request) => {
      twisted += request.includes("/in/a") ? 1 : 0;
      return twisted === 1 && request.includes("/in/a") ? twist : undefined;
    };

    expect(bytes.equals(await world.read())).toBe(true);

    expect(world.warnings).toHaveLength(1);
    const gets = http.requests.filter((request) => request.includes("/in/a"));
    const from = twist.kind === "shorten" ? 1_000_000 : 0;
    expect(gets.map((request) => request.replace(/.* bytes=/, ""))).toEqual(["0-4999999", `${from}-4999999`]);
  });

  test.each(["cut", "reset", "stall", "deaf"] as const)(
    "reading an S3 object sends a lost request again (%s)",
    async (fault) => {
      await using world = await openWorld({ timeouts: fault === "stall" ? impatient : patient });
      world.proxy.arm(fault, (chunk) => chunk.includes("GET ") && chunk.includes("/in/a"));

      expect(bytes.equals(await world.read())).toBe(true);

      expect(world.proxy.struck).toBe(1);
    },
  );

  test.each(["cut", "stall"] as const)(
    "reading an S3 object lists again when the listing's response breaks off (%s)",
    async (fault) => {
      await using world = await openWorld({ timeouts: fault === "stall" ? impatient : patient });
      world.proxy.armAnswers(fault, (chunk) => chunk.includes("ListBucketResult"));

      expect(bytes.equals(await world.read())).toBe(true);

      expect(world.proxy.struck).toBe(1);
      expect(world.warnings).toEqual([
        expect.stringMatching(/^listing .*: (the connection was lost|the store was silent for 1 s); trying/),
      ]);
    },
  );

  test("reading an S3 object goes on when the server restarts in the middle", async () => {
    await using world = await openWorld();
    let seen = 0;
    let restarted: Promise<void> | undefined;
    world.proxy.armAnswers("cut", (chunk) => {
      seen += chunk.length;
      if (seen > 2_000_000) {
        restarted = s3
          .server()
          .kill()
          .then(() => s3.server().start());
      }
      return seen > 2_000_000;
    });

    expect(bytes.equals(await world.read())).toBe(true);

    await restarted;
    expect(world.proxy.struck).toBe(1);
  });
});

s3.describe("a reader of S3", () => {
  test("reading from S3 ends with 75, naming the error, when a transient error persists", async () => {
    await using world = await openWorld({ retrySeconds: 1 });
    const port = world.proxy.port;
    await world.proxy[Symbol.asyncDispose]();

    const { code, message, hint } = await refusal(() => world.read());

    expect(new JobError(code as "OBJECT_STORE", "").exitCode).toBe(75);
    expect(message).toMatch(
      new RegExp(
        `^listing s3://bucket-\\d+/in/: connect ECONNREFUSED 127.0.0.1:${port} \\(tried \\d+ times in \\d+ s\\)$`,
      ),
    );
    expect(hint).toContain("run the same command again");
  });

  test("reading from S3 ends with the signal's reason when the job is stopped in a pause", async () => {
    const stop = new AbortController();
    await using world = await openWorld({ signal: stop.signal });
    let seen = 0;
    world.proxy.armAnswers("stall", (chunk) => {
      seen += chunk.length;
      if (seen > 1_000_000) {
        setTimeout(() => stop.abort(new JobError("SIGTERM", "stopped")), 50);
      }
      return seen > 1_000_000;
    });

    expect(await refusal(() => world.read())).toMatchObject({ code: "SIGTERM" });
  });

  test("reading from S3 does not mistake a slow disk for a silent store", async () => {
    const bucket = await s3.server().createBucket();
    await bucket.put("a", bytes);
    const warnings: string[] = [];
    const timeouts = { ...patient, silenceMs: 2000 };
    const store = storeAt({ port: s3.server().port, timeouts, retrySeconds: 20, warnings });
    const object = { bucket: bucket.name, key: "a" };
    const { etag } = (await store.head(object)) ?? { etag: "" };
    let taken = 0;
    const take = ({ length }: Uint8Array): void => {
      const before = taken;
      taken += length;
      if (before < 8_000_000 && taken >= 8_000_000) {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, timeouts.silenceMs * 1.3);
      }
    };

    await Promise.all(
      Array.from({ length: 4 }, () => store.read("reading a", { object, etag, start: 0, end: bytes.length }, take)),
    );

    expect(taken).toBe(4 * bytes.length);
    expect(warnings).toEqual([]);
  });

  test("reading from S3 causes no leak warning when many requests are in flight", async () => {
    await using http = await httpProxy(s3.server().port);
    http.delayMs = 50;
    const bucket = await s3.server().createBucket();
    await bucket.put("a", "a");
    const store = storeAt({ port: http.port });
    const warned: string[] = [];
    const note = (warning: Error): void => void warned.push(warning.message);
    process.on("warning", note);
    await Promise.all(Array.from({ length: 24 }, () => store.head({ bucket: bucket.name, key: "a" })));
    process.off("warning", note);

    expect(warned).toEqual([]);
  });

  test("reading from S3 uses credentials that were rotated", async () => {
    const bucket = await s3.server().createBucket();
    await bucket.put("a", "a");
    const file = join(scratch.path, "credentials");
    const write = (secret: string): Promise<void> =>
      writeFile(file, `[default]\naws_access_key_id = testkey\naws_secret_access_key = ${secret}\n`);
    await write("the-one-before");
    const store = storeAt({ port: s3.server().port, retrySeconds: 5 });
    delete process.env["AWS_ACCESS_KEY_ID"];
    process.env["AWS_SHARED_CREDENTIALS_FILE"] = file;
    await expect(store.head({ bucket: bucket.name, key: "a" })).rejects.toThrow("access denied");
    await expect(all(store.list(bucket.name, ""))).rejects.toThrow("the credentials are wrong");
    await write("testsecret123");
    const now = performance.now();
    vi.spyOn(performance, "now").mockReturnValueOnce(now + 5100); // they are not looked for all the time

    expect(await all(store.list(bucket.name, ""))).toHaveLength(1);
    expect(await store.head({ bucket: bucket.name, key: "a" })).toMatchObject({ sizeBytes: 1 });
  });

  test("reading from S3 names what is missing or refused, and no secret", async () => {
    const { port } = s3.server();
    const list = (bucket: string): Promise<unknown> => all(storeAt({ port }).list(bucket, "in/"));
    expect(await refusal(() => list("no-such-bucket"))).toMatchInlineSnapshot(`
      {
        "code": "FILE_MISSING",
        "hint": "check the bucket's name, and endpoint and region, in the spec",
        "message": "listing s3://no-such-bucket/in/: there is no bucket no-such-bucket",
      }
    `);
    const store = storeAt({ port });
    process.env["AWS_SECRET_ACCESS_KEY"] = "wrong-secret";
    expect(await refusal(() => all(store.list("no-such-bucket", "in/")))).toMatchInlineSnapshot(`
      {
        "code": "PERMISSION",
        "hint": "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the role, and the endpoint",
        "message": "listing s3://no-such-bucket/in/: the credentials are wrong: the store says SignatureDoesNotMatch, 403",
      }
    `);
    const without = storeAt({ port });
    delete process.env["AWS_ACCESS_KEY_ID"]; // before the first request looks for it
    expect(await refusal(() => all(without.list("no-such-bucket", "in/")))).toMatchInlineSnapshot(`
      {
        "code": "PERMISSION",
        "hint": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run under a role",
        "message": "looking for AWS credentials: there are none",
      }
    `);
  });
});
