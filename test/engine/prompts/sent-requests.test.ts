import { expect, test } from "vitest";
import type { KeptAnswer } from "#src/engine/paid-engine.js";
import { createKeptAnswers, type KeptAnswers } from "#src/engine/prompts/kept-answers.js";
import { openSending, type Sending } from "#src/engine/prompts/sending.js";
import { createUnanswered } from "#src/engine/prompts/unanswered.js";
import { randomOf } from "../../support/random.js";
import { torture } from "../../support/torture.js";
import { modelAnswer as answer } from "../../support/model-answer.js";
import { latch, until } from "../../support/waiting.js";

const worst = { prompt: 100, cached: 0, completion: 10 };
const key = (number: number): string => String(number).padStart(64, "0");
const none = (): void => undefined;

/** Begins a request, and tells whether it is sent. */
function begin(sending: Pick<Sending, "begin">): { readonly isSent: () => boolean; readonly done: Promise<void> } {
  let isSent = false;
  const work = async (): Promise<void> => {
    await sending.begin();
    isSent = true;
  };
  return { isSent: () => isSent, done: work() };
}

/** A journal in memory. Writes wait until they are let through; what is not written is lost when its attempt is killed. */
function heldStore(): {
  readonly kept: KeptAnswer[];
  readonly pauseMs: number;
  writes: number;
  isOpen: boolean;
  read(): AsyncGenerator<KeptAnswer>;
  keep(more: readonly KeptAnswer[]): Promise<void>;
  letThrough(): void;
} {
  let held = latch<void>();
  const store = {
    kept: [] as KeptAnswer[],
    pauseMs: 1,
    writes: 0,
    isOpen: true,
    async *read() {
      yield* await Promise.resolve([...store.kept]);
    },
    async keep(more: readonly KeptAnswer[]) {
      store.writes += 1;
      await (store.isOpen ? undefined : held.promise);
      store.kept.push(...more);
    },
    letThrough() {
      store.isOpen = true;
      held.resolve();
      held = latch<void>();
    },
  };
  return store;
}

/** What a later attempt reads of requests without a stored answer. */
async function unansweredIn(store: ReturnType<typeof heldStore>): Promise<number> {
  using later = createKeptAnswers({ flushMs: 1 });
  await later.begin(store, 0, none);
  return later.earlierUnanswered.all.requests;
}

/** Sends a request, and answers it. */
async function ask(answers: KeptAnswers, number: number): Promise<void> {
  const sending = openSending(answers.requests, worst, none);
  await sending.begin();
  answers.add(key(number), answer);
  sending.end();
}

test("no request is sent before the journal counts it", async () => {
  const store = heldStore();
  using answers = createKeptAnswers({ flushMs: 3_600_000 });
  await answers.begin(store, 0, none);
  store.isOpen = false;
  const sending = openSending(answers.requests, worst, none);
  const beginning = begin(sending);
  await until(() => store.writes === 1);
  expect([beginning.isSent(), await unansweredIn(store)]).toEqual([false, 0]);

  store.letThrough();
  await beginning.done;

  expect(await unansweredIn(store)).toBeGreaterThanOrEqual(1);
});

test("an attempt that has kept all its answers counts no request as possibly paid for twice, even if the journal allowed more requests", async () => {
  const store = heldStore();
  using answers = createKeptAnswers({ flushMs: 3_600_000 });
  await answers.begin(store, 0, none);
  for (let number = 1; number <= 50; number += 1) {
    await ask(answers, number);
  }
  expect(await unansweredIn(store)).toBeGreaterThan(0); // the answers are not written yet
  await answers.keep();
  expect(await unansweredIn(store)).toBe(0);
  expect(store.writes).toBeLessThan(20);
});

test("a request that begins while the journal records that nothing is under way is counted, too", async () => {
  const store = heldStore();
  using answers = createKeptAnswers({ flushMs: 3_600_000 });
  await answers.begin(store, 0, none);
  for (let number = 1; number <= 20; number += 1) {
    await ask(answers, number);
  }
  expect(await unansweredIn(store)).toBeGreaterThan(1); // some more requests are allowed
  const { writes } = store;
  store.isOpen = false;
  const kept = answers.keep();
  await until(() => store.writes > writes);
  const beginning = begin(openSending(answers.requests, worst, none));
  await new Promise(setImmediate);
  expect(beginning.isSent()).toBe(false);

  store.letThrough();
  await kept;
  await beginning.done;

  expect(await unansweredIn(store)).toBeGreaterThanOrEqual(1);
});

