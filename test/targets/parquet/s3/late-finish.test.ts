import { expect, test } from "vitest";
import type { Sink } from "#src/targets/target.js";
import { holdFirst, s3Error, type Twist } from "../../../support/http-proxy.js";
import { useS3 } from "../../../support/s3.js";
import {
  carryOutS3,
  commitSpan,
  committedS3,
  s3Plan,
  type S3World,
  s3World,
  superseded,
} from "../../../support/s3-sink-world.js";
import { begun } from "../../../support/sinks.js";
import { decisionOf } from "../../../support/staged-plans.js";
import { firstOf } from "../../../support/torture.js";
import { latch, until } from "../../../support/waiting.js";
import { decisionDocument } from "#src/stores/ledger.js";

const s3 = useS3();

const runWithoutRows = { ...s3Plan(2), input: { ...s3Plan(2).input, rows: 0, shards: [] } };

const copyOf = (number: number): RegExp => new RegExp(`^PUT .*part-00001\\.[^/]*-r${number}\\.parquet`);
const removalOfFirst = /^DELETE .*part-00001\.[^/-]*-[0-9a-f]+\.parquet/;

function stopAt(pattern: RegExp) {
  const { promise, resolve } = latch<undefined>();
  let reached = 0;
  return {
    reached: () => reached,
    twist(request: string): Twist | undefined {
      if (!pattern.test(request)) {
        return undefined;
      }
      reached += 1;
      return { kind: "hold", until: promise };
    },
    go: () => resolve(undefined),
  };
}

async function partsOf(at: S3World, number = 1): Promise<number> {
  const suffix = number === 1 ? "job-000000000000.parquet" : `-r${number}.parquet`;
  return (await at.names()).filter((name) => name.startsWith("part-") && name.endsWith(suffix)).length;
}

async function stoppedFinish(
  at: S3World,
  late: Sink,
  request: RegExp,
): Promise<{ readonly go: () => void; readonly finishing: Promise<unknown> }> {
  const run = await committedS3(late, 1);
  const { reached, go } = holdFirst(at.proxy, request);
  const finishing = run.finish();
  await reached;
  return { go, finishing };
}

/** A finish of the second run that stands before it copies a part. `isPublished`: another attempt finishes the run then. */
async function stoppedSwap(
  at: S3World,
  { late, other }: { readonly late: Sink; readonly other: Sink },
  isPublished: boolean,
): Promise<{ readonly go: () => void; readonly finishing: Promise<unknown> }> {
  await carryOutS3(late);
  const run = await committedS3(late, 2);
  const beside = await begun(other, s3Plan(2));
  await beside.run.refresh();
  const { reached, go } = holdFirst(at.proxy, copyOf(2));
  const finishing = run.finish().catch((error: unknown) => error);
  await reached;
  await (isPublished ? beside.run.finish() : undefined);
  return { go, finishing };
}

