import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { Database, PgRow } from "./pg-database.js";
import { torture } from "./torture.js";

const pauseMs = torture ? 8 : 20;

/** Reads a row over and over while `work` goes on. What was seen, in order; the same as before is left out. */
export async function readMeanwhile(
  reader: Database,
  sql: string,
  work: () => Promise<void>,
): Promise<{ readonly seen: readonly PgRow[]; readonly reads: number }> {
  const seen: PgRow[] = [];
  const state = { ended: false, reads: 0 };
  const poll = async (): Promise<void> => {
    while (!state.ended) {
      const [row = {}] = await reader.query(sql);
      state.reads += 1;
      if (JSON.stringify(row) !== JSON.stringify(seen.at(-1))) {
        seen.push(row);
      }
      await sleep(pauseMs);
    }
  };
  const polling = poll();
  try {
    await Promise.race([work(), polling]); // a reader that fails ends the test at once
  } finally {
    state.ended = true;
    await polling;
  }
  return { seen, reads: state.reads };
}

/** Some of what is due, in its order, each at most once. */
export function expectInOrder(seen: readonly unknown[], due: readonly unknown[]): void {
  const texts = seen.map((one) => JSON.stringify(one));
  expect(texts).toEqual(due.map((one) => JSON.stringify(one)).filter((text) => texts.includes(text)));
}