test("a request whose answer was lost counts once, and one that was refused does not count", async () => {
  const store = heldStore();
  using answers = createKeptAnswers({ flushMs: 3_600_000 });
  await answers.begin(store, 3, none);
  const sending = openSending(answers.requests, worst, none);
  for (const end of [sending.lost, sending.free, sending.lost]) {
    await sending.begin();
    end();
    sending.end();
  }
  await answers.keep();
  using later = createKeptAnswers({ flushMs: 1 });
  await later.begin(store, 3, none);
  const sum = { requests: 2, prompt: 200, cached: 0, completion: 20 };
  expect(later.earlierUnanswered).toEqual({ all: sum, byWorker: sum });
  using other = createKeptAnswers({ flushMs: 1 });
  await other.begin(store, 0, none);
  expect(other.earlierUnanswered.byWorker.requests).toBe(0);
});

test("where no journal is kept, requests are sent at once", async () => {
  using answers = createKeptAnswers();
  await ask(answers, 1);
  expect(answers.earlierUnanswered.all.requests).toBe(0);
});

test("requests wait in vain for a journal that cannot be written", async () => {
  const store = heldStore();
  using answers = createKeptAnswers({ flushMs: 3_600_000 });
  await answers.begin({ ...store, keep: () => Promise.reject(new Error("disk full")) }, 0, none);
  await expect(openSending(answers.requests, worst, none).begin()).rejects.toThrow("disk full");
});

test("records count in the order of their numbers, and others are ignored", () => {
  const unanswered = createUnanswered();
  const record = { attempt: "a", sent: [9, 90, 9], ended: [2, 20, 2] };
  for (const text of [
    JSON.stringify({ ...record, number: 2, ended: [8, 80, 8] }),
    JSON.stringify({ ...record, number: 1 }),
    '{"content":"x","finish":"stop"}',
    "{",
  ]) {
    unanswered.add(text);
  }
  expect(unanswered.sum()).toEqual({ requests: 1, prompt: 10, cached: 0, completion: 1 });
});

/** Kills an attempt at a moment drawn by a seed, in the middle of its requests: what is written then is all that stays. */
async function killedAttempt(seed: number): Promise<{ readonly counted: number; readonly inVain: number }> {
  const random = randomOf(seed);
  const store = heldStore();
  const answers = createKeptAnswers({ flushMs: 1 });
  await answers.begin(store, 0, none);
  const paid = new Set<number>();
  /** Rows come in bursts: between them, nothing is under way. */
  const attempt = { isKilled: false, isBurst: true };
  let [next, kill] = [0, 20 + Math.floor(random() * 300)];
  const ticks = async (most: number): Promise<void> => {
    for (let tick = Math.floor(random() * most); tick >= 0; tick -= 1) {
      await new Promise(setImmediate);
    }
  };
  const row = async (): Promise<void> => {
    while (!attempt.isKilled) {
      if (!attempt.isBurst) {
        await ticks(1);
        continue;
      }
      next += 1;
      const number = next;
      const sending = openSending(answers.requests, worst, none);
      await sending.begin();
      if (attempt.isKilled) {
        return;
      }
      const fate = random();
      if (fate > 0.2) {
        paid.add(number); // the server has it from now on
      }
      await ticks(8);
      if (attempt.isKilled) {
        return;
      }
      if (fate < 0.2) {
        sending.free();
      } else if (fate < 0.4) {
        sending.lost();
      } else {
        answers.add(key(number), answer);
      }
      sending.end();
    }
  };
  const rows = Array.from({ length: 16 }, row);
  const slow = async (): Promise<void> => {
    while (!attempt.isKilled) {
      store.isOpen = random() > 0.5;
      attempt.isBurst = random() > 0.4;
      await ticks(10);
      kill -= 1;
      attempt.isKilled = kill <= 0; // a write may be held then
      if (!attempt.isKilled) {
        store.letThrough();
      }
    }
  };
  await slow();
  const kept = [...store.kept]; // at the kill
  const after = {
    ...heldStore(),
    kept,
    async *read() {
      yield* await Promise.resolve(kept);
    },
  };
  const counted = await unansweredIn(after);
  const known = new Set(kept.map(({ request }) => request));
  const inVain = [...paid].filter((number) => !known.has(key(number))).length;
  store.letThrough();
  await Promise.allSettled(rows);
  answers[Symbol.dispose]();
  return { counted, inVain };
}

test("whenever an attempt is killed, what it paid for in vain is counted", async () => {
  let [most, all] = [0, 0];
  for (let seed = 1; seed <= (torture ? 300 : 8); seed += 1) {
    const { counted, inVain } = await killedAttempt(seed);
    expect(counted, `seed ${seed}`).toBeGreaterThanOrEqual(inVain);
    most = Math.max(most, counted - inVain);
    all += inVain;
  }
  expect(all).toBeGreaterThan(0);
  expect(most).toBeLessThan(200); // not many more than are under way between two writes
});
