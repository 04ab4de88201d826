import { randomBytes } from "node:crypto";
import { closeSync, constants, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { type ObjectReader, openReaderThread } from "#src/sources/reader.js";
import { httpProxy } from "../../support/http-proxy.js";
import { scratchFolder } from "../../support/job.js";
import { useS3 } from "../../support/s3.js";
import { optionsAt, type S3SourceSetup } from "../../support/s3-source.js";
import { latch, until } from "../../support/waiting.js";

const s3 = useS3();

const bytes = randomBytes(3_000_000);

interface World extends AsyncDisposable {
  readonly reader: ObjectReader;
  readonly proxy: Awaited<ReturnType<typeof httpProxy>>;
  readonly warnings: string[];
  readonly etag: string;
  readonly object: { readonly bucket: string; readonly key: string };
  readonly path: string;
  readonly fd: number;
}

async function world(setup: Partial<S3SourceSetup> = {}): Promise<World> {
  const scratch = await scratchFolder();
  const proxy = await httpProxy(s3.server().port);
  const bucket = await s3.server().createBucket();
  await bucket.put("in/a", bytes);
  const warnings: string[] = [];
  const { settings, ...requests } = optionsAt({ port: proxy.port, warnings, retrySeconds: 20, ...setup });
  const reader = openReaderThread({ scheme: "s3", settings }, requests);
  const object = { bucket: bucket.name, key: "in/a" };
  const path = join(scratch.path, "a");
  const fd = openSync(path, "wx+");
  return {
    reader,
    proxy,
    warnings,
    object,
    path,
    fd,
    etag: (await reader.stat(object))?.etag ?? "",
    async [Symbol.asyncDispose]() {
      await reader[Symbol.asyncDispose]();
      closeSync(fd);
      await proxy[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

async function refusal(work: Promise<unknown>): Promise<Error> {
  return await work.then(
    () => new Error("nothing was refused"),
    (error: unknown) => error as Error,
  );
}

s3.describe("a reader thread", () => {
  test("a reader thread lists, stats, and fetches bytes to their offset in the object", async () => {
    await using here = await world();
    const { reader, object, etag, fd } = here;
    const listed = [];
    for await (const one of reader.list(object.bucket, "in/")) {
      listed.push(one);
    }

    const request = { object, etag, start: 1_000_000, end: 2_500_000 };
    await reader.fetchIntoFile("reading", request, fd);
    const inMemory = await reader.readBytes("reading", request);

    expect(listed).toEqual([{ key: "in/a", etag, sizeBytes: bytes.length }]);
    expect(await reader.stat({ ...object, key: "in/b" })).toBeUndefined();
    const file = readFileSync(here.path);
    expect(file.length).toBe(2_500_000);
    expect(file.subarray(0, 1_000_000).equals(Buffer.alloc(1_000_000))).toBe(true);
    expect(file.subarray(1_000_000).equals(bytes.subarray(1_000_000, 2_500_000))).toBe(true);
    expect(bytes.subarray(1_000_000, 2_500_000).equals(inMemory)).toBe(true);
  });

  test("a reader thread reports the same errors as a reader in the main thread", async () => {
    await using here = await world();
    const { reader, object, fd } = here;
    const request = { object, etag: '"another"', start: 0, end: 8 };

    const changed = await refusal(reader.fetchIntoFile("reading a", request, fd));
    const missing = await refusal(
      (async () => {
        for await (const { key } of reader.list("no-such-bucket", "")) {
          throw new Error(key);
        }
      })(),
    );

    expect(changed).toBeInstanceOf(JobError);
    expect(changed).toMatchObject({
      code: "INPUT_CHANGED",
      message: "reading a: its ETag has changed",
      hint: "put the planned object back; committed spans are kept",
    });
    expect(missing).toMatchObject({ code: "FILE_MISSING", exitCode: 64 });
  });

  test("a reader thread passes on warnings of retries, and resumes a body where it ended", async () => {
    await using here = await world();
    const { reader, object, etag, fd, proxy } = here;
    let seen = 0;
    proxy.twist = (request) => {
      seen += request.startsWith("GET") ? 1 : 0;
      return seen === 1 ? { kind: "shorten", bytes: 1_000_000 } : undefined;
    };

    await reader.fetchIntoFile("reading a", { object, etag, start: 0, end: bytes.length }, fd);

    expect(bytes.equals(readFileSync(here.path))).toBe(true);
    expect(here.warnings).toEqual([expect.stringMatching(/^reading a: a body of 3000000 bytes ended after 1000000; /)]);
    expect(proxy.requests.at(-1)).toContain("bytes=1000000-2999999");
  });

  test("a reader thread passes on errors of the disk with their error code", async () => {
    await using here = await world();
    const { reader, object, etag } = here;
    const full = openSync("/dev/full", constants.O_WRONLY);
    const request = { object, etag, start: 0, end: bytes.length };

    expect(await refusal(reader.fetchIntoFile("reading a", request, full))).toMatchObject({ code: "ENOSPC" });

    closeSync(full);
    expect(here.warnings).toEqual([]);
  });

  test("a reader thread ends a cancelled fetch with the signal's reason, and other fetches succeed", async () => {
    await using here = await world();
    const { reader, object, etag, fd, proxy } = here;
    const stop = new AbortController();
    const warned: string[] = [];
    const note = (warning: Error): void => void warned.push(warning.message);
    process.on("warning", note);
    const gate = latch<void>();
    proxy.twist = () => ({ kind: "hold", until: gate.promise });
    const request = { object, etag, start: 0, end: 1000 };

    const stopped = Array.from({ length: 20 }, () =>
      refusal(reader.fetchIntoFile("reading a", request, fd, stop.signal)),
    );
    const other = reader.readBytes("reading a", request);
    await until(() => proxy.requests.some((one) => one.includes("bytes=0-999")));
    stop.abort(new Error("the window is closed"));

    for (const error of await Promise.all(stopped)) {
      expect(error.message).toBe("the window is closed");
    }
    gate.resolve();
    expect(readFileSync(here.path)).toHaveLength(0);
    expect(bytes.subarray(0, 1000).equals(await other)).toBe(true);
    process.off("warning", note);
    expect(warned).toEqual([]);
  });

  test("a reader thread ends at once when the job is stopped, also in the pause before a retry", async () => {
    const stop = new AbortController();
    await using here = await world({ signal: stop.signal, retrySeconds: 60 });
    const { reader, object, etag, fd, proxy, warnings } = here;
    await proxy[Symbol.asyncDispose]();
    const reading = refusal(reader.fetchIntoFile("reading a", { object, etag, start: 0, end: 1000 }, fd));
    await until(() => warnings.length > 0);

    const start = performance.now();
    stop.abort(new JobError("SIGTERM", "stopped"));

    expect(await reading).toMatchObject({ code: "SIGTERM" });
    expect(performance.now() - start, "of 60 s of retries").toBeLessThan(30_000);
    expect(await refusal(reader.stat(object))).toMatchObject({ code: "SIGTERM" });
  });

  test("disposing a reader thread that has ended does not wait", async () => {
    await using here = await world();
    const { reader, object, proxy } = here;
    proxy.delayMs = 5000;
    const looking = refusal(reader.stat(object));

    await reader[Symbol.asyncDispose]();

    expect((await looking).message).toMatch(/has ended|is stopped/);
    expect((await refusal(reader.stat(object))).message).toContain("has ended");
  });
});
