import { expect, test } from "vitest";
import { lastLink, lastOrNone, storeLink } from "#src/run/chain.js";
import type { RunId } from "#src/run/plan/plan.js";
import { noteDocument } from "#src/stores/ledger.js";
import { memoryLedger } from "../support/memory-target.js";

const chain = "daily-0123456789ab" as RunId;

test("the last run of a chain is found with few reads, however many there are", async () => {
  const by = { at: "2026-11-30T00:00:00Z", writer: "w" };
  const ledger = memoryLedger();
  expect(await lastLink(ledger, chain)).toBeUndefined();
  for (let run = 1; run <= 1440; run += 1) {
    await storeLink(ledger, chain, { run, from: run === 1 ? null : String(run - 1), to: String(run) }, by);
    if (run < 40 || run === 1440) {
      ledger.counted.reads = 0;
      expect(await lastLink(ledger, chain)).toEqual({
        run,
        from: run === 1 ? null : String(run - 1),
        to: String(run),
        at: by.at,
      });
      expect(ledger.counted.reads).toBeLessThanOrEqual(2 * Math.log2(run) + 2);
    }
  }
});

test("the first of two that store what a run reads decides", async () => {
  const ledger = memoryLedger();
  const first = { run: 1, from: null, to: "5" };
  expect(await storeLink(ledger, chain, first, { at: "a", writer: "one" })).toEqual({ ...first, at: "a" });
  expect(await storeLink(ledger, chain, { ...first, to: "6" }, { at: "b", writer: "other" })).toEqual({
    ...first,
    at: "a",
  });
});

test("an output that another attempt has begun the chain in meanwhile is that of the chain", async () => {
  const ledger = memoryLedger();
  const refuse = (): Promise<void> => Promise.reject(new Error("run=00000001 is there, which no run wrote"));
  await expect(lastOrNone(ledger, chain, refuse)).rejects.toThrow("no run wrote");
  const first = { run: 1, from: null, to: "5" };
  const refuseAfter = async (): Promise<void> => {
    await storeLink(ledger, chain, first, { at: "a", writer: "other" });
    await refuse();
  };
  expect(await lastOrNone(ledger, chain, refuseAfter)).toEqual({ ...first, at: "a" });
});

test("a note that is no range is damage", async () => {
  const ledger = memoryLedger();
  await ledger.create(chain, noteDocument("range"), { at: "a", writer: "w", text: "{}" });
  await expect(lastLink(ledger, chain)).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
});
