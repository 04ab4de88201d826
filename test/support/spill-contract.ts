import { expect, test } from "vitest";
import { spanAt } from "#src/run/plan/spans.js";
import type { SinkWorld } from "./sink-contract.js";
import { begun, commitSpans, idsOf, outputOf, planFor, whole } from "./sinks.js";

const allIds = Array.from({ length: 25 }, (_, id) => id);

/** The part of every sink's contract that is about spilled rows: rows of a span that it takes before the span's commit. */
export function spillContract(worldOf: () => Promise<SinkWorld>): void {
  test("a sink publishes spilled rows of a span before those of its commit, all at once", async () => {
    await using world = await worldOf();
    await using sink = await world.open();
    const { stored, run } = await begun(sink, planFor(sink.planTarget));
    const span = spanAt(stored.plan, 0);
    const ids = idsOf(span);
    await run.spill(span, outputOf(ids.slice(0, 3)));
    await run.spill(span, outputOf(ids.slice(3, 4)));
    expect((await sink.open(stored)).spans.size).toBe(0);
    expect(await run.commit(span, whole(outputOf(ids.slice(4))))).toBe("committed");
    await commitSpans(run, stored, (index) => index !== 0);
    await run.finish();
    expect(await world.ids()).toEqual(allIds);
  });

  test("a sink publishes no rows that an attempt spilled for a span which another attempt commits", async () => {
    await using world = await worldOf();
    await using one = await world.open();
    await using other = await world.open();
    const plan = planFor(one.planTarget);
    const [first, second] = [await begun(one, plan), await begun(other, plan)];
    const span = spanAt(plan, 1);
    await first.run.spill(span, outputOf(idsOf(span).slice(0, 5)));
    await commitSpans(second.run, second.stored);
    await second.run.finish();
    expect(await first.run.commit(span, whole(outputOf(idsOf(span).slice(5))))).toBe("adopted");
    expect(await world.ids()).toEqual(allIds);
  });

  test("a sink refuses a commit whose rows, with the spilled ones, are more than the span has", async () => {
    await using world = await worldOf();
    await using sink = await world.open();
    const { stored, run } = await begun(sink, planFor(sink.planTarget));
    const span = spanAt(stored.plan, 0);
    await run.spill(span, outputOf(idsOf(span).slice(0, 3)));
    await expect(run.commit(span, whole(outputOf(idsOf(span))))).rejects.toThrow();
    expect((await sink.open(stored)).spans.size).toBe(0);
  });
}
