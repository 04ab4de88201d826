import { expect, test } from "vitest";
import { holdFirst } from "../../../support/http-proxy.js";
import { useS3 } from "../../../support/s3.js";
import { carryOutS3, commitSpan, committedS3, s3Plan, s3World, superseded } from "../../../support/s3-sink-world.js";
import { begun } from "../../../support/sinks.js";
import { decisionOf } from "../../../support/staged-plans.js";

const s3 = useS3();

s3.describe("a late attempt in S3 that publishes its run after a later run was planned", () => {
  test.each(["_manifest.json", "_SUCCESS"])(
    "a late attempt takes back the %s that it published after a later run had committed all of its spans",
    async (name) => {
      await using at = await s3World(s3.server());
      await using late = await at.open();
      await using next = await at.open();
      const run = await committedS3(late, 1);
      const { reached, go } = holdFirst(at.proxy, new RegExp(`^PUT .*/${name}`));
      const finishing = run.finish();
      await reached;
      const later = await committedS3(next, 2);
      go();
      await expect(finishing).rejects.toMatchObject(superseded);
      expect(await at.names()).not.toContain(name);
      await later.finish();
      expect(await at.faults(2)).toEqual([]);
    },
  );

  test.each([
    { does: "leaves", later: "not approved", isApproved: false },
    { does: "takes back", later: "approved", isApproved: true },
  ])(
    "a late attempt $does the _SUCCESS that it published if a later run has all of its spans and is $later",
    async ({ isApproved }) => {
      await using at = await s3World(s3.server());
      await using late = await at.open();
      await using next = await at.open();
      const run = await committedS3(late, 1);
      const { reached, go } = holdFirst(at.proxy, /^PUT .*\/_SUCCESS/);
      const finishing = run.finish();
      await reached;
      const { run: later } = await begun(next, { ...s3Plan(2), staged: true });
      for (const span of [0, 1, 2]) {
        await commitSpan(later, span, 2);
      }
      await (isApproved ? later.decide(decisionOf("approved")) : undefined);
      go();
      await (isApproved ? expect(finishing).rejects.toMatchObject(superseded) : finishing);
      expect((await at.names()).includes("_SUCCESS")).toBe(!isApproved);
      expect(await at.faultsMidway()).toEqual([]);
      await (isApproved ? undefined : later.decide(decisionOf("approved")));
      await later.finish();
      expect(await at.faults(2)).toEqual([]);
    },
  );

  test("a late attempt publishes its run after a later run was planned, which replaces it when it is complete", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const run = await committedS3(late, 1);
    const { reached, go } = holdFirst(at.proxy, /^PUT .*\/_SUCCESS/);
    const finishing = run.finish();
    await reached;
    const { run: later } = await begun(next, s3Plan(2));
    await commitSpan(later, 0, 2);
    go();
    await finishing;
    expect(await at.names()).toContain("_SUCCESS");
    expect(await at.faultsMidway()).toEqual([]);
    await carryOutS3(next, 2);
    expect(await at.faults(2)).toEqual([]);
  });

  test("a late attempt whose staged part the planned later run has removed is refused", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    await carryOutS3(late);
    const run = await committedS3(late, 2);
    const { reached, go } = holdFirst(at.proxy, /^PUT .*part-00001\.[^/]*-r2\.parquet/);
    const finishing = run.finish();
    await reached;
    await begun(next, s3Plan(3));
    go();
    await expect(finishing).rejects.toMatchObject(superseded);
    await carryOutS3(next, 3);
    expect(await at.faults(3)).toEqual([]);
  });

  test("a late attempt leaves the parts of its own run, which another attempt has published, to readers and to the later run", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using other = await at.open();
    await carryOutS3(late);
    const run = await committedS3(late, 2);
    const beside = await begun(other, s3Plan(2));
    await beside.run.refresh();
    const { reached, go } = holdFirst(at.proxy, /^PUT .*part-00001\.[^/]*-r2\.parquet/);
    const finishing = run.finish();
    await reached;
    await beside.run.finish();
    await other.create(s3Plan(3));
    go();
    await expect(finishing).rejects.toMatchObject(superseded);
    expect((await at.names()).filter((name) => /^part-.*-r2\.parquet$/.test(name))).toHaveLength(3);
    expect(await at.faultsMidway()).toEqual([]);
  });
});
