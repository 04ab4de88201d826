import { expect, test } from "vitest";
import type { TokenCount } from "#src/models/engine.js";
import { type Budget, createBudget } from "#src/models/prompts/client.js";

const tokens = (completion: number): TokenCount => ({ prompt: 0, cached: 0, completion });

function budgetOf(limit: number): Budget {
  return createBudget("asking http://localhost", { tokens: limit, cost: undefined }, undefined);
}

async function spendAll(budget: Budget): Promise<number> {
  for (let spent = 0; ; spent += 1) {
    try {
      const reservation = await budget.reserve(tokens(1));
      reservation.spent(tokens(1));
      reservation.end();
    } catch (error) {
      expect(error).toMatchObject({ code: "BUDGET" });
      return spent;
    }
  }
}

test("a worker spends its part of what is left when it starts", async () => {
  const budget = budgetOf(100);
  budget.begin({ all: tokens(40), byWorker: tokens(0) }, 2);
  expect(await spendAll(budget)).toBe(30);
});

test("a worker that starts again spends its part of the whole, while the other one has kept no answer yet", async () => {
  const budget = budgetOf(100);
  budget.begin({ all: tokens(40), byWorker: tokens(40) }, 2);
  expect(await spendAll(budget)).toBe(10);
});

test("the error names what all attempts have spent, and the part of this worker", async () => {
  const budget = createBudget(
    "asking http://localhost",
    { tokens: undefined, cost: 2 },
    { input: 1, output: 1_000_000 },
  );
  budget.begin({ all: tokens(1), byWorker: tokens(1) }, 2);
  await expect(budget.reserve(tokens(1))).rejects.toThrow(
    "might exceed model.budget (max_cost is 2, used 1: paid, and the most that requests without an answer may have cost), of which each of the 2 workers may spend 1/2",
  );
});

test.each([1, 2, 3, 4, 5, 6, 7, 8])(
  "workers that start again and again never spend more than the budget together (seed %i)",
  async (seed) => {
    const limit = 1000;
    const workers = 1 + (seed % 4);
    const spent = Array.from({ length: workers }, () => 0);
    const allowed = Array.from({ length: workers }, () => 0);
    let state = seed;
    const random = (): number => {
      state = (state * 48_271) % 2_147_483_647;
      return state / 2_147_483_647;
    };
    const start = async (index: number): Promise<void> => {
      const budget = budgetOf(limit);
      const all = spent.reduce((sum, one) => sum + one, 0);
      budget.begin({ all: tokens(all), byWorker: tokens(spent[index] ?? 0) }, workers);
      allowed[index] = await spendAll(budget);
    };
    for (let index = 0; index < workers; index += 1) {
      await start(index);
    }
    for (let round = 0; round < 60; round += 1) {
      const index = Math.floor(random() * workers);
      const now = Math.floor(random() * ((allowed[index] ?? 0) + 1));
      spent[index] = (spent[index] ?? 0) + now;
      allowed[index] = (allowed[index] ?? 0) - now;
      if (random() < 0.5) {
        await start(index);
      }
      const most = spent.reduce((sum, one, other) => sum + one + (allowed[other] ?? 0), 0);
      expect(most).toBeLessThanOrEqual(limit);
    }
  },
);

test("requests that ask for a reservation at the same time hold no more than the budget together", async () => {
  const budget = budgetOf(100);
  let [held, most] = [0, 0];
  await Promise.all(
    Array.from({ length: 10 }, async () => {
      const reservation = await budget.reserve(tokens(30));
      held += 30;
      most = Math.max(most, held);
      await Promise.resolve();
      reservation.spent(tokens(1));
      held -= 30;
      reservation.end();
    }),
  );
  expect(most).toBe(90);
});

test("a request whose answer was lost is sent again only if the budget covers both, and not held up by others that wait", async () => {
  const budget = budgetOf(100);
  const [one, other] = [await budget.reserve(tokens(40)), await budget.reserve(tokens(40))];
  one.lost();
  other.lost();
  const ends = await Promise.allSettled([
    one.ready().finally(() => one.end()),
    other.ready().finally(() => other.end()),
  ]);
  expect(ends.map(({ status }) => status).toSorted()).toEqual(["rejected", "rejected"]);
});

test("a request that waits for room is not refused while one whose answer was lost may go on and free some", async () => {
  const budget = budgetOf(100);
  const [lost, other] = [await budget.reserve(tokens(40)), await budget.reserve(tokens(40))];
  const next = budget.reserve(tokens(30));
  lost.lost();
  const ready = lost.ready();
  other.spent(tokens(1));
  other.end();
  await ready;
  lost.spent(tokens(1));
  lost.end();
  await expect(next).resolves.toBeDefined();
});
