import { expect, test } from "vitest";
import type { KeptAnswer } from "#src/engine/paid-engine.js";
import { until } from "../../support/waiting.js";
import { count, createKeptAnswers, nothingSpent } from "#src/engine/prompts/kept-answers.js";

const answer = {
  content: "{}",
  embedding: undefined,
  finish: "stop",
  isRefusal: false,
  model: "mock-1",
  tokens: { prompt: 7, cached: 0, completion: 3 },
} as const;
const key = (digit: number): string => String(digit).repeat(64);

const none = (): void => undefined;

/** Keeps answers in memory, until it is emptied. */
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
  count(own, answer);
  answers.borrow(key(3), answer);
  await answers.keep();
  other.add(key(3), answer);
  other.add(key(4), answer);
  await other.keep();
  expect(await answers.recount(own, none)).toEqual({ answers: 4, prompt: 28, cached: 0, completion: 12 });
  store.kept = [];
  expect(await answers.recount(own, none)).toEqual({ answers: 3, prompt: 21, cached: 0, completion: 9 });
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
