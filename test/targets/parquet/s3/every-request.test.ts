import { expect, test } from "vitest";
import { messageOf } from "#src/base/errors.js";
import type { Twist } from "../../../support/http-proxy.js";
import { useFirstStores } from "../../../support/clouds.js";
import type { StoreServer } from "../../../support/s3.js";
import { type Moment, nthMoment, numbered } from "../../../support/s3-moments.js";
import { carryOutS3, s3World, type S3World } from "../../../support/s3-sink-world.js";
import { torture } from "../../../support/torture.js";

const tried = new Set<string>();

/**
 * Moments of an undisturbed run: after each kind of write that was not tried before, or every third one, and before
 * `_SUCCESS` is written; before and after all requests when it is to be tortured. Before a write the store holds what it
 * did after the one before.
 */
async function momentsOf(at: S3World, number: number, every: number): Promise<Moment[]> {
  await using sink = await at.open();
  const from = at.proxy.requests.length;
  await carryOutS3(sink, number);
  expect(await at.faults(number)).toEqual([]);
  const all = numbered(at.proxy.requests.slice(from));
  const last = all.filter(({ kind, isLast }) => /^(PUT|POST|DELETE) /.test(kind) && isLast);
  const untried = last.filter(({ kind }) => !tried.has(kind) || /_SUCCESS/.test(kind));
  const writes = torture ? all : untried.filter((_, index) => (untried.length - 1 - index) % every === 0);
  for (const { kind } of writes) {
    tried.add(kind);
  }
  const seen = torture ? all : last.filter(({ kind }) => /^(PUT|POST) .*_SUCCESS/.test(kind));
  return [
    ...writes.map(({ kind, nth }) => nthMoment(kind, nth, true)),
    ...seen.map(({ kind, nth }) => nthMoment(kind, nth, false)),
  ];
}

/** Kills a process: from this moment on, none of its requests arrive. */
async function dieAt(at: S3World, number: number, { isIt, after }: Moment): Promise<boolean> {
  const dead = new AbortController();
  await using sink = await at.open({ retrySeconds: 0, target: { signal: dead.signal } });
  let struck = false;
  const hung = new Promise<void>((done) => {
    at.proxy.twist = (request): Twist | undefined => {
      const isMoment = !struck && isIt(request);
      const goesOn = after && isMoment;
      struck ||= isMoment;
      return struck ? { kind: "hang", after: goesOn, hung: done } : undefined;
    };
  });
  const attempt = carryOutS3(sink, number).catch(() => undefined);
  await Promise.race([hung, attempt]);
  dead.abort(new Error("killed"));
  await attempt;
  at.proxy.twist = undefined;
  return struck;
}

async function faultsOf(at: S3World, number: number, moment: Moment): Promise<string[]> {
  const struck = await dieAt(at, number, moment);
  const midway = await at.faultsMidway();
  await using sink = await at.open();
  const faults = await carryOutS3(sink, number).then(
    () => at.faults(number),
    (error: unknown) => [messageOf(error)],
  );
  const all = [...(struck ? [] : ["it was not killed"]), ...midway, ...faults];
  return all.map((fault) => `${moment.text}: ${fault}`);
}

for (const { name, describe, server } of useFirstStores()) {
  describe(`a process that dies at any request to a target in ${name}`, () => {
    requestsOf(server);
  });
}

function requestsOf(server: () => StoreServer): void {
  test("a process that dies at any request leaves a run that the next one finishes", async () => {
    await using first = await s3World(server());
    const moments = await momentsOf(first, 1, 3); // a new run, below, makes the same writes
    const faults: string[] = [];
    for (const moment of moments) {
      await using at = await s3World(server());
      faults.push(...(await faultsOf(at, 1, moment)));
    }
    expect(faults).toEqual([]);
    expect(moments.length).toBeGreaterThan(2);
  }, 1_800_000);

  test("a process that dies at any request leaves a new run that the next one finishes; readers see old rows or new ones", async () => {
    await using at = await s3World(server());
    await using sink = await at.open();
    await carryOutS3(sink);
    const moments = await momentsOf(at, 2, 3);
    const faults: string[] = [];
    for (const [index, moment] of moments.entries()) {
      faults.push(...(await faultsOf(at, index + 3, moment)));
    }
    expect(faults).toEqual([]);
    expect(moments.length).toBeGreaterThan(torture ? 8 : 3);
  }, 1_800_000);
}
