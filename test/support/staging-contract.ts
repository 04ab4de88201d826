import { describe, expect } from "vitest";
import { profileRows, profileText } from "#src/checks/profile/profile.js";
import type { SpanOutput } from "#src/columns/types.js";
import { numberedRunId } from "#src/run/plan/identity.js";
import { spanAt, spanCount } from "#src/run/plan/spans.js";
import type { Sink, StoredPlan } from "#src/targets/target.js";
import { type SinkWorld, testsOf } from "./sink-contract.js";
import { beginRun, type BegunRun } from "./sink-drive.js";
import { begun, idsOf, outputOf, whole } from "./sinks.js";
import { decisionOf, stagedPlan, verdictOf } from "./staged-plans.js";
import { toldAt } from "./told.js";
import { decisionDocument, verdictDocument } from "#src/stores/ledger.js";

const upTo = (end: number): number[] => Array.from({ length: end }, (_, id) => id);

/** A span's output with its profile, as a run hands it to its sink. */
function profiled(ids: readonly number[], scoreOf?: (id: number) => number): SpanOutput {
  const rows = outputOf(ids, scoreOf);
  return {
    ...whole(rows),
    profile: profileText(profileRows(rows, { predicted: [{ name: "score" }], carried: [], bins: 100 })),
  };
}

/** Commits spans of a run that are not committed yet, with their profiles. */
export async function commitProfiled(
  run: BegunRun,
  { plan }: StoredPlan,
  which: (span: number) => boolean = () => true,
): Promise<void> {
  for (const index of upTo(spanCount(plan)).filter((span) => which(span) && !run.spans.has(span))) {
    const span = spanAt(plan, index);
    await run.commit(span, profiled(idsOf(span)));
  }
}

/** A score as DuckDB writes it ("1.0") or as Postgres does ("1"). */
const scoreText = (text: string): unknown => expect.stringMatching(new RegExp(`^${text}(\\.0)?$`));

async function committedRun(sink: Sink, how = {}): Promise<{ stored: StoredPlan; run: BegunRun }> {
  const { stored, run } = await begun(sink, stagedPlan(sink.planTarget, how));
  await commitProfiled(run, stored);
  return { stored, run };
}

