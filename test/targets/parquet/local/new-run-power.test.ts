import { expect, test } from "vitest";
import { inParallel } from "../../../support/crash.js";
import { type LossyDisk, lossyDisk } from "../../../support/lossy-disk.js";
import { allLost, anyLuck, commitsSurvive, type Luck, namesLost } from "../../../support/luck.js";
import { carryOutRun, faultsForReaders, faultsOfRun, onRunDisk } from "../../../support/run-drive.js";
import { randomOf } from "../../../support/random.js";
import { readingCall } from "../../../support/sink-torture.js";
import { torture } from "../../../support/torture.js";

const every = torture ? 1 : 18;
const parallel = 2;

/** `_SUCCESS` comes back where its removal was not flushed; the removal of parts survives. */
const successReturns: Luck = { name: (name) => (name === "_SUCCESS" ? "old" : "new"), bytes: (_synced, now) => now };

const lucks: readonly Luck[] = [allLost, commitsSurvive, namesLost, successReturns];

async function momentsOf(): Promise<{ at: number; call: string }[]> {
  let calls: readonly string[] = [];
  await onRunDisk(2, async (root) => {
    const disk = lossyDisk(root);
    await disk.settle();
    await carryOutRun(root, 2, disk.fs);
    calls = disk.calls;
  });
  return [...calls.entries()].map(([at, call]) => ({ at, call })).filter(({ call }) => !readingCall.test(call));
}

/** @param ofSwap in the short form, every so many calls of the swap */
async function atMoments(ofSwap: number, work: (root: string, at: number) => Promise<void>): Promise<string[]> {
  const all = await momentsOf();
  const swap = all.findLastIndex(({ call }) => call.startsWith("unlink tmp/part"));
  const moments = all.filter(
    (_, index) => torture || (index > swap ? (index - swap) % ofSwap === 0 : index % every === 0),
  );
  const failures: string[] = [];
  await inParallel(moments, parallel, async ({ at, call }) => {
    try {
      await onRunDisk(2, (root) => work(root, at));
    } catch (error) {
      failures.push(`${at} ${call}: ${error instanceof Error ? error.message : String(error)}`);
    }
  });
  return failures;
}

const failures: readonly [string, number, (disk: LossyDisk, root: string, at: number) => Promise<Luck>][] = [
  ["stops a new run", 3, (_disk, _root, at) => Promise.resolve(lucks[at % lucks.length] ?? anyLuck(randomOf(at)))],
  [
    "stops the attempt that goes on with the swap of a killed one",
    4,
    async (disk, root, at) => {
      disk.kill();
      // With some parts of the earlier run gone and that not flushed; with all of them gone; with new ones there.
      const stops = [
        /^unlink lake\/out\/part-00001$/,
        /^unlink lake\/out\/_rejects\/part-00001$/,
        /^link lake\/out\/part-00001$/,
      ];
      disk.stopBefore(stops[at % stops.length] ?? /^$/);
      await carryOutRun(root, 2, disk.fs).catch(() => undefined);
      return successReturns;
    },
  ],
];

test.each(failures)(
  "a power failure that %s at any call leaves the old rows, the new ones or no _SUCCESS",
  { timeout: 600_000 },
  async (_, ofSwap, goOn) => {
    const found = await atMoments(ofSwap, async (root, at) => {
      const disk = lossyDisk(root);
      await disk.settle();
      disk.faultAt(at, { kind: "stop" });
      await carryOutRun(root, 2, disk.fs).catch(() => undefined);
      await disk.losePower(await goOn(disk, root, at));
      expect(await faultsForReaders(root)).toEqual([]);
      await carryOutRun(root, 2, disk.fs);
      expect(await faultsOfRun(root, 2)).toEqual([]);
    });
    expect(found).toEqual([]);
  },
);

test("a power failure after a new run was reported finished removes nothing of it, and restores nothing old", async () => {
  for (const luck of [...lucks, anyLuck(randomOf(1)), anyLuck(randomOf(2))]) {
    await onRunDisk(2, async (root) => {
      const disk = lossyDisk(root);
      await disk.settle();
      await carryOutRun(root, 2, disk.fs);
      await disk.losePower(luck);
      expect(await faultsOfRun(root, 2)).toEqual([]);
    });
  }
});
