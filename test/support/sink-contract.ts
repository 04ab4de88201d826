import { describe, expect, test as plainTest } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import { spanAt } from "#src/run/plan/spans.js";
import type { Removed } from "#src/run/lifecycle/pruned-run.js";
import type { RunSink, Sink } from "#src/targets/target.js";
import { readFiles } from "./parquet.js";
import { alone, beginRun } from "./sink-drive.js";
import { begun, carryOut, collect, commitSpans, idsOf, outputOf, planFor, rejectOf, whole } from "./sinks.js";
import { countSpans } from "#src/run/lifecycle/span-record.js";

/** A target of its own, and what a reader finds there. */
export interface SinkWorld extends AsyncDisposable {
  readonly open: () => Promise<Sink>;
  /** Ids of the rows that a reader finds, in ascending order. */
  readonly ids: () => Promise<number[]>;
  /** A new run adds its rows to those of the run before. */
  readonly adds: boolean;
  /** A reader finds the rows of each span as it is committed; default: of a run that is published. */
  readonly showsSpans?: boolean;
  /** Rows are in files, which runs offer. */
  readonly hasFiles: boolean;
  /** Readers still find the rows of a run that was pruned. */
  readonly keepsPrunedRows: boolean;
  /** What pruning counts of a published run of three spans with one rejected row. */
  readonly prunes: Partial<Removed>;
}

export const ascending = (ids: readonly number[]): number[] => ids.toSorted((one, other) => one - other);
const upTo = (end: number): number[] => Array.from({ length: end }, (_, id) => id);

/** Makes tests of a target of its own, which is opened once for each. */
export function testsOf<W extends SinkWorld>(worldOf: () => Promise<W>) {
  return (title: string, body: (world: W & { readonly sink: Sink }) => Promise<void>): void => {
    plainTest(title, async () => {
      await using world = await worldOf();
      await using sink = await world.open();
      await body({ ...world, sink });
    });
  };
}

/** The part of every sink's contract that is about spilled rows: rows of a span that it takes before the span's commit. */
function spillContract(worldOf: () => Promise<SinkWorld>): void {
  const test = testsOf(worldOf);
  test("a sink publishes spilled rows of a span before those of its commit, all at once", async (world) => {
    const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
    const span = spanAt(stored.plan, 0);
    const ids = idsOf(span);
    await run.spill(span, outputOf(ids.slice(0, 3)));
    await run.spill(span, outputOf(ids.slice(3, 4)));
    expect((await world.sink.open(stored)).spans.size).toBe(0);
    expect(await run.commit(span, whole(outputOf(ids.slice(4))))).toBe("committed");
    await commitSpans(run, stored, (index) => index !== 0);
    await run.finish();
    expect(await world.ids()).toEqual(upTo(25));
  });

  test("a sink publishes no rows that an attempt spilled for a span which another attempt commits", async (world) => {
    await using other = await world.open();
    const plan = planFor(world.sink.planTarget);
    const [first, second] = [await begun(world.sink, plan), await begun(other, plan)];
    const span = spanAt(plan, 1);
    await first.run.spill(span, outputOf(idsOf(span).slice(0, 5)));
    await commitSpans(second.run, second.stored);
    await second.run.finish();
    expect(await first.run.commit(span, whole(outputOf(idsOf(span).slice(5))))).toBe("adopted");
    expect(await world.ids()).toEqual(upTo(25));
  });

  test("a sink refuses a commit whose rows, with the spilled ones, are more than the span has", async (world) => {
    const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
    const span = spanAt(stored.plan, 0);
    await run.spill(span, outputOf(idsOf(span).slice(0, 3)));
    await expect(run.commit(span, whole(outputOf(idsOf(span))))).rejects.toThrow();
    expect((await world.sink.open(stored)).spans.size).toBe(0);
  });
}

