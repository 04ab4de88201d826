import { createHash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { s3Error } from "../../../support/http-proxy.js";
import { useS3 } from "../../../support/s3.js";
import { carryOutS3, commitSpan, s3Plan, s3World, type S3World } from "../../../support/s3-sink-world.js";
import { begun } from "../../../support/sinks.js";
import { JobError } from "#src/base/errors.js";
import { s3Target } from "../../../support/s3-target.js";
import { until } from "../../../support/waiting.js";
import { toldAt } from "../../../support/told.js";

const s3 = useS3();

interface Seen {
  readonly request: string;
  readonly headers: IncomingHttpHeaders;
}

function watching({ proxy }: S3World): Seen[] {
  const seen: Seen[] = [];
  proxy.twist = (request, headers) => {
    seen.push({ request, headers });
    return undefined;
  };
  return seen;
}

s3.describe("requests to a target in S3", () => {
  test("a request to S3 is signed with its sha256, which the store checks and the object's metadata has", async () => {
    await using at = await s3World(s3.server());
    const seen = watching(at);
    await using sink = await at.open();
    await carryOutS3(sink);
    const part = (await at.names()).find((name) => name.startsWith("part-00002")) ?? "";
    const bytes = await at.bucket.get(`lake/out/${part}`);
    const sha256 = createHash("sha256").update(bytes).digest();
    const put = seen.find(({ request }) => request.startsWith("PUT") && /\/part-00002.*\.parquet/.test(request));
    expect(put?.headers).toMatchObject({
      "if-none-match": "*",
      "content-length": String(bytes.length),
      "x-amz-content-sha256": sha256.toString("hex"),
      "x-amz-checksum-sha256": sha256.toString("base64"),
      "x-amz-meta-inferbatchsha256": sha256.toString("hex"),
    });
    expect(seen.some(({ request }) => /uploads|uploadId/.test(request))).toBe(false);
    expect(
      await readdir(join(at.folder, "spool")).then((names) => readdir(join(at.folder, "spool", names[0] ?? ""))),
    ).toEqual([]);
  });

  test("requests to S3 ask for the encryption that the spec names, copies too", async () => {
    await using at = await s3World(s3.server());
    const seen = watching(at);
    const encryption = { algorithm: "aws:kms", kms_key: "arn:aws:kms:eu-central-1:1:key/a", bucket_key: true } as const;
    await using sink = await at.open({ target: { place: { encryption } } });
    await carryOutS3(sink);
    await carryOutS3(sink, 2);
    const writes = seen.filter(({ request }) => request.startsWith("PUT"));
    const plain = writes.filter(({ headers }) => headers["x-amz-server-side-encryption"] !== "aws:kms");
    expect(plain.map(({ request }) => request)).toEqual([]);
    for (const { headers } of writes) {
      expect(headers["x-amz-server-side-encryption-aws-kms-key-id"]).toBe(encryption.kms_key);
      expect(headers["x-amz-server-side-encryption-bucket-key-enabled"]).toBe("true");
    }
    expect(writes.filter(({ headers }) => headers["x-amz-copy-source"] !== undefined)).toHaveLength(3);
  });

  test("a run in S3 takes a few requests a span, and one footer a part when it is resumed", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    const { run } = await begun(sink, s3Plan());
    const before = at.proxy.requests.length;
    await commitSpan(run, 1);
    expect(at.proxy.requests.length - before).toBeLessThanOrEqual(7);
    await commitSpan(run, 0);
    await commitSpan(run, 2);
    await run.finish();
    const seen = watching(at);
    await using again = await at.open();
    await carryOutS3(again);
    const parts = seen.filter(({ request }) => /^(GET|HEAD) .*\/part-/.test(request));
    expect(parts).toEqual([]); // a finished run is believed by its manifest and one listing
  });

  test("several attempts that finish a run in S3 write one manifest", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    const { run } = await begun(sink, s3Plan());
    for (const span of [0, 1, 2]) {
      await commitSpan(run, span);
    }
    at.proxy.twist = (request) => (/^PUT .*_SUCCESS/.test(request) ? s3Error(403, "AccessDenied") : undefined);
    await expect(run.finish({ rows_scored: 1 })).rejects.toThrow("_SUCCESS");
    const seen = watching(at);
    await run.finish({ rows_scored: 7 });
    const puts = seen.flatMap(({ request }) => (/^PUT .*\/(_\w+)/.exec(request) ?? []).slice(1));
    expect(puts).toEqual(["_SUCCESS"]);
    expect(await at.faults()).toEqual([]);
  });
});

const badRow = new JobError("BAD_ROW", "row 3 is bad");

function slowStore({ proxy }: S3World): { count: number } {
  const seen = { count: 0 };
  proxy.twist = () => {
    seen.count += 1;
    return s3Error(503, "SlowDown");
  };
  return seen;
}

s3.describe("errors of attempts at a target in S3", () => {
  test("an attempt that ends because the store is unreachable tries for some seconds to record the error, and does not fail", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    const { stored } = await begun(sink, s3Plan());
    slowStore(at);
    const startMs = performance.now();
    await toldAt(sink, stored.plan.runId).failed(new JobError("OBJECT_STORE", "reading s3://lake/x: SlowDown"));
    expect(performance.now() - startMs).toBeLessThan(20_000);
  });

  test("a note that fails because the store is away does not keep the run from being planned once it is back", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    const plan = s3Plan();
    let isAway = true;
    at.proxy.twist = () => (isAway ? s3Error(403, "AccessDenied") : undefined);
    await expect(toldAt(sink, plan.runId).add("late", "a")).rejects.toThrow();
    isAway = false;
    const { run } = await begun(sink, plan);
    expect(run.state.kind).toBe("unfinished");
  });

  test("requests that only inform people end when they are stopped, although requests may be retried for minutes", async () => {
    await using at = await s3World(s3.server());
    const seen = slowStore(at);
    using store = s3Target({ port: at.proxy.port, retrySeconds: 300 });
    const stop = new AbortController();
    const reading = store.until(stop.signal).readText({ bucket: at.bucket.name, key: "lake/x" });
    const ended = expect(reading).rejects.toThrow("too late");
    await until(() => seen.count > 0);
    stop.abort(new Error("too late"));
    await ended;
  });

  test("an error is not recorded if the plan of the run is gone", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    const { stored } = await begun(sink, s3Plan());
    const told = toldAt(sink, stored.plan.runId);
    await told.failed(badRow);
    const errors = (await at.names()).filter((name) => name.endsWith("errors.json"));
    expect(errors).toHaveLength(1);
    for (const key of await at.bucket.keys()) {
      await at.bucket.remove(key);
    }
    await told.failed(badRow);
    expect(await at.names()).toEqual([]);
  });
});