s3.describe("a late attempt in S3 that publishes its run after a later run was planned", () => {
  test.each(firstOf(["_SUCCESS", "_manifest.json"]))(
    "a late attempt retracts the %s that it published after a later run had copied its parts",
    async (name) => {
      await using at = await s3World(s3.server());
      await using late = await at.open();
      await using next = await at.open();
      const { go, finishing } = await stoppedFinish(at, late, new RegExp(`^PUT .*/${name}`));
      const later = await committedS3(next, 2);
      at.proxy.twist = (request) => (removalOfFirst.test(request) ? s3Error(403, "AccessDenied") : undefined);
      await expect(later.finish()).rejects.toThrow("AccessDenied");
      at.proxy.twist = undefined;
      go();
      await expect(finishing).rejects.toMatchObject(superseded);
      expect(await at.names()).not.toContain(name);
      await carryOutS3(next, 2);
      expect(await at.faults(2)).toEqual([]);
    },
  );

  test("a late attempt retracts its _SUCCESS if the later run has no rows, and so no part to see", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const { go, finishing } = await stoppedFinish(at, late, /^PUT .*\/_SUCCESS/);
    await next.create(runWithoutRows);
    go();
    await expect(finishing).rejects.toMatchObject(superseded);
    expect(await at.names()).not.toContain("_SUCCESS");
  });

  test("a late attempt retracts its _SUCCESS if the plan of the later run is damaged", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    const { go, finishing } = await stoppedFinish(at, late, /^PUT .*\/_SUCCESS/);
    await at.bucket.put(`lake/out/_infer-batch/${s3Plan(2).runId}/plan.json`, "{}");
    go();
    await expect(finishing).rejects.toMatchObject(superseded);
    expect(await at.names()).not.toContain("_SUCCESS");
  });

  test.each(
    firstOf([
      { later: "approved", spans: [0, 1, 2], isApproved: true },
      { later: "unfinished", spans: [0], isApproved: false },
      { later: "complete and not approved", spans: [0, 1, 2], isApproved: false },
    ]),
  )(
    "a late attempt publishes its run if a later run is $later, which then replaces it",
    async ({ spans, isApproved }) => {
      await using at = await s3World(s3.server());
      await using late = await at.open();
      await using next = await at.open();
      const { go, finishing } = await stoppedFinish(at, late, /^PUT .*\/_SUCCESS/);
      const { run: later } = await begun(next, { ...s3Plan(2), staged: true });
      for (const span of spans) {
        await commitSpan(later, span, 2);
      }
      await (isApproved ? later.create(decisionDocument, decisionOf("approved")) : undefined);
      go();
      await finishing;
      expect(await at.names()).toContain("_SUCCESS");
      expect(await at.faultsMidway()).toEqual([]);
      for (const span of [0, 1, 2].slice(spans.length)) {
        await commitSpan(later, span, 2);
      }
      await later.create(decisionDocument, decisionOf("approved"));
      await later.finish();
      expect(await at.faults(2)).toEqual([]);
    },
  );

  test("a run removes the _SUCCESS that a late attempt of an earlier run creates before it can see a copy", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using next = await at.open();
    const run = await committedS3(late, 1);
    const [success, copies, removal] = [
      stopAt(/^PUT .*\/_SUCCESS/),
      stopAt(/^PUT .*-r2\.parquet/),
      stopAt(removalOfFirst),
    ];
    at.proxy.twist = (request) => success.twist(request) ?? copies.twist(request) ?? removal.twist(request);
    const finishing = run.finish();
    await until(() => success.reached() === 1);
    const replacing = (await committedS3(next, 2)).finish();
    await until(() => copies.reached() === 3);
    success.go();
    await finishing;
    expect(await at.names()).toContain("_SUCCESS");
    expect(await at.faultsMidway()).toEqual([]);
    copies.go();
    await until(() => removal.reached() === 1);
    expect(await at.names()).not.toContain("_SUCCESS");
    removal.go();
    await replacing;
    expect(await at.faults(2)).toEqual([]);
  });
});

s3.describe("a late attempt in S3 that copies parts after a later run was planned", () => {
  test.each(
    firstOf([
      { later: "unfinished", plan: s3Plan(3), spans: [0] },
      { later: "approved", plan: { ...s3Plan(3), staged: true }, spans: [0, 1, 2] },
      { later: "complete", plan: s3Plan(3), spans: [0, 1, 2] },
    ]),
  )(
    "a late attempt leaves the parts of its own run, which another attempt has published, while the later run is $later",
    async ({ plan, spans }) => {
      await using at = await s3World(s3.server());
      await using late = await at.open();
      await using other = await at.open();
      const { go, finishing } = await stoppedSwap(at, { late, other }, true);
      const { run: later } = await begun(other, plan);
      for (const span of spans) {
        await commitSpan(later, span, 3);
      }
      await (plan.staged ? later.create(decisionDocument, decisionOf("approved")) : undefined);
      go();
      expect(await finishing).toMatchObject(superseded);
      expect(await partsOf(at, 2)).toBe(3);
      expect(await at.faultsMidway()).toEqual([]);
    },
  );

  test("a late attempt that cannot read the later run's plan leaves the parts of its own run", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using other = await at.open();
    const { go, finishing } = await stoppedSwap(at, { late, other }, true);
    await other.create(s3Plan(3));
    at.proxy.twist = (request) => (/^GET .*-r3\/plan\.json/.test(request) ? s3Error(403, "AccessDenied") : undefined);
    go();
    expect(await finishing).toMatchObject({ code: "PERMISSION" });
    at.proxy.twist = undefined;
    expect(await partsOf(at, 2)).toBe(3);
  });

  test("a late attempt retracts its copies if one of its staged parts is gone, because no attempt can publish its run", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using other = await at.open();
    const { go, finishing } = await stoppedSwap(at, { late, other }, false);
    const { run: later } = await begun(other, { ...s3Plan(3), staged: true });
    await later.create(decisionDocument, decisionOf("discarded"));
    const found = await other.find(s3Plan().runId);
    await (found && (await other.open(found)).finish());
    go();
    expect(await finishing).toMatchObject(superseded);
    expect([await partsOf(at), await partsOf(at, 2)]).toEqual([3, 0]);
  });

  test("a late attempt whose run is not published leaves the parts of the run before it", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using other = await at.open();
    const { go, finishing } = await stoppedSwap(at, { late, other }, false);
    await begun(other, s3Plan(3));
    go();
    expect(await finishing).toMatchObject(superseded);
    expect(await partsOf(at)).toBe(3);
    await carryOutS3(other, 3);
    expect(await at.faults(3)).toEqual([]);
  });
});
