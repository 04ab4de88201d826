import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";
import { inParallel } from "./crash.js";
import { scratchFolder } from "./job.js";
import { type LossyDisk, lossyDisk } from "./lossy-disk.js";
import { tellingCalls } from "./torture.js";
import { type Attempt, drive, faultsOf, nothingTold, type Told } from "./sink-drive.js";

export interface DiskRun {
  readonly disk: LossyDisk;
  readonly root: string;
  readonly told: Told;
  /** Runs one attempt to its end or to the fault that stops it; returns what it threw. */
  readonly attempt: (options?: Partial<Attempt>) => Promise<unknown>;
  /** Fails when something that was reported does not hold. */
  readonly check: () => Promise<void>;
}

export async function onDisk(work: (run: DiskRun) => Promise<void>, refused: readonly string[] = []): Promise<void> {
  await using scratch = await scratchFolder();
  const root = join(scratch.path, "disk");
  await mkdir(root);
  const disk = lossyDisk(root, refused);
  const told = nothingTold();
  await work({
    disk,
    root,
    told,
    attempt: (options) =>
      drive({ root, fs: disk.fs, told, ...options }).then(
        () => undefined,
        (error: unknown) => error,
      ),
    check: async () => {
      expect(await faultsOf(root, told)).toEqual([]);
    },
  });
}

export async function finish({ attempt, check, told }: DiskRun): Promise<void> {
  expect(await attempt()).toBeUndefined();
  expect(told.finished).toBe(true);
  await check();
}

async function callsOf(refused: readonly string[] = []): Promise<readonly string[]> {
  let calls: readonly string[] = [];
  await onDisk(async (run) => {
    await finish(run);
    calls = run.disk.calls;
  }, refused);
  return calls;
}

const parallelRuns = 3;

/** Calls that change nothing: stopping before one is stopping before the next that does. */
export const readingCall = /^(readdir|readText|stat|digest) /;

export interface AtEachCall {
  /** Calls that this file system does not know. */
  readonly refused?: readonly string[];
  readonly only?: (call: string) => boolean;
  /** Every n-th of them, from this one on. */
  readonly every?: number;
  readonly from?: number;
  /** In the short form the first and the last of those that differ in their numbers, and not the second. */
  readonly ends?: boolean;
}

/** Runs `work` for each call of an undisturbed run. Returns all failures, each with its call. */
export async function atEachCall(
  work: (run: DiskRun, at: number, call: string) => Promise<void>,
  { refused = [], only = () => true, every = 1, from = 0, ends = false }: AtEachCall = {},
): Promise<string[]> {
  const failures: string[] = [];
  const changing = [...(await callsOf(refused)).entries()].filter(([, call]) => only(call));
  const calls = tellingCalls(changing, ([, call]) => call, { ends }).filter((_, index) => index % every === from);
  await inParallel(calls, parallelRuns, async ([at, call]) => {
    try {
      await onDisk((run) => work(run, at, call), refused);
    } catch (error) {
      failures.push(`${at} ${call}: ${error instanceof Error ? error.message : String(error)}`);
    }
  });
  return failures;
}
