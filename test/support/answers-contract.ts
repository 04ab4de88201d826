import { createHash } from "node:crypto";
import { describe, expect } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { Plan } from "#src/run/plan/plan.js";
import { type AnswerJournal, decisionDocument, type LoggedAnswer, verdictDocument } from "#src/stores/ledger.js";
import type { Sink } from "#src/targets/target.js";
import { pruneAt } from "./prune-contract.js";
import { type SinkWorld, testsOf } from "./sink-contract.js";
import { alone } from "./sink-drive.js";
import { begun, collect, commitSpans, planFor } from "./sinks.js";
import { commitProfiled } from "./staging-contract.js";
import { decisionOf, stagedPlan, verdictOf } from "./staged-plans.js";

export function answerOf(n: number, content = `answer ${n}`): LoggedAnswer {
  const request = createHash("sha256").update(`request ${n}`).digest("hex");
  return { request, answer: JSON.stringify({ n, content, finish_reason: "stop", prompt_tokens: 12 }) };
}

export const answersOf = (...numbers: readonly number[]): LoggedAnswer[] => numbers.map((n) => answerOf(n));

const upTo = (end: number): number[] => Array.from({ length: end }, (_, n) => n);

export async function answersIn(journal: Pick<AnswerJournal, "read">): Promise<LoggedAnswer[]> {
  const all = new Map((await collect(journal.read())).map(({ request, answer }) => [request, answer]));
  return inOrder([...all].map(([request, answer]) => ({ request, answer })));
}

export const inOrder = (answers: readonly LoggedAnswer[]): LoggedAnswer[] =>
  answers.toSorted((one, other) => (one.request < other.request ? -1 : 1));

async function journalOf(sink: Sink, plan: Plan) {
  const { stored, run } = await begun(sink, plan);
  return { stored, run, journal: run.answers() };
}

/** What another attempt of the run reads. */
async function readAnew(world: SinkWorld, plan: Plan): Promise<LoggedAnswer[]> {
  await using sink = await world.open();
  const { run, journal } = await journalOf(sink, plan);
  const answers = await answersIn(journal);
  expect(await answersIn({ read: () => run.answers().read() })).toEqual(answers);
  return answers;
}

export interface AnswersWorld extends SinkWorld {
  /** Files, objects or tables of journals that are at the target. */
  readonly journals: () => Promise<readonly string[]>;
}

