import { expect, test } from "vitest";
import { allLost, anyLuck, bytesLost, commitsSurvive, type Luck } from "../../../support/luck.js";
import { randomOf } from "../../../support/random.js";
import { atEachCall, finish, readingCall } from "../../../support/sink-torture.js";
import { torture } from "../../../support/torture.js";

const seeds = torture ? 40 : 1;

const changing = { only: (call: string) => !readingCall.test(call) };

const lucks: readonly (readonly [string, (at: number) => Luck])[] = [
  ["nothing that was not synced survives", () => allLost],
  ["names survive and bytes do not", () => bytesLost],
  ["what commits survives, and not what it rests on", () => commitsSurvive],
  ...Array.from(
    { length: seeds },
    (_, seed) => [`anything may survive (${seed})`, (at: number) => anyLuck(randomOf(1000 * seed + at))] as const,
  ),
];

test.each(lucks.map(([what, luckAt], index) => ({ what, luckAt, index })))(
  "a power failure before any call loses nothing that was reported, and the run can be finished: $what",
  async ({ luckAt, index }) => {
    const failures = await atEachCall(
      async (run, at) => {
        run.disk.faultAt(at, { kind: "stop" });
        await run.attempt();
        await run.disk.losePower(luckAt(at));
        await run.check();

        await finish(run);

        await run.disk.losePower(luckAt(at + 500));
        await run.check();
      },
      // The short form tries each kind of call with the first, and each eighth of them with one of the others.
      { ...changing, ends: true, ...(index === 0 || torture ? {} : { every: 8, from: (2 * index) % 8 }) },
    );
    expect(failures).toEqual([]);
  },
);

test.each(torture ? [1, 3] : [1])(
  "a power failure after a kill loses nothing that the next attempt reported: %i spans of it",
  async (spans) => {
    const failures = await atEachCall(
      async (run, at) => {
        run.disk.faultAt(at, { kind: "stop" });
        await run.attempt();
        run.disk.kill();
        await run.check();
        expect(await run.attempt({ spans })).toBeUndefined();

        await run.disk.losePower(allLost);

        await run.check();
        await finish(run);
        // In short every eighth call: the test above loses power before each of them.
      },
      { ...changing, every: torture ? 1 : 8 },
    );
    expect(failures).toEqual([]);
  },
);
