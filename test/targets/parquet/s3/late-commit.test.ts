import { expect, test } from "vitest";
import { spanAt } from "#src/run/plan/spans.js";
import { holdFirst, type HttpProxy } from "../../../support/http-proxy.js";
import { useS3 } from "../../../support/s3.js";
import { carryOutS3, commitSpan, s3Plan, s3World, superseded } from "../../../support/s3-sink-world.js";
import { begun, idsOf, outputOf, rejectOf, whole } from "../../../support/sinks.js";
import { decisionOf } from "../../../support/staged-plans.js";
import { latch } from "../../../support/waiting.js";
import { decisionDocument } from "#src/stores/ledger.js";

const s3 = useS3();

/** Holds the next request of an attempt after the store has carried out one that is like this. */
function holdAfter(proxy: HttpProxy, pattern: RegExp): { reached: Promise<unknown>; go: () => void } {
  const reached = latch<undefined>();
  const gone = latch<undefined>();
  let isNext = false;
  proxy.twist = (request) => {
    if (isNext) {
      proxy.twist = undefined;
      reached.resolve(undefined);
      return { kind: "hold", until: gone.promise };
    }
    isNext = pattern.test(request);
    return undefined;
  };
  return { reached: reached.promise, go: () => gone.resolve(undefined) };
}

s3.describe("an attempt in S3 whose commit ends late", () => {
  test.each([
    { what: "part", request: /^PUT .*out\/part-00002/ },
    { what: "rejects", request: /^PUT .*_rejects/ },
  ])(
    "a late attempt leaves the $what that it created, and another attempt has published, while a later run is planned",
    async ({ request }) => {
      await using at = await s3World(s3.server());
      await using late = await at.open();
      await using other = await at.open();
      const { run } = await begun(late, s3Plan());
      const { reached, go } = holdAfter(at.proxy, request);
      const committing = commitSpan(run, 2);
      await reached;
      await carryOutS3(other);
      await other.create(s3Plan(2));
      go();
      await committing.catch((error: unknown) => {
        expect(error).toMatchObject(superseded);
      });
      await expect(run.finish()).rejects.toMatchObject(superseded);
      expect(await at.faults()).toEqual([]);
      await carryOutS3(other, 2);
      expect(await at.faults(2)).toEqual([]);
    },
  );

  test("an attempt removes the rejects that it created after another one had committed the span with others", async () => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using other = await at.open();
    const { run } = await begun(late, s3Plan());
    const { reached, go } = holdFirst(at.proxy, /^PUT .*_rejects/);
    const span = spanAt(s3Plan(), 2);
    const ids = idsOf(span);
    const committing = run.commit(span, whole(outputOf(ids.slice(1)), ids.slice(0, 1).map(rejectOf)));
    await reached;
    await carryOutS3(other);
    go();
    expect(await committing).toBe("adopted");
    expect(await at.faults()).toEqual([]);
  });

  test("the next command removes rejects that came after the finish of an attempt that was killed", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    await carryOutS3(sink);
    const due = (await at.names()).find((name) => name.startsWith("_rejects/")) ?? "";
    await at.bucket.copy(`lake/out/${due}`, `lake/out/${due.replace(/[0-9a-f]{16}\.jsonl/, "0123456789abcdef.jsonl")}`);
    await carryOutS3(sink);
    expect(await at.faults()).toEqual([]);
  });

  test.each([
    { what: "part", request: /^PUT .*parts\/part-00002/ },
    { what: "rejects", request: /^PUT .*_rejects/ },
  ])("a late attempt retracts the $what that it created after its run was discarded", async ({ request }) => {
    await using at = await s3World(s3.server());
    await using late = await at.open();
    await using other = await at.open();
    const plan = { ...s3Plan(), staged: true };
    const { stored, run } = await begun(late, plan);
    const { reached, go } = holdFirst(at.proxy, request);
    const committing = commitSpan(run, 2);
    await reached;
    await other.ledger.create(stored, decisionDocument, decisionOf("discarded"));
    await (await other.open(stored)).finish();
    go();
    await expect(committing).rejects.toMatchObject({ code: "DISCARDED", exitCode: 67 });
    expect((await at.names()).filter((name) => name.includes("part-"))).toEqual([]);
  });
});
