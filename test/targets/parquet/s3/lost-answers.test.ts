import { expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { spanAt } from "#src/run/plan/spans.js";
import { holdFirst, s3Error } from "../../../support/http-proxy.js";
import { useAzurite, useFakeGcs } from "../../../support/clouds.js";
import { useS3 } from "../../../support/s3.js";
import { carryOutS3, commitSpan, s3Plan, s3World } from "../../../support/s3-sink-world.js";
import { begun, idsOf, outputOf, rejectOf, whole } from "../../../support/sinks.js";
import { countSpans } from "#src/run/lifecycle/span-record.js";

const s3 = useS3();
const clouds = [
  { name: "Google Cloud Storage", ...useFakeGcs() },
  { name: "Azure", ...useAzurite() },
];
const world = () => s3World(s3.server());
const isWrite = (request: string): boolean => /^(PUT|POST|DELETE) /.test(request);

for (const { name, describe, server } of [{ name: "S3", ...s3 }, ...clouds]) {
  describe(`an attempt in ${name} whose answers are lost`, () => {
    test("an attempt whose answers are lost recognises each of its writes as its own", async () => {
      await using at = await s3World(server());
      await using sink = await at.open();
      for (const number of [1, 2]) {
        const lost = new Set<string>();
        at.proxy.twist = (request) => {
          if (!isWrite(request) || lost.has(request)) {
            return undefined;
          }
          lost.add(request);
          return { kind: "lose" };
        };
        await carryOutS3(sink, number);
        expect(lost.size).toBeGreaterThan(9);
        at.proxy.twist = undefined;
        expect(await at.faults(number)).toEqual([]);
      }
    });
  });
}

s3.describe("an attempt in S3 whose answers say less than was done", () => {
  test("an attempt in S3 counts a part as its own when its own earlier try has the key: 412", async () => {
    await using at = await world();
    await using sink = await at.open();
    const { run } = await begun(sink, s3Plan());
    let belied = 0;
    at.proxy.twist = (request) => {
      if (!/^PUT .*part-00001/.test(request)) {
        return undefined;
      }
      belied += 1;
      return { kind: "belie", status: 412, body: "<Error><Code>PreconditionFailed</Code></Error>" };
    };
    expect(await commitSpan(run, 1)).toBe("committed");
    expect(belied).toBe(1);
    expect([...run.spans.keys()]).toEqual([1]);
  });

  test("an attempt in S3 adopts a part of another attempt that has the key: 412", async () => {
    await using at = await world();
    await using slow = await at.open();
    await using fast = await at.open();
    const { stored, run } = await begun(slow, s3Plan());
    const beside = await begun(fast, stored.plan);
    const { reached, go } = holdFirst(at.proxy, /^PUT .*part-00001/);
    const slowly = commitSpan(run, 1);
    await reached;
    expect(await commitSpan(beside.run, 1)).toBe("committed");
    const name = (await at.names()).find((one) => one.includes("part-00001")) ?? "";
    const before = await at.get(name);
    go();
    expect(await slowly).toBe("adopted");
    expect(await at.get(name)).toBe(before);
    await carryOutS3(slow);
    expect(await at.faults()).toEqual([]);
  });

  test("an attempt in S3 leaves no rejects where another one committed the part without any", async () => {
    await using at = await world();
    await using slow = await at.open();
    await using fast = await at.open();
    const { stored, run } = await begun(slow, s3Plan());
    const beside = await begun(fast, stored.plan);
    const span = spanAt(s3Plan(), 1);
    const ids = idsOf(span);
    const { reached, go } = holdFirst(at.proxy, /^PUT .*part-00001.*parquet/);
    const slowly = run.commit(span, whole(outputOf(ids.slice(1)), [rejectOf(ids[0] ?? 0)]));
    await reached;
    expect((await at.names()).filter((name) => name.startsWith("_rejects/"))).toHaveLength(1);
    expect(await commitSpan(beside.run, 1)).toBe("committed");
    go();
    expect(await slowly).toBe("adopted");
    expect((await at.names()).filter((name) => name.startsWith("_rejects/"))).toEqual([]);
    expect(countSpans(run.spans).rejected).toBe(0);
  });

  test.each([
    ["a conflict with another write (409)", s3Error(409, "ConditionalRequestConflict")],
    ["an error inside a 200", s3Error(200, "InternalError")],
    ["bytes that were damaged on the way", { kind: "damage" } as const],
  ])("an attempt in S3 retries after %s", async (what, twist) => {
    await using at = await world();
    await using sink = await at.open();
    // Only a copy is answered with 200 and an error: the parts of a second run are copied.
    const isCopied = what.includes("200");
    await (isCopied ? carryOutS3(sink) : undefined);
    const isPart = isCopied ? /^PUT .*part-0000\d\.[^/]*-r2\.parquet/ : /^PUT .*part-0000\d\./;
    const met = new Set<string>();
    at.proxy.twist = (request) => {
      if (!isPart.test(request) || met.has(request)) {
        return undefined;
      }
      met.add(request);
      return twist;
    };
    const number = isCopied ? 2 : 1;
    await carryOutS3(sink, number);
    expect(met.size).toBeGreaterThanOrEqual(3);
    at.proxy.twist = undefined;
    expect(await at.faults(number)).toEqual([]);
  });

  test("a store that stays away ends the run with 75, and the same command finishes it", async () => {
    await using at = await world();
    await using sink = await at.open({ retrySeconds: 0.2 });
    const { run } = await begun(sink, s3Plan());
    await commitSpan(run, 0);
    at.proxy.twist = (request) => (isWrite(request) ? s3Error(503, "SlowDown") : undefined);
    const error: unknown = await commitSpan(run, 1).catch((failed: unknown) => failed);
    expect(error).toBeInstanceOf(JobError);
    expect(error).toMatchObject({ exitCode: 75, message: expect.stringContaining("the store says SlowDown, 503") });
    at.proxy.twist = undefined;
    await using next = await at.open();
    await carryOutS3(next);
    expect(await at.faults()).toEqual([]);
  });

  test("an attempt in S3 continues when the server is killed and started again", async () => {
    await using at = await world();
    await using sink = await at.open();
    let restarted: Promise<void> | undefined;
    at.proxy.twist = (request) => {
      if (/^PUT .*part-00001/.test(request)) {
        restarted ??= (async () => {
          await s3.server().kill();
          await new Promise((done) => setTimeout(done, 200));
          await s3.server().start();
        })();
      }
      return undefined;
    };
    await carryOutS3(sink);
    await restarted;
    expect(restarted).toBeDefined();
    expect(await at.faults()).toEqual([]);
  });
});
