import { mkdir, readdir, readFile, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { nodeFileSystem } from "#src/stores/disk.js";
import type { AnswerJournal, KeptAnswer } from "#src/stores/ledger.js";
import { messageOf } from "#src/base/errors.js";
import { answersIn, answersOf, inOrder } from "../../../support/answers-contract.js";
import { inParallel } from "../../../support/crash.js";
import { scratch, scratchFolder } from "../../../support/job.js";
import { type Fault, type LossyDisk, lossyDisk } from "../../../support/lossy-disk.js";
import { allLost, anyLuck, bytesLost, type Luck, namesLost } from "../../../support/luck.js";
import { randomOf } from "../../../support/random.js";
import { beginDrive, driveFolder, drivePlan, openDriveSink } from "../../../support/sink-drive.js";
import { readingCall } from "../../../support/sink-torture.js";
import { torture } from "../../../support/torture.js";

/** A run on a disk of its own, whose attempts keep answers. */
interface KeepingRun {
  readonly disk: LossyDisk;
  /** Answers that `keep` has reported as kept. */
  readonly kept: KeptAnswer[];
  /** One attempt, which keeps three times. Returns what it threw. */
  readonly attempt: () => Promise<unknown>;
  /** What the next attempt reads. */
  readonly read: () => Promise<KeptAnswer[]>;
}

/** What an attempt keeps, call by call. */
const keeps = [answersOf(1, 2), answersOf(3), answersOf(4, 5)];

async function onDisk(work: (run: KeepingRun) => Promise<void>): Promise<void> {
  await using folder = await scratchFolder();
  const root = join(folder.path, "disk");
  await mkdir(root);
  const disk = lossyDisk(root);
  const kept: KeptAnswer[] = [];
  const withJournal = async <T>(use: (journal: AnswerJournal) => Promise<T>): Promise<T> => {
    await using sink = await openDriveSink(root, disk.fs);
    return await use((await beginDrive(sink)).answers());
  };
  await work({
    disk,
    kept,
    attempt: () =>
      withJournal(async (journal) => {
        const failures: unknown[] = [];
        for (const answers of keeps) {
          await journal.keep(answers).then(
            () => kept.push(...answers),
            (error: unknown) => failures.push(error),
          );
        }
        return failures[0];
      }).catch((error: unknown) => error),
    read: () => withJournal(answersIn),
  });
}

const all = inOrder(keeps.flat());

/** Expects that all answers reported as kept are read, and no other than those that were sent. */
async function expectKept({ kept, read }: KeepingRun): Promise<void> {
  const found = await read();
  expect(found.filter((one) => !all.some((other) => JSON.stringify(one) === JSON.stringify(other)))).toEqual([]);
  const requests = new Set(found.map(({ request }) => request));
  expect(kept.filter(({ request }) => !requests.has(request))).toEqual([]);
}

/** Runs `work` for each call that an undisturbed attempt makes and `only` admits. Returns all failures. */
async function atEachCall(
  only: (call: string) => boolean,
  work: (run: KeepingRun, at: number) => Promise<void>,
): Promise<string[]> {
  let calls: readonly string[] = [];
  await onDisk(async (run) => {
    expect(await run.attempt()).toBeUndefined();
    calls = [...run.disk.calls];
    expect(await run.read()).toEqual(all);
  });
  expect(calls.filter((call) => /^link .*answers/.test(call))).toHaveLength(keeps.length);
  const failures: string[] = [];
  await inParallel(
    [...calls.entries()].filter(([, call]) => only(call)),
    3,
    async ([at, call]) => {
      await onDisk((run) => work(run, at)).catch((error: unknown) => {
        failures.push(`${at} ${call}: ${messageOf(error)}`);
      });
    },
  );
  return failures;
}

const changing = (call: string): boolean => !readingCall.test(call);

describe("answers on a disk whose machine or process ends at any call", () => {
  const lucks: readonly (readonly [string, (at: number) => Luck])[] = [
    ["nothing that was not flushed survives", () => allLost],
    ["names survive and bytes do not", () => bytesLost],
    ["bytes survive and names do not", () => namesLost],
    ...Array.from(
      { length: torture ? 40 : 1 },
      (_, seed) => [`anything may survive (${seed})`, (at: number) => anyLuck(randomOf(100 * seed + at))] as const,
    ),
  ];

  test.each(lucks)("a power failure at any call loses no answer that was reported as kept: %s", async (_, luckAt) => {
    const failures = await atEachCall(changing, async (run, at) => {
      run.disk.faultAt(at, { kind: "stop" });
      await run.attempt();
      await run.disk.losePower(luckAt(at));
      await expectKept(run);
      expect(await run.attempt()).toBeUndefined();
      await run.disk.losePower(luckAt(at + 1));
      await expectKept(run);
      expect(await run.read()).toEqual(all);
    });
    expect(failures).toEqual([]);
  });

  test("a process that ends at any call loses no answer that it reported as kept", async () => {
    const failures = await atEachCall(changing, async (run, at) => {
      run.disk.faultAt(at, { kind: "stop" });
      await run.attempt();
      run.disk.kill();
      await expectKept(run);
    });
    expect(failures).toEqual([]);
  });
});

describe("answers on a disk that fails once", () => {
  const faults: readonly (readonly [string, Fault, (call: string) => boolean])[] = [
    ["an input/output error", { kind: "fail", errno: "EIO" }, changing],
    [
      "a full disk in the middle of a text",
      { kind: "short", errno: "ENOSPC" },
      (call) => /^writeText .*tmp/.test(call),
    ],
    [
      "an error after the work",
      { kind: "late", errno: "EIO" },
      (call) => /answers/.test(call) && !call.startsWith("mkdir "),
    ],
  ];

  test.each(faults)("%s at any call is reported as 75, and the next call keeps its answers", async (_, fault, only) => {
    let failed = 0;
    const failures = await atEachCall(
      (call) => changing(call) && only(call),
      async (run, at) => {
        run.disk.faultAt(at, fault);
        const error = await run.attempt();
        if (error !== undefined) {
          failed += 1;
          expect(error).toMatchObject({ code: "DISK", exitCode: 75 });
        }
        await run.disk.losePower(allLost);
        await expectKept(run);
      },
    );
    expect(failures).toEqual([]);
    expect(failed).toBeGreaterThan(1);
  });
});

/** A run with answers in one file: the path of that file, its bytes, and what is read of it. */
async function fileOf(root: string): Promise<{ path: string; bytes: Buffer; read: () => Promise<KeptAnswer[]> }> {
  await mkdir(root, { recursive: true });
  await using sink = await openDriveSink(root, nodeFileSystem);
  const kept = (await beginDrive(sink)).answers();
  await kept.keep(keeps.flat());
  const folder = join(driveFolder(root), "_infer-batch", drivePlan.runId, "answers");
  const path = join(folder, (await readdir(folder)).join());
  return { path, bytes: await readFile(path), read: () => answersIn(kept) };
}

describe("a damaged file of answers", () => {
  test("the answers before the byte at which a file is cut off are read, for every such byte", async () => {
    const { path, bytes, read } = await fileOf(join(scratch.path, "disk"));
    const order = keeps.flat();
    for (let length = bytes.length; length >= 0; length -= torture ? 1 : 7) {
      await truncate(path, length);
      const whole = bytes.subarray(0, length).toString().split("\n").length - 1;
      expect(await read()).toEqual(inOrder(order.slice(0, whole)));
    }
  });

  test("an answer with any bit changed is left out, and those in other lines are read", async () => {
    const { path, bytes, read } = await fileOf(join(scratch.path, "disk"));
    const lines = bytes.toString().split("\n");
    let start = 0;
    const lineAt = (at: number): number => bytes.subarray(0, at).toString().split("\n").length - 1;
    for (let bit = 0; bit < bytes.length * 8; bit += torture ? 1 : 13) {
      const flipped = Buffer.from(bytes);
      flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      await writeFile(path, flipped);
      const line = lineAt(bit >> 3);
      const joined = bytes[bit >> 3] === 10 ? [line, line + 1] : [line];
      const expected = keeps.flat().filter((_, index) => !joined.includes(index));
      expect(await read()).toEqual(inOrder(expected));
      start += 1;
    }
    expect(lines).toHaveLength(6);
    expect(start).toBeGreaterThan(100);
  });
});
