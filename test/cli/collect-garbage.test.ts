import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { collectGarbage } from "#src/cli/collect-garbage.js";

it("collects what is no longer used, though no memory is asked for", async () => {
  const forgotten = new WeakRef({});
  const isThere = (): boolean => forgotten.deref() !== undefined;
  await sleep(300);
  expect(isThere()).toBe(true);
  using _ = collectGarbage({ seconds: 0.05 });
  await expect.poll(isThere, { timeout: 5000 }).toBe(false);
});
