import { readdir } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import type { Fault } from "../../../support/lossy-disk.js";
import { allLost } from "../../../support/luck.js";
import { driveFolder } from "../../../support/sink-drive.js";
import { atEachCall, type DiskRun, finish, readingCall } from "../../../support/sink-torture.js";
import { torture } from "../../../support/torture.js";

const changing = (call: string): boolean => !readingCall.test(call);
/** Of folders, some are there or cannot be made: those calls fail by themselves. */
const working = (call: string): boolean => changing(call) && !call.startsWith("mkdir ");
const writing = (call: string): boolean => call.startsWith("writeText ");

interface Failure {
  readonly what: string;
  readonly fault: Fault;
  readonly only: (call: string) => boolean;
  readonly code: string;
}

const failures: readonly Failure[] = [
  { what: "reports an input/output error", fault: { kind: "fail", errno: "EIO" }, only: () => true, code: "DISK" },
  { what: "is full", fault: { kind: "fail", errno: "ENOSPC" }, only: changing, code: "DISK" },
  { what: "is full in the middle of a text", fault: { kind: "short", errno: "ENOSPC" }, only: writing, code: "DISK" },
  { what: "has no quota left", fault: { kind: "fail", errno: "EDQUOT" }, only: writing, code: "DISK" },
  { what: "does its work and says it did not", fault: { kind: "late", errno: "EIO" }, only: working, code: "DISK" },
  { what: "turns read-only", fault: { kind: "fail", errno: "EROFS" }, only: changing, code: "PERMISSION" },
];

async function failOnce(run: DiskRun, at: number, call: string, { fault, code }: Failure): Promise<void> {
  const { disk, attempt, check, root } = run;
  disk.faultAt(at, fault);
  const error = await attempt();
  expect(error).toBeInstanceOf(JobError);
  expect(error).toMatchObject({ code, message: expect.stringContaining(fault.kind === "stop" ? "" : fault.errno) });
  expect(error).toHaveProperty("hint");
  await check();
  // Each attempt on a full disk would otherwise leave some more.
  const left = await readdir(driveFolder(root), { recursive: true }).catch(() => []);
  const files = left.filter((name) => /\/tmp\/(?!probe)/.test(name));
  expect(call.startsWith("unlink ") || call.startsWith("removeFolder ") ? [] : files).toEqual([]);
}

describe("a disk that fails once, at any call", () => {
  test.each(failures)(
    "a disk that fails once at any call, because it $what, ends the attempt, and the same command finishes the run",
    async (failure) => {
      const failed = await atEachCall(
        async (run, at, call) => {
          await failOnce(run, at, call, failure);
          await finish(run);
        },
        { only: failure.only, ...(torture ? {} : { every: 12, from: failures.indexOf(failure) }) },
      );
      expect(failed).toEqual([]);
    },
  );

  test.each(failures)(
    "a disk that fails once at any call, because it $what, loses nothing in a power failure after that",
    async (failure) => {
      const failed = await atEachCall(
        async (run, at, call) => {
          await failOnce(run, at, call, failure);
          await run.disk.losePower(allLost);
          await run.check();
          await finish(run);
        },
        { only: failure.only, ...(torture ? {} : { every: 12, from: 6 + failures.indexOf(failure) }) },
      );
      expect(failed).toEqual([]);
    },
  );
});
