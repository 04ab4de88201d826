import { expect, test } from "vitest";
import { holdFirst } from "../../support/http-proxy.js";
import { useS3 } from "../../support/s3.js";
import { carryOutS3, commitSpan, s3Plan, s3World } from "../../support/s3-sink-world.js";
import { begun } from "../../support/sinks.js";

const s3 = useS3();

const overtaken = { code: "PLAN_CHANGED", exitCode: 66, message: expect.stringMatching(/came after/) };

s3.describe("an attempt that goes on when a later run has come", () => {
  test("takes back the part that it published then", async () => {
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
    await expect(committing).rejects.toMatchObject(overtaken);
    expect(await at.faults(2)).toEqual([]);
  });

  test("takes back no part but its own", async () => {
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

  test.each(["_manifest.json", "_SUCCESS"])("takes back the %s that it published then", async (name) => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const { run } = await begun(late, s3Plan());
    for (const span of [0, 1, 2]) {
      await commitSpan(run, span);
    }
    const { reached, go } = holdFirst(at.proxy, new RegExp(`^PUT .*/${name}`));
    const finishing = run.finish();
    await reached;
    await next.create(s3Plan(2));
    go();
    await expect(finishing).rejects.toMatchObject(overtaken);
    expect(await at.names()).not.toContain(name);
    await carryOutS3(next, 2);
    expect(await at.faults(2)).toEqual([]);
  });

  test("finds a later run's manifest and _SUCCESS, and leaves them", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const { run } = await begun(late, s3Plan());
    for (const span of [0, 1, 2]) {
      await commitSpan(run, span);
    }
    const { reached, go } = holdFirst(at.proxy, /^PUT .*_manifest.json/);
    const finishing = run.finish();
    await reached;
    await carryOutS3(next, 2);
    go();
    await expect(finishing).rejects.toMatchObject(overtaken);
    expect(await at.faults(2)).toEqual([]);
  });

  test("as a second finisher of a swap, does no harm", async () => {
    await using at = await s3World(s3.server());
    await using one = await at.open();
    await using other = await at.open();
    await carryOutS3(one);
    for (const pattern of [/^PUT .*part-00001\.[^/]*-r2\.parquet/, /^DELETE .*_SUCCESS/, /^PUT .*_SUCCESS/]) {
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

  test("is killed then, and what it published is removed by the next command", async () => {
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
