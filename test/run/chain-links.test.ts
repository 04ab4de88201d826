import { expect, test } from "vitest";
import { lastLink, lastOrNone, storeLink } from "#src/run/chain.js";
import type { RunId } from "#src/run/plan/plan.js";
import type { Ledger, Note } from "#src/stores/ledger.js";

const chain = "daily-0123456789ab" as RunId;

/** A ledger of notes, which counts how often it is read. */
function ledgerOf(notes: Map<string, Note>): { readonly ledger: Ledger; reads: number } {
  const counted = {
    reads: 0,
    ledger: {
      read(runId: RunId, { parse }) {
        counted.reads += 1;
        const note = notes.get(runId);
        return Promise.resolve(note === undefined ? undefined : parse(note));
      },
      create<T>(run: RunId | object, _kind: unknown, value: T) {
        const runId = run as RunId;
        notes.set(runId, notes.get(runId) ?? (value as Note));
        return Promise.resolve(notes.get(runId) as T);
      },
      change: () => Promise.resolve(),
    } satisfies Ledger,
  };
  return counted;
}

test("the last run of a chain is found with few reads, however many there are", async () => {
  const notes = new Map<string, Note>();
  const by = { at: "2026-11-30T00:00:00Z", writer: "w" };
  const { ledger } = ledgerOf(notes);
  expect(await lastLink(ledger, chain)).toBeUndefined();
  for (let run = 1; run <= 1440; run += 1) {
    await storeLink(ledger, chain, { run, from: run === 1 ? null : String(run - 1), to: String(run) }, by);
    if (run < 40 || run === 1440) {
      const counted = ledgerOf(notes);
      expect(await lastLink(counted.ledger, chain)).toEqual({
        run,
        from: run === 1 ? null : String(run - 1),
        to: String(run),
        at: by.at,
      });
      expect(counted.reads).toBeLessThanOrEqual(2 * Math.log2(run) + 2);
    }
  }
});

test("the first of two that store what a run reads decides", async () => {
  const { ledger } = ledgerOf(new Map());
  const first = { run: 1, from: null, to: "5" };
  expect(await storeLink(ledger, chain, first, { at: "a", writer: "one" })).toEqual({ ...first, at: "a" });
  expect(await storeLink(ledger, chain, { ...first, to: "6" }, { at: "b", writer: "other" })).toEqual({
    ...first,
    at: "a",
  });
});

test("an output that another attempt has begun the chain in meanwhile is that of the chain", async () => {
  const { ledger } = ledgerOf(new Map());
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
  const notes = new Map([[chain as string, { at: "a", writer: "w", text: "{}" }]]);
  await expect(lastLink(ledgerOf(notes).ledger, chain)).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
});
