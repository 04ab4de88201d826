import { readdir } from "node:fs/promises";
import { expect } from "vitest";
import { commitConcurrency } from "#src/targets/target.js";
import { messageOf } from "#src/base/errors.js";
import { differences } from "./golden.js";
import { type Expected, faultsAtAnyMoment, faultsOfFinished, outputRows, partNames, spanOfName } from "./output.js";
import { recordingCommands } from "./running-commands.js";

export async function inParallel<T>(
  items: readonly T[],
  limit: number,
  work: (item: T, index: number) => Promise<void>,
): Promise<void> {
  const queue = items.entries();
  const worker = async (): Promise<void> => {
    for (const [index, item] of queue) {
      await work(item, index);
    }
  };
  await Promise.all(Array.from({ length: limit }, worker));
}

/** Runs `work`, at most `limit` at once. Returns a text for each failure, with what its commands printed. */
export async function failuresOf<T>(
  items: readonly T[],
  { limit, name }: { readonly limit: number; readonly name: (item: T) => string },
  work: (item: T, index: number) => Promise<void>,
): Promise<string[]> {
  const failures: string[] = [];
  await inParallel(items, limit, async (item, index) => {
    const commands: string[] = [];
    await recordingCommands(commands, () => work(item, index)).catch((error: unknown) => {
      failures.push([`${name(item)}: ${messageOf(error)}`, ...commands].join("\n"));
    });
  });
  return failures;
}

/** What a killed attempt left. */
export interface Wreck {
  /** Spans whose part has its final name. */
  readonly committed: readonly number[];
  /** Spans that the attempt began to publish and did not. */
  readonly begun: readonly number[];
}

/** Checks an output folder right after a kill; fails when a reader would find a fault. */
export async function inspectWreck(folder: string, expected: Expected, stderr: string): Promise<Wreck> {
  expect(await faultsAtAnyMoment(folder, expected)).toEqual([]);
  const committed = (await partNames(folder)).map(spanOfName);
  // Spans that were logged as committed are: log lines are written at once.
  const announced = [...stderr.matchAll(/span (\d+) committed/g)].map(([, span]) => Number(span));
  expect(announced.filter((span) => !committed.includes(span))).toEqual([]);
  return { committed, begun: await spansBegun(folder, committed) };
}

/** Spans that left a temporary part, or that are missing while later spans are committed. */
async function spansBegun(folder: string, committed: readonly number[]): Promise<number[]> {
  const names = await readdir(folder, { recursive: true }).catch(() => []);
  const temporary = names.flatMap((name) => {
    const [, span] = /\/tmp\/part-(\d+)-(?:parquet|staged)\./.exec(name) ?? [];
    return span === undefined ? [] : [Number(span)];
  });
  const last = Math.max(-1, ...committed, ...temporary);
  return Array.from({ length: last + 1 }, (_, span) => span).filter((span) => !committed.includes(span));
}

/** Expects that few spans are repeated after a kill: those that were being published, at most commitConcurrency. */
export function expectFewDoneAgain({ begun }: Wreck): void {
  expect(begun.length).toBeLessThanOrEqual(commitConcurrency);
}

/** The end of it all: every row once, in order, as predicted; a folder that a reader can trust. */
export async function expectFinished(folder: string, { golden }: Pick<Expected, "golden">): Promise<void> {
  expect(differences(await outputRows(folder), golden)).toEqual([]);
  expect(await faultsOfFinished(folder, golden.length)).toEqual([]);
  // The folder itself may stay, when a kill came after _SUCCESS: a finished run is no longer touched.
  const leftovers = (await readdir(folder, { recursive: true })).filter((name) => name.includes("/tmp/"));
  expect(leftovers).toEqual([]);
}