export function contractOf(name: string, worldOf: () => Promise<SinkWorld>): void {
  const test = testsOf(worldOf);
  describe(name, () => {
    test("a sink finds no run where none was planned, and leaves nothing behind by searching", async (world) => {
      expect(await world.sink.find(planFor(world.sink.planTarget).runId)).toBeUndefined();
      expect(await world.ids()).toEqual([]);
    });

    test("a sink keeps the first plan, and gives it to others", async (world) => {
      await using other = await world.open();
      const first = await world.sink.create(planFor(world.sink.planTarget));
      const second = await other.create(planFor(other.planTarget, { commitRows: 7 }));
      expect(second).toEqual(first);
      expect(await other.find(first.plan.runId)).toEqual(first);
    });

    test("a sink gives all attempts the same plan when many plan at once", async () => {
      await using world = await worldOf();
      const sinks = await Promise.all(upTo(4).map(() => world.open()));
      try {
        const plans = await Promise.all(
          sinks.map((sink, index) => sink.create(planFor(sink.planTarget, { commitRows: 5 + index }))),
        );
        expect(new Set(plans.map(({ planId }) => planId)).size).toBe(1);
      } finally {
        await Promise.all(sinks.map((sink) => sink[Symbol.asyncDispose]()));
      }
    });

    test("a sink commits spans in any order, and knows them when it is opened again", async (world) => {
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
      for (const index of [2, 0]) {
        const span = spanAt(stored.plan, index);
        expect(await run.commit(span, whole(outputOf(idsOf(span))))).toBe("committed");
      }
      const again = await world.sink.open(stored);
      expect(committedIn(again)).toEqual([0, 2]);
      expect(again.state.kind).toBe("unfinished");
    });

    test("a sink reports once that a span is encoded, before it is committed", async (world) => {
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
      const span = spanAt(stored.plan, 0);
      const told: (number | undefined)[] = [];
      await run.commit(span, { ...whole(outputOf(idsOf(span))), onEncoded: () => told.push(run.spans.size) });
      expect([told, run.spans.size]).toEqual([[0], 1]);
    });

    test("a sink adopts a span that another attempt committed, with any values", async (world) => {
      await using other = await world.open();
      const plan = planFor(world.sink.planTarget);
      const [first, second] = [await begun(world.sink, plan), await begun(other, plan)];
      const span = spanAt(plan, 1);
      expect(await first.run.commit(span, whole(outputOf(idsOf(span))))).toBe("committed");
      expect(await second.run.commit(span, whole(outputOf(idsOf(span), () => 0.5)))).toBe("adopted");
      await commitSpans(second.run, second.stored, (index) => index !== 1);
      await second.run.finish();
      expect(await world.ids()).toEqual(upTo(25));
    });

    spillContract(worldOf);

    test("a sink has one winner when many attempts commit one span at once", async () => {
      await using world = await worldOf();
      const sinks = await Promise.all(upTo(3).map(() => world.open()));
      try {
        const runs = [];
        for (const sink of sinks) {
          runs.push(await begun(sink, planFor(sink.planTarget)));
        }
        const span = spanAt(planFor({ kind: "parquet", uri: "" }), 0);
        const outcomes = await Promise.all(runs.map(({ run }) => run.commit(span, whole(outputOf(idsOf(span))))));
        expect(outcomes.filter((outcome) => outcome === "committed")).toHaveLength(1);
        const [first] = runs;
        if (first !== undefined) {
          await commitSpans(first.run, first.stored, (index) => index !== 0);
          await first.run.finish();
        }
        expect(await world.ids()).toEqual(upTo(25));
      } finally {
        await Promise.all(sinks.map((sink) => sink[Symbol.asyncDispose]()));
      }
    });

    test("a sink keeps rejected rows with the rows of their span, in order", async (world) => {
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
      const [first, second, third] = [0, 1, 2].map((index) => spanAt(stored.plan, index)) as [never, never, never];
      await run.commit(third, whole(outputOf([]), [20, 21, 22, 23, 24].map(rejectOf)));
      await run.commit(first, whole(outputOf(upTo(8)), [rejectOf(8), { ...rejectOf(9), value: "a ' \" \\ \n ä 日" }]));
      await run.commit(second, whole(outputOf(idsOf(second))));
      await run.finish();

      const again = await world.sink.open(stored);
      expect(countSpans(again.spans).rejected).toBe(7);
      const rejects = await collect(again.rejects());
      expect(rejects.map(({ row }) => row)).toEqual([8, 9, 20, 21, 22, 23, 24]);
      expect(rejects[1]).toEqual({ ...rejectOf(9), value: "a ' \" \\ \n ä 日" });
      expect(await world.ids()).toEqual([...upTo(8), ...idsOf(second)]);
    });

    test("a sink counts filtered rows as part of their span", async (world) => {
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
      const [first, second, third] = [0, 1, 2].map((index) => spanAt(stored.plan, index)) as [never, never, never];
      const kept = { ...whole(outputOf(upTo(6)), [rejectOf(6)]), filtered: 3 };
      expect(await run.commit(first, kept)).toBe("committed");
      expect(await run.commit(second, { ...whole(outputOf([])), filtered: 10 })).toBe("committed");
      await expect(run.commit(third, { ...whole(outputOf(idsOf(third))), filtered: 1 })).rejects.toThrow();
      const again = await world.sink.open(stored);
      expect([committedIn(again), countSpans(again.spans).rejected]).toEqual([[0, 1], 1]);
      await run.commit(third, whole(outputOf(idsOf(third))));
      await run.finish();
      expect(await world.ids()).toEqual([...upTo(6), ...idsOf(third)]);
    });

    test("a sink knows what it commits itself, reads what others commit, and who did", async (world) => {
      await using other = await world.open();
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget), { ...alone, workers: 2 });
      const second = { ...alone, worker: 1, workers: 2, onBadRow: "fail" } as const;
      const beside = await begun(other, stored.plan, second);
      const [first, middle, last] = [0, 1, 2].map((index) => spanAt(stored.plan, index)) as [never, never, never];
      await run.commit(first, whole(outputOf(idsOf(first).slice(1)), [rejectOf(0)]));
      await beside.run.commit(last, { ...whole(outputOf(idsOf(last))), batchSize: 7 });
      expect([committedIn(run), countSpans(run.spans).rejected]).toEqual([[0], 1]);
      expect([committedIn(beside.run), countSpans(beside.run.spans).rejected]).toEqual([[2], 0]);

      await beside.run.refresh();
      expect([committedIn(beside.run), countSpans(beside.run.spans).rejected]).toEqual([[0, 2], 1]);
      expect(await run.commit(last, whole(outputOf(idsOf(last))))).toBe("adopted");
      expect(committedIn(run)).toEqual([0, 2]);
      for (const { spans } of [run, beside.run, await world.sink.open(stored)]) {
        expect([spans.get(1), spans.get(2)?.maker]).toMatchObject([undefined, { ...second, batchSize: 7 }]);
        expect(spans.get(0)?.maker.writer).not.toBe(spans.get(2)?.maker.writer);
      }
      await run.commit(middle, whole(outputOf(idsOf(middle))));
      await run.finish();
      expect(await world.ids()).toEqual(upTo(25).slice(1));
    });

    test("a sink finds the latest run of one job and its params, and readers find that run's rows", async (world) => {
      const plan = planFor(world.sink.planTarget);
      await carryOut(world.sink, plan);
      let finished = 1;
      for (const number of [2, 3]) {
        const next = { ...plan, runId: numberedRunId(plan.runId, number) };
        expect((await world.sink.create(next)).plan.runId).toBe(next.runId);
        expect((await world.sink.find(plan.runId))?.plan.runId).toBe(next.runId);
        await carryOut(world.sink, next);
        finished += 1;
        const all = Array.from({ length: world.adds ? finished : 1 }, () => upTo(25));
        expect(await world.ids()).toEqual(ascending(all.flat()));
      }
      const stored = await world.sink.find(plan.runId);
      expect(stored?.plan.runId).toBe(numberedRunId(plan.runId, 3));
      expect(stored === undefined ? undefined : (await world.sink.open(stored)).state.kind).toBe("published");
    });

    test("a sink plans no run that one after it has overtaken", async (world) => {
      const { sink } = world;
      const plan = planFor(sink.planTarget);
      const { plan: later } = await sink.create({ ...plan, runId: numberedRunId(plan.runId, 2) });
      await expect(sink.create(plan)).rejects.toMatchObject({ code: "PLAN_CHANGED" });
      expect((await sink.find(plan.runId))?.plan.runId).toBe(later.runId);
    });

    test("a sink commits and finishes nothing of a superseded run", async (world) => {
      await using other = await world.open();
      const plan = planFor(world.sink.planTarget);
      const old = await begun(world.sink, plan);
      await commitSpans(old.run, old.stored, (index) => index !== 1);
      const next = await begun(other, { ...plan, runId: numberedRunId(plan.runId, 2) });
      const span = spanAt(plan, 1);
      const steps = [
        () => old.run.commit(span, whole(outputOf(idsOf(span)))),
        async () => (await world.sink.open(old.stored)).begin(alone),
        () => old.run.finish(),
      ];
      const expectRefused = async (): Promise<void> => {
        for (const step of steps) {
          await expect(step()).rejects.toMatchObject({ code: "PLAN_CHANGED", message: expect.stringMatching(/after/) });
        }
      };
      await expectRefused();
      await commitSpans(next.run, next.stored);
      await expectRefused();
      await next.run.finish();
      await expectRefused();
      const before = upTo(25).filter((id) => id < 10 || id >= 20);
      expect(await world.ids()).toEqual(world.showsSpans === true ? ascending([...before, ...upTo(25)]) : upTo(25));
    });

    test("a sink that has files offers the rows of committed spans as files on this machine", async (world) => {
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
      await commitSpans(run, stored);
      await run.finish();
      const ids: number[] = [];
      const parts = world.hasFiles ? await (await world.sink.open(stored)).read([]) : undefined;
      for await (const paths of parts?.groups ?? []) {
        expect(paths.every((path) => path.startsWith(parts?.folder ?? "none"))).toBe(true);
        ids.push(...(await readFiles([...paths])).map(({ id }) => Number(id)));
      }
      expect(ascending(ids)).toEqual(world.hasFiles ? upTo(25) : []);
    });

    test("a sink refuses to commit fewer rows than the span has", async (world) => {
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
      await expect(run.commit(spanAt(stored.plan, 0), whole(outputOf(upTo(9))))).rejects.toThrow();
      expect((await world.sink.open(stored)).spans.size).toBe(0);
    });

    test("a sink finishes a run once, however often it is asked to", async (world) => {
      await using other = await world.open();
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
      const beside = await beginRun(other, stored);
      await commitSpans(run, stored);
      await Promise.all([run.finish(), beside.finish()]);
      await run.finish();
      const again = await world.sink.open(stored);
      expect([again.state.kind, ...committedIn(again)]).toEqual(["published", 0, 1, 2]);
      expect(await world.ids()).toEqual(upTo(25));
    });

    test("a late attempt at a sink finds the run finished, and makes nothing anew", async (world) => {
      await using other = await world.open();
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
      const opened = await other.open(stored);
      await commitSpans(run, stored);
      await run.finish();
      await other.create(stored.plan);
      const late = await opened.begin(alone);
      const span = spanAt(stored.plan, 1);
      expect(await late.commit(span, whole(outputOf(idsOf(span))))).toBe("adopted");
      await opened.finish();
      expect(await world.ids()).toEqual(upTo(25));
    });

    test("a sink does not finish a run while a span is missing", async (world) => {
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
      await commitSpans(run, stored, (index) => index !== 1);
      await expect(run.finish()).rejects.toMatchObject({ exitCode: expect.toBeOneOf([66, 75]) as number });
      expect((await world.sink.open(stored)).state.kind).toBe("unfinished");
    });

    test("a sink does not commit by being closed", async () => {
      await using world = await worldOf();
      const plan = await (async () => {
        await using sink = await world.open();
        const { stored, run } = await begun(sink, planFor(sink.planTarget));
        await commitSpans(run, stored, (index) => index === 0);
        return stored;
      })();
      await using sink = await world.open();
      const run = await sink.open(plan);
      expect(committedIn(run)).toEqual([0]);
      expect(run.state.kind).toBe("unfinished");
    });
  });
}

const committedIn = ({ spans }: Pick<RunSink, "spans">): number[] => [...spans.keys()].toSorted((a, b) => a - b);
