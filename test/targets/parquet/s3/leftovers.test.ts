import { expect, test } from "vitest";
import { holdFirst, s3Error } from "../../../support/http-proxy.js";
import { useS3 } from "../../../support/s3.js";
import { carryOutS3, commitSpan, s3Plan, s3World } from "../../../support/s3-sink-world.js";
import { begun } from "../../../support/sinks.js";

const s3 = useS3();

s3.describe("parts that stay staged in S3", () => {
  test("staged parts in S3 are removed by the finish of the run that replaces theirs", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    await carryOutS3(sink);
    const { run } = await begun(sink, s3Plan(2));
    await commitSpan(run, 0, 2);
    await commitSpan(run, 1, 2);
    await carryOutS3(sink, 3);
    expect(await at.faults(3)).toEqual([]);
  });

  test("staged parts in S3 are removed when their finisher died and another attempt finds the run finished", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    await using other = await at.open();
    await carryOutS3(sink);
    const { stored, run } = await begun(sink, s3Plan(2));
    const beside = await begun(other, stored.plan);
    for (const span of [0, 1, 2]) {
      await commitSpan(run, span, 2);
    }
    await beside.run.refresh();
    at.proxy.twist = (request) =>
      /^DELETE .*part-00001.*staged/.test(request) ? s3Error(403, "AccessDenied") : undefined;
    await expect(beside.run.finish()).rejects.toThrow("AccessDenied");
    at.proxy.twist = undefined;
    expect((await at.names()).join()).toMatch(/part-00001.*staged/);
    await run.finish();
    expect(await at.faults(2)).toEqual([]);
  });

  test("a staged part that arrives in S3 after the finish is removed by the attempt that sent it", async () => {
    await using at = await s3World(s3.server());
    await using slow = await at.open();
    await using fast = await at.open();
    await carryOutS3(slow);
    const { stored, run } = await begun(slow, s3Plan(2));
    const beside = await begun(fast, stored.plan);
    const { reached, go } = holdFirst(at.proxy, /^PUT .*part-00001.*staged/);
    const slowly = commitSpan(run, 1, 2);
    await reached;
    for (const span of [0, 1, 2]) {
      await commitSpan(beside.run, span, 2);
    }
    await beside.run.finish();
    expect(await at.faults(2)).toEqual([]);
    go();
    await slowly;
    expect((await at.names()).filter((name) => name.endsWith(".staged"))).toHaveLength(1);
    await run.finish();
    expect(await at.faults(2)).toEqual([]);
  });
});
