import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { collectGarbage } from "#src/cli/collect-garbage.js";

it("collectGarbage frees unused objects without memory pressure", async () => {
  const forgotten = new WeakRef({});
  const isThere = (): boolean => forgotten.deref() !== undefined;
  await sleep(300);
  expect(isThere()).toBe(true);
  using _ = collectGarbage({ seconds: 0.05 });
  await expect.poll(isThere, { timeout: 5000 }).toBe(false);
});
