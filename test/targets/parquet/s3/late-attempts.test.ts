import { expect, test } from "vitest";
import { holdFirst, s3Error } from "../../../support/http-proxy.js";
import { useS3 } from "../../../support/s3.js";
import { carryOutS3, commitSpan, committedS3, s3Plan, s3World, superseded } from "../../../support/s3-sink-world.js";
import { alone } from "../../../support/sink-drive.js";
import { begun } from "../../../support/sinks.js";
import { firstOf } from "../../../support/torture.js";
import { until } from "../../../support/waiting.js";

const s3 = useS3();

s3.describe("a late attempt in S3, after a later run was opened", () => {
  test("a late attempt retracts the part that it published after a later run was opened", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const { run } = await begun(late, s3Plan());
    await commitSpan(run, 0);
    const { reached, go } = holdFirst(at.proxy, /^PUT .*part-00001/);
    const committing = commitSpan(run, 1);
    await reached;
    await carryOutS3(next, 2);
    go();
    await expect(committing).rejects.toMatchObject(superseded);
    expect(await at.faults(2)).toEqual([]);
  });

  test("a late attempt publishes nothing, also when the run after its own has lost its plan", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const { run } = await begun(late, s3Plan());
    await commitSpan(run, 0);
    await carryOutS3(next, 2);
    await at.bucket.remove(`lake/out/_infer-batch/${s3Plan(2).runId}/plan.json`);
    await using last = await at.open();
    await (await committedS3(last, 3)).finish();
    await expect(commitSpan(run, 1)).rejects.toMatchObject(superseded);
    expect(await at.faults(3)).toEqual([]);
  });

  test("a late attempt retracts no part but its own", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using other = await at.open();
    await using next = await at.open();
    const { stored, run } = await begun(late, s3Plan());
    const beside = await begun(other, stored.plan);
    const { reached, go } = holdFirst(at.proxy, /^PUT .*part-00001/);
    const committing = commitSpan(run, 1);
    await reached;
    await commitSpan(beside.run, 1);
    await next.create(s3Plan(2));
    go();
    expect(await committing).toBe("adopted");
    expect((await at.names()).filter((name) => name.startsWith("part-"))).toHaveLength(1);
  });

  test("a late attempt leaves a later run's manifest and _SUCCESS as they are", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const run = await committedS3(late, 1);
    const { reached, go } = holdFirst(at.proxy, /^PUT .*_manifest.json/);
    const finishing = run.finish();
    await reached;
    await carryOutS3(next, 2);
    go();
    await expect(finishing).rejects.toMatchObject(superseded);
    expect(await at.faults(2)).toEqual([]);
  });

  test("a late attempt that finishes a swap a second time does no harm", async () => {
    await using at = await s3World(s3.server());
    await using one = await at.open();
    await using other = await at.open();
    await carryOutS3(one);
    for (const pattern of firstOf(
      [/^DELETE .*_SUCCESS/, /^PUT .*part-00001\.[^/]*-r2\.parquet/, /^PUT .*_SUCCESS/],
      2,
    )) {
      await using sink = await at.open();
      const { stored, run } = await begun(sink, s3Plan(2));
      const beside = await begun(other, stored.plan);
      for (const span of [0, 1, 2]) {
        await commitSpan(run, span, 2);
      }
      await beside.run.refresh();
      const { reached, go } = holdFirst(at.proxy, pattern);
      const finishing = run.finish();
      await Promise.race([reached, finishing]);
      await beside.run.finish();
      go();
      await finishing;
      expect(await at.faults(2)).toEqual([]);
    }
  });

  test("a late attempt is refused before it scores anything, and writes nothing", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const run = await late.open(await late.create(s3Plan()));
    await next.create(s3Plan(2));
    const from = at.proxy.requests.length;
    await expect(run.begin(alone)).rejects.toMatchObject(superseded);
    expect(at.proxy.requests.slice(from).filter((request) => !/^(GET|HEAD) /.test(request))).toEqual([]);
  });

  test("a late attempt shows readers nothing of a span that it scored meanwhile", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const { run } = await begun(late, s3Plan());
    await carryOutS3(next, 2);
    const from = at.proxy.requests.length;
    await expect(commitSpan(run, 2)).rejects.toMatchObject(superseded);
    expect(at.proxy.requests.slice(from).filter((request) => !/^(GET|HEAD) /.test(request))).toEqual([]);
    expect(await at.faults(2)).toEqual([]);
  });

  test("a late attempt retracts the parts that it copied when the later run's finisher died before it could", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    await carryOutS3(late);
    const run = await committedS3(late, 2);
    const { reached, go } = holdFirst(at.proxy, /^PUT .*part-00001\.[^/]*-r2\.parquet/);
    const finishing = run.finish();
    await reached;
    const later = await committedS3(next, 3);
    at.proxy.twist = (request) => (/^DELETE .*-r2\.parquet/.test(request) ? s3Error(403, "AccessDenied") : undefined);
    await expect(later.finish()).rejects.toThrow("AccessDenied");
    at.proxy.twist = undefined;
    go();
    await expect(finishing).rejects.toMatchObject(superseded);
    expect((await at.names()).filter((name) => name.endsWith("-r2.parquet"))).toEqual([]);
    expect(await at.faultsMidway()).toEqual([]);
  });

  test("a late attempt retracts the rejects of the part that it published", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const { run } = await begun(late, s3Plan());
    const { reached, go } = holdFirst(at.proxy, /^PUT .*_rejects/);
    const committing = commitSpan(run, 2);
    await reached;
    await carryOutS3(next, 2);
    go();
    await expect(committing).rejects.toMatchObject(superseded);
    expect(await at.faults(2)).toEqual([]);
  });

  const moments = [
    { what: "parts gone that it copies, and the error says why", request: /^PUT .*part-00001\.[^/]*-r2\.parquet/ },
    { what: "a later run's _SUCCESS where its predecessor's was, and leaves it", request: /^DELETE .*_SUCCESS/ },
    { what: "parts gone that it looks for, and the error says why", request: /^HEAD .*part-00001\.[^/]*-r2\.parquet/ },
  ];

  test.each(firstOf(moments))("a late attempt finds $what", async ({ request }) => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    await carryOutS3(late);
    const run = await committedS3(late, 2);
    const { reached, go } = holdFirst(at.proxy, request);
    const finishing = run.finish();
    await reached;
    await carryOutS3(next, 3);
    go();
    await expect(finishing).rejects.toMatchObject(superseded);
    expect(await at.faults(3)).toEqual([]);
  });

  test("a late attempt publishes nothing when its staged parts are gone", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    await carryOutS3(late);
    const run = await committedS3(late, 2);
    const held: (() => void)[] = [];
    at.proxy.twist = (request) =>
      /^PUT .*-r2\.parquet/.test(request)
        ? { kind: "hold", until: new Promise<void>((done) => void held.push(done)) }
        : undefined;
    const finishing = run.finish();
    await until(() => Promise.resolve(held.length === 3));
    const later = await committedS3(next, 3);
    at.proxy.twist = undefined;
    await later.finish();
    for (const go of held) {
      go();
    }
    await expect(finishing).rejects.toMatchObject(superseded);
    expect(await at.faults(3)).toEqual([]);
  });

  test("the next command removes what a late attempt published when it was killed before it took that back", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    await carryOutS3(sink);
    const part = (await at.names()).find((name) => name.startsWith("part-00001")) ?? "";
    const bytes = await at.bucket.get(`lake/out/${part}`);
    await carryOutS3(sink, 2);
    await at.bucket.put(`lake/out/${part}`, bytes);
    await at.bucket.put(`lake/out/_infer-batch/${s3Plan(2).runId}/parts/part-00001.${s3Plan(2).runId}.staged`, "x");
    await carryOutS3(sink, 2);
    expect(await at.faults(2)).toEqual([]);
  });
});
