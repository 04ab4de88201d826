import { expect, test } from "vitest";
import { createBatcher } from "#src/serve/batcher.js";
import { deadlineIn } from "#src/serve/deadline.js";
import type { RowScorer } from "#src/serve/scorer.js";
import { latch } from "../support/waiting.js";

test("a model is closed when it has scored the rows that nobody waits for any more", async () => {
  const happened: string[] = [];
  const [begun, answer] = [latch<void>(), latch<void>()];
  const scorer: Pick<RowScorer, "columns" | "concurrency" | "score" | typeof Symbol.asyncDispose> = {
    columns: [],
    concurrency: 1,
    async score() {
      begun.resolve();
      await answer.promise;
      happened.push("scored");
      throw new Error("nobody waits for it");
    },
    [Symbol.asyncDispose]() {
      happened.push("closed");
      return Promise.resolve();
    },
  };
  const batcher = createBatcher({
    scorer: scorer as RowScorer,
    batch: { rows: 1, wait: 0 },
    queue: 10,
    nowMs: () => performance.now(),
  });
  const late = batcher.score(
    new Map(),
    [0],
    deadlineIn(50, () => performance.now()),
  );
  await begun.promise;
  await expect(late).rejects.toMatchObject({ status: 504 });
  const closing = batcher[Symbol.asyncDispose]();
  setTimeout(answer.resolve, 20);
  await closing;
  expect(happened).toEqual(["scored", "closed"]);
});
