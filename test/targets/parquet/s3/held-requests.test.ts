import { expect, test } from "vitest";
import { JobError, messageOf } from "#src/base/errors.js";
import type { Sink } from "#src/targets/target.js";
import { inParallel } from "../../../support/crash.js";
import { pruneAt } from "../../../support/prune-contract.js";
import { useS3 } from "../../../support/s3.js";
import { carryOutS3, s3Plan, s3World, type S3World } from "../../../support/s3-sink-world.js";
import { torture } from "../../../support/torture.js";
import { latch } from "../../../support/waiting.js";

const s3 = useS3();

interface Ending {
  readonly what: string;
  readonly meanwhile: (sink: Sink, number: number) => Promise<void>;
  readonly faults: (at: S3World, sink: Sink, number: number) => Promise<string[]>;
}

async function faultsOfNext(at: S3World, sink: Sink, number: number): Promise<string[]> {
  const before = (await at.faults(number)).filter((fault) => !fault.endsWith(".staged is left over"));
  await carryOutS3(sink, number + 1);
  return [...before, ...(await at.faults(number + 1))];
}

const endings: readonly Ending[] = [
  { what: "is finished", meanwhile: carryOutS3, faults: (at, _, number) => at.faults(number) },
  {
    what: "is finished, and the next run planned",
    async meanwhile(sink, number) {
      await carryOutS3(sink, number);
      await sink.create(s3Plan(number + 1));
    },
    faults: faultsOfNext,
  },
  {
    what: "is finished, and the next run too",
    async meanwhile(sink, number) {
      await carryOutS3(sink, number);
      await carryOutS3(sink, number + 1);
    },
    faults: (at, _, number) => at.faults(number + 1),
  },
  {
    what: "is abandoned for the next run",
    meanwhile: (sink, number) => carryOutS3(sink, number + 1),
    faults: (at, _, number) => at.faults(number + 1),
  },
  {
    what: "is finished, and pruned",
    async meanwhile(sink, number) {
      await carryOutS3(sink, number);
      expect(await pruneAt(sink, s3Plan(number))).toMatchObject({ kind: "removed" });
    },
    async faults(at) {
      return (await at.names()).filter((name) => /_SUCCESS|_manifest|part-|staged/.test(name));
    },
  },
];

/** The short form tries a run that may have been published, and one that is taken down. */
const tried = endings
  .flatMap((ending) => [1, 2].map((number) => ({ number, what: ending.what, ending })))
  .filter(
    ({ number, what }) =>
      torture || (number === 1 && what.endsWith("planned")) || (number === 2 && what.endsWith("pruned")),
  );

async function worldBefore(number: number): Promise<S3World> {
  const at = await s3World(s3.server());
  await using sink = await at.open();
  for (let earlier = 1; earlier < number; earlier += 1) {
    await carryOutS3(sink, earlier);
  }
  return at;
}

/** The requests of an undisturbed run, by their number: in the short form of every fourth kind of write the first, or the last. */
async function requestsOf(number: number): Promise<{ at: number; request: string }[]> {
  await using at = await worldBefore(number);
  const from = at.proxy.requests.length;
  await using sink = await at.open();
  await carryOutS3(sink, number);
  const all = at.proxy.requests.slice(from).map((request, index) => ({ at: index, request }));
  if (torture) {
    return all;
  }
  const writes = all.filter(({ request }) => request.startsWith("PUT ") && !request.includes("probe."));
  const ordered = number === 1 ? writes.toReversed() : writes;
  const kindOf = (request: string): string => request.replace(/bucket-\d+/, "").replaceAll(/\d+/g, "#");
  const ofEachKind = new Map(ordered.map((write) => [kindOf(write.request), write]));
  const kinds = [...ofEachKind.keys()].toSorted();
  return [...ofEachKind].filter(([kind]) => (kinds.indexOf(kind) + number) % 4 === 0).map(([, write]) => write);
}

async function faultsOf(number: number, at: number, ending: Ending): Promise<string[]> {
  await using world = await worldBefore(number);
  await using late = await world.open();
  await using other = await world.open();
  const [reached, gate] = [latch<void>(), latch<void>()];
  let seen = -1;
  world.proxy.twist = () => {
    seen += 1;
    if (seen !== at) {
      return undefined;
    }
    world.proxy.twist = undefined;
    reached.resolve(undefined);
    return { kind: "hold", until: gate.promise };
  };
  const ended = carryOutS3(late, number).then(
    () => undefined,
    (error: unknown) => error,
  );
  await Promise.race([reached.promise, ended]);
  await ending.meanwhile(other, number);
  gate.resolve(undefined);
  const error = await ended;
  const isTold = error === undefined || (error instanceof JobError && ["PLAN_CHANGED", "PRUNED"].includes(error.code));
  return [...(isTold ? [] : [messageOf(error)]), ...(await ending.faults(world, other, number))];
}

s3.describe("an attempt in S3 that stands before any request", () => {
  test.each(tried)(
    "an attempt that stands before any request harms nothing while run $number $what",
    async ({ number, ending }) => {
      const faults: string[] = [];
      await inParallel(await requestsOf(number), 2, async ({ at, request }) => {
        const found = await faultsOf(number, at, ending).catch((error: unknown) => [messageOf(error)]);
        faults.push(...found.map((fault) => `${at} ${request}: ${fault}`));
      });
      expect(faults).toEqual([]);
    },
    1_800_000,
  );
});
