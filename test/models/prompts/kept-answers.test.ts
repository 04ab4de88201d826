import { expect, test } from "vitest";
import type { KeptAnswer } from "#src/models/engine.js";
import { setTimeout as sleep } from "node:timers/promises";
import { modelAnswer as answer } from "../../support/model-answer.js";
import { latch, until } from "../../support/waiting.js";
import { addAnswer, createKeptAnswers, nothingSpent } from "#src/models/prompts/kept-answers.js";

const key = (digit: number): string => String(digit).repeat(64);

const none = (): void => undefined;

function memoryStore(): {
  kept: KeptAnswer[];
  pauseMs: number;
  read(): AsyncGenerator<KeptAnswer>;
  keep(more: readonly KeptAnswer[]): Promise<void>;
} {
  const store = {
    kept: [] as KeptAnswer[],
    pauseMs: 1,
    async *read() {
      yield* await Promise.resolve(store.kept);
    },
    keep(more: readonly KeptAnswer[]) {
      store.kept.push(...more);
      return Promise.resolve();
    },
  };
  return store;
}

test("a worker that counts the answers of a run which another worker has finished still counts those that it knows", async () => {
  const store = memoryStore();
  using other = createKeptAnswers(1);
  await other.begin(store, 1, none);
  other.add(key(1), answer);
  await other.keep();
  using answers = createKeptAnswers(1);
  await answers.begin(store, 0, none);
  const own = nothingSpent();
  answers.add(key(2), answer);
  addAnswer(own, answer);
  await answers.keep();
  other.add(key(3), answer);
  other.add(key(4), answer);
  await other.keep();
  expect(await answers.recount(own, none)).toEqual({ answers: 4, prompt: 28, cached: 0, completion: 12 });
  store.kept = [];
  expect(await answers.recount(own, none)).toEqual({ answers: 2, prompt: 14, cached: 0, completion: 6 });
});

test("a request whose answer was lost counts for the budgets of later attempts, and as no answer", async () => {
  const store = memoryStore();
  using first = createKeptAnswers();
  await first.begin(store, 1, none);
  first.add(key(1), answer);
  first.addLost({ prompt: 100, cached: 0, completion: 10 });
  await first.keep();
  using second = createKeptAnswers();
  await second.begin(store, 0, none);
  expect(second.earlier).toEqual({ answers: 1, prompt: 7, cached: 0, completion: 3 });
  expect(second.before.all).toMatchObject({ prompt: 107, completion: 13 });
  expect(second.before.byWorker).toMatchObject({ prompt: 0, completion: 0 });
});

test("an answer waits for others as long as its store says, or the spec", async () => {
  const [quick, given, slow] = [memoryStore(), memoryStore(), memoryStore()];
  given.pauseMs = 3_600_000;
  slow.pauseMs = 3_600_000;
  using one = createKeptAnswers();
  using two = createKeptAnswers(1);
  using three = createKeptAnswers();
  for (const [answers, store] of [
    [one, quick],
    [two, given],
    [three, slow],
  ] as const) {
    await answers.begin(store, 0, none);
    answers.add(key(1), answer);
  }
  await until(() => quick.kept.length === 1 && given.kept.length === 1);
  expect(slow.kept).toEqual([]);
  await three.keep();
  expect(slow.kept.length).toBe(1);
});

test("a store that is slow gets few writes, each with all answers that came meanwhile", async () => {
  const store = memoryStore();
  const writes: number[] = [];
  const next = [latch<void>(), latch<void>(), latch<void>()];
  const slow = {
    ...store,
    pauseMs: 1,
    async keep(more: readonly KeptAnswer[]) {
      writes.push(more.length);
      await next[writes.length - 1]?.promise;
    },
  };
  using answers = createKeptAnswers();
  await answers.begin(slow, 0, none);
  answers.add(key(0), answer);
  await until(() => writes.length === 1);
  for (let index = 1; index <= 20; index += 1) {
    answers.add(key(index), answer);
    await sleep(2); // a timer of the store's pause may end
  }
  const kept = answers.keep();
  next[0]?.resolve();
  next[1]?.resolve();
  await kept;
  expect(writes).toEqual([1, 20]);
});