export function stagingContractOf(name: string, worldOf: () => Promise<SinkWorld>): void {
  const test = testsOf(worldOf);
  describe(name, () => {
    test("a sink shows no row of a staged run before it is approved and finished", async (world) => {
      const { run } = await committedRun(world.sink);
      expect(await world.ids()).toEqual([]);
      await expect(run.finish()).rejects.toMatchObject({ code: "HELD" });
      await run.create(verdictDocument, verdictOf("hold", "w1"));
      await expect(run.finish()).rejects.toMatchObject({ code: "HELD" });
      expect(await world.ids()).toEqual([]);
      await run.create(decisionDocument, decisionOf("approved", "ann"));
      expect(await world.ids()).toEqual([]);
      await run.finish();
      expect(await world.ids()).toEqual(upTo(25));
    });

    test("a sink counts the keys that repeat among the rows of all spans", async (world) => {
      const { stored, run } = await begun(world.sink, stagedPlan(world.sink.planTarget));
      for (const index of upTo(spanCount(stored.plan))) {
        await run.commit(
          spanAt(stored.plan, index),
          profiled(idsOf(spanAt(stored.plan, index)), (id) => id % 20),
        );
      }
      expect(await run.countKeys(["score"])).toEqual({
        repeated: 5,
        nulls: 0,
        examples: ["0", "1", "2"].map(scoreText),
      });
      expect(await run.countKeys(["score", "id"])).toEqual({ repeated: 0, nulls: 0, examples: [] });
    });

    test("a sink tells the state of a staged run by what is stored of it", async (world) => {
      const { stored, run } = await committedRun(world.sink);
      const states: string[] = [];
      const look = async (): Promise<void> => {
        await using other = await world.open();
        states.push((await other.open(stored)).state.kind);
      };
      await look();
      await run.create(verdictDocument, verdictOf("hold", "w1"));
      await look();
      await run.create(decisionDocument, decisionOf("approved", "ann"));
      await look();
      await run.finish();
      await look();
      expect(states).toEqual(["unfinished", "held", "approved", "published"]);
    });

    test("a sink lets another attempt publish what was approved, any number of times", async () => {
      await using world = await worldOf();
      const stored = await (async () => {
        await using sink = await world.open();
        const committed = await committedRun(sink);
        await committed.run.create(verdictDocument, verdictOf("hold", "w1"));
        await committed.run.create(decisionDocument, decisionOf("approved", "ann"));
        return committed.stored;
      })();
      for (const _ of [1, 2]) {
        await using sink = await world.open();
        await (await beginRun(sink, stored)).finish();
      }
      expect(await world.ids()).toEqual(upTo(25));
    });

    test("a sink publishes nothing of a discarded run, and removes its rows at its end", async (world) => {
      const { stored, run } = await committedRun(world.sink);
      await run.create(verdictDocument, verdictOf("hold", "w1"));
      await run.create(decisionDocument, decisionOf("discarded", "ann"));
      expect(await run.finish()).toBe("discarded");
      expect(await run.finish()).toBe("discarded");
      expect((await world.sink.open(stored)).state).toMatchObject({ kind: "discarded", decision: { by: "ann" } });
      expect(await world.ids()).toEqual([]);
    });

    test("a sink takes no more spans of a run that is discarded while an attempt scores it", async (world) => {
      const { stored, run } = await begun(world.sink, stagedPlan(world.sink.planTarget));
      await commitProfiled(run, stored, (span) => span === 0);
      const last = spanAt(stored.plan, 2);
      const [first = 0, ...rest] = idsOf(last);
      await run.spill(last, outputOf([first]));
      await using other = await world.open();
      const theirs = await other.open(stored);
      await other.ledger.create(stored, decisionDocument, decisionOf("discarded", "ann"));
      const late = (): Promise<void> => commitProfiled(run, stored, (span) => span === 1);
      await expect(late()).rejects.toMatchObject({ code: "DISCARDED", exitCode: 67 });
      await theirs.finish();
      await expect(late()).rejects.toMatchObject({ code: "DISCARDED", exitCode: 67 });
      await expect(run.commit(last, profiled(rest))).rejects.toMatchObject({ code: "DISCARDED", exitCode: 67 });
      await run.finish();
      expect((await other.open(stored)).spans.has(1)).toBe(false);
    });

    test("a discarded run leaves the rows of the published run before it, also when it is tidied up", async (world) => {
      const published = await committedRun(world.sink);
      await published.run.create(decisionDocument, decisionOf("approved", "checks"));
      await published.run.finish();
      const runId = numberedRunId(published.stored.plan.runId, 2);
      const { run } = await committedRun(world.sink, { runId, rows: 13 });
      await run.create(verdictDocument, verdictOf("hold", "w1"));
      await run.create(decisionDocument, decisionOf("discarded", "ann"));
      await run.finish();
      expect(await world.ids()).toEqual(upTo(25));
    });

    test("a sink keeps the first verdict, and gives it to all that judge at once", async (world) => {
      const { stored } = await committedRun(world.sink);
      const verdicts = await Promise.all(
        upTo(4).map(async (writer) => {
          await using other = await world.open();
          const outcome = writer % 2 === 0 ? "hold" : "publish";
          return await other.ledger.create(stored, verdictDocument, verdictOf(outcome, `w${writer}`));
        }),
      );
      expect(new Set(verdicts.map(({ writer }) => writer)).size).toBe(1);
      expect(await toldAt(world.sink, stored.plan.runId).verdict()).toEqual(verdicts[0]);
    });

    test("a sink keeps the first decision, and gives it to all that decide at once", async (world) => {
      const { stored } = await committedRun(world.sink);
      const kinds = ["approved", "discarded", "superseded", "approved"] as const;
      const decisions = await Promise.all(
        kinds.map(async (kind, index) => {
          await using other = await world.open();
          return await other.ledger.create(stored, decisionDocument, decisionOf(kind, `person ${index}`));
        }),
      );
      expect(new Set(decisions.map(({ by }) => by)).size).toBe(1);
      const late = await world.sink.ledger.create(stored, decisionDocument, decisionOf("discarded", "late"));
      expect(late).toEqual(decisions[0]);
      const { state } = await world.sink.open(stored);
      expect(state).toMatchObject({ kind: decisions[0]?.kind, decision: { by: decisions[0]?.by } });
    });

    test("a sink merges the profiles of spans that several attempts committed, in any order", async () => {
      const texts = await Promise.all(
        [[[0, 1, 2]], [[2], [0], [1]], [[1, 0], [2]]].map(async (attempts) => {
          await using world = await worldOf();
          const plan = await (async () => {
            await using sink = await world.open();
            return stagedPlan(sink.planTarget);
          })();
          for (const spans of attempts) {
            await using sink = await world.open();
            const { stored, run } = await begun(sink, plan);
            for (const span of spans) {
              await commitProfiled(run, stored, (index) => index === span);
            }
          }
          await using sink = await world.open();
          const found = await (await sink.open(await sink.create(plan))).profile();
          return profileText(found);
        }),
      );
      const rows = outputOf(upTo(25));
      expect(texts).toEqual(
        texts.map(() => profileText(profileRows(rows, { predicted: [{ name: "score" }], carried: [], bins: 100 }))),
      );
    });

    test("a sink takes the profile of the attempt that committed a span, not of one that adopts it", async (world) => {
      await using other = await world.open();
      const { stored, run } = await begun(world.sink, stagedPlan(world.sink.planTarget));
      const late = await begun(other, stored.plan);
      await commitProfiled(run, stored);
      for (const index of upTo(3)) {
        const span = spanAt(stored.plan, index);
        expect(
          await late.run.commit(
            span,
            profiled(idsOf(span), () => 1000),
          ),
        ).toBe("adopted");
      }
      const [one, two] = [await run.profile(), await late.run.profile()];
      const textOf = (found: typeof one): string => (found === undefined ? "" : profileText(found));
      expect(textOf(two)).toBe(textOf(one));
      expect(one).toBeDefined();
    });

    test("a run that takes the place of a discarded one shows its own rows only", async (world) => {
      const { stored, run } = await committedRun(world.sink);
      await run.create(decisionDocument, decisionOf("discarded", "ann"));
      const runId = numberedRunId(stored.plan.runId, 2);
      const next = await committedRun(world.sink, { runId, rows: 13 });
      await next.run.create(verdictDocument, verdictOf("publish", "w2"));
      await next.run.create(decisionDocument, decisionOf("approved", "checks"));
      await next.run.finish();
      expect(await world.ids()).toEqual(upTo(13));
      expect(await run.finish()).toBe("discarded");
      expect(await world.ids()).toEqual(upTo(13));
    });
  });
}