export function answersContractOf(name: string, worldOf: () => Promise<AnswersWorld>): void {
  const test = testsOf(worldOf);
  describe(name, () => {
    test("an attempt reads the answers that attempts of its run have kept, of all workers", async (world) => {
      await using other = await world.open();
      const plan = planFor(world.sink.planTarget);
      const first = await journalOf(world.sink, plan);
      const second = await journalOf(other, plan);
      expect(await answersIn(first.journal)).toEqual([]);
      await first.journal.keep(answersOf(1, 2));
      await second.journal.keep(answersOf(3));
      await first.journal.keep(answersOf(4));
      await first.journal.keep([]);
      const all = inOrder(answersOf(1, 2, 3, 4));
      expect(await answersIn(first.journal)).toEqual(all);
      expect(await readAnew(world, plan)).toEqual(all);
    });

    test("a journal yields all answers of workers that have paid for the same request", async (world) => {
      await using other = await world.open();
      const plan = planFor(world.sink.planTarget);
      const [first, second] = [await journalOf(world.sink, plan), await journalOf(other, plan)];
      // More than a page of them, with equal requests on both sides of each page's end.
      const many = answersOf(...upTo(1200).map((n) => n + 100));
      await Promise.all([
        first.journal.keep([answerOf(1, "one"), answerOf(2), ...many]),
        second.journal.keep([answerOf(2), answerOf(1, "other"), ...many]),
      ]);
      const found = (await collect(first.journal.read())).map(({ answer }) => answer).toSorted();
      const due = [answerOf(1, "one"), answerOf(1, "other"), ...answersOf(2, 2), ...many, ...many];
      expect(found).toEqual(due.map(({ answer }) => answer).toSorted());
    });

    test("a journal keeps answers of any text and size as they are", async (world) => {
      const plan = planFor(world.sink.planTarget);
      const { journal } = await journalOf(world.sink, plan);
      const texts = [
        "",
        "a\nb\r\n\t\0",
        "\u2028 \ud83d\ude00 \ud800 é",
        '"\\"',
        "x".repeat(3_000_000),
        "y".repeat(3_000_000),
      ];
      const many = texts.map((text, n) => answerOf(n, text));
      const pretty = { ...answerOf(99), answer: '{\n  "content": "a",\r\n  "n": 1\n}' };
      await journal.keep([...many, ...answersOf(...upTo(2100).map((n) => n + 1000))]);
      await journal.keep([pretty]);
      const found = new Map((await readAnew(world, plan)).map(({ request, answer }) => [request, answer]));
      expect(found.size).toBe(many.length + 2101);
      expect(many.filter(({ request, answer }) => found.get(request) !== answer)).toEqual([]);
      expect(JSON.parse(found.get(pretty.request) ?? "")).toEqual({ content: "a", n: 1 });
    });

    test("the journal of a run goes when the run is finished, and a late attempt leaves none for long", async (world) => {
      await using other = await world.open();
      const { stored, run, journal } = await journalOf(world.sink, planFor(world.sink.planTarget));
      const late = await journalOf(other, stored.plan);
      await journal.keep(answersOf(1));
      await late.journal.keep(answersOf(2));
      expect(await world.journals()).not.toEqual([]);
      await commitSpans(run, stored);
      await run.finish();
      expect(await world.journals()).toEqual([]);
      await late.journal.keep(answersOf(3));
      await late.run.finish();
      await late.journal.keep(answersOf(4));
      await (await world.sink.open(stored)).finish();
      expect(await world.journals()).toEqual([]);
      expect(await answersIn(late.journal)).toEqual([]);
    });

    test("the journal of a discarded run goes when it is tidied up", async (world) => {
      const { stored, run, journal } = await journalOf(world.sink, stagedPlan(world.sink.planTarget));
      await journal.keep(answersOf(1));
      await commitProfiled(run, stored);
      await run.create(verdictDocument, verdictOf("hold"));
      expect(await world.journals()).not.toEqual([]);
      await run.create(decisionDocument, decisionOf("discarded"));
      await (await world.sink.open(stored)).finish();
      expect(await world.journals()).toEqual([]);
    });

    test("the journal of a superseded run goes with it, and its attempts keep nothing more", async (world) => {
      await using other = await world.open();
      const { stored, journal } = await journalOf(world.sink, planFor(world.sink.planTarget));
      await journal.keep(answersOf(1));
      const next = await journalOf(other, { ...stored.plan, runId: numberedRunId(stored.plan.runId, 2) });
      await next.journal.keep(answersOf(7));
      await commitSpans(next.run, next.stored);
      expect(await answersIn(next.journal)).toEqual(answersOf(7));
      await next.run.finish();
      await expect(journal.keep(answersOf(2))).rejects.toMatchObject({ code: "PLAN_CHANGED" });
      await (await other.open(next.stored)).finish();
      expect(await world.journals()).toEqual([]);
    });

    test("pruning removes the journal that a late attempt has left", async (world) => {
      await using other = await world.open();
      const plan = { ...planFor(world.sink.planTarget), job: "job" };
      const { stored, run } = await journalOf(world.sink, plan);
      const late = await journalOf(other, plan);
      await commitSpans(run, stored);
      await run.finish();
      await late.journal.keep(answersOf(1));
      expect(await pruneAt(world.sink, plan)).toMatchObject({ kind: "removed" });
      expect(await world.journals()).toEqual([]);
    });

    test("an attempt that begins a finished run has an empty journal, and leaves none behind", async (world) => {
      await using other = await world.open();
      const { stored, run } = await begun(world.sink, planFor(world.sink.planTarget));
      const opened = await other.open(stored);
      await commitSpans(run, stored);
      await run.finish();
      await opened.begin(alone);
      const journal = opened.answers();
      expect(await answersIn(journal)).toEqual([]);
      await journal.keep(answersOf(1));
      await opened.finish();
      expect(await world.journals()).toEqual([]);
    });
  });
}
