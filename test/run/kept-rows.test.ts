import { expect, test } from "vitest";
import type { ByteRange, Decoder, SliceRequest } from "#src/formats/port.js";
import { fewestKept, fewestOf } from "#src/run/planning/kept-rows.js";
import type { JobContext } from "#src/scoring/context.js";
import { planOf } from "../support/plans.js";
import { randomOf } from "../support/random.js";

test("the rows that a filter keeps are known exactly if all were counted", () => {
  const places = [
    { read: 600, sum: 3 },
    { read: 400, sum: 0 },
  ];
  expect(fewestOf(places, 1000)).toBe(3);
});

test("a filter is taken to keep no more rows than were found if none, or only one place, was counted", () => {
  expect(fewestOf([], 1_000_000)).toBe(0);
  expect(fewestOf([{ read: 1000, sum: 700 }], 1_000_000)).toBe(700);
});

/** Counts 64 places of 16,384 rows, of which a filter keeps the share that `draw` gives. */
function draws(draw: (random: () => number) => number): number[] {
  const random = randomOf(5);
  return Array.from({ length: 300 }, () => {
    const places = Array.from({ length: 64 }, () => ({ read: 16_384, sum: Math.round(16_384 * draw(random)) }));
    return fewestOf(places, 100_000_000) / 100_000_000;
  });
}

test("the rows that a filter keeps are hardly ever overestimated, and rows spread evenly are not underestimated by half", () => {
  const even = draws((random) => 0.02 + 0.01 * random());
  expect(Math.max(...even)).toBeLessThan(0.025);
  expect(Math.min(...even)).toBeGreaterThan(0.0125);
  // A fifth of the places has all kept rows, as in a table that is sorted by country.
  const clustered = draws((random) => (random() < 0.2 ? 1 : 0));
  expect(clustered.filter((share) => share > 0.2).length / clustered.length).toBeLessThan(0.01);
  expect(Math.min(...clustered)).toBeGreaterThan(0);
});

const mebibyte = 1024 * 1024;

/** Counts the rows of shards in a store that does not exist. */
async function countIn(
  shards: number,
  { msEach = 0, fail }: { readonly msEach?: number; readonly fail?: () => never },
): Promise<{ readonly fewest: number; readonly fetched: number; readonly left: number }> {
  const plan = planOf(
    Array.from({ length: shards }, () => 1000),
    1000,
  );
  let [fetched, now, left] = [0, 0, 0];
  const source = {
    readAhead: { files: 4, coalescedFiles: 1, windowBytes: 32 * mebibyte, bytes: 256 * mebibyte },
    open: ({ uri }: { readonly uri: string }) => {
      left += 1;
      return Promise.resolve({
        path: uri,
        name: uri,
        remote: {
          fetch: (ranges: readonly ByteRange[]) => {
            fetched += ranges.reduce((sum, { start, end }) => sum + end - start, 0);
            return Promise.resolve();
          },
        },
        [Symbol.asyncDispose]: () => {
          left -= 1;
          return Promise.resolve();
        },
      });
    },
  };
  const decoder = {
    windows: ({ rowStart, rowEnd }: SliceRequest) =>
      Promise.resolve([{ rowStart, rowEnd, ranges: [{ start: 0, end: 10 * mebibyte }] }]),
    countKept: () => {
      now += msEach;
      return fail === undefined ? Promise.resolve(500) : fail();
    },
  };
  const context = {
    source,
    signal: new AbortController().signal,
    nowMs: () => now,
    log: { debug() {} },
  } as unknown as JobContext;
  const fewest = await fewestKept(context, plan, decoder as unknown as Decoder);
  return { fewest, fetched, left };
}

test("the rows that a filter keeps are counted whole if there are few bytes, and else over some seventy MiB", async () => {
  expect(await countIn(5, {})).toEqual({ fewest: 2500, fetched: 50 * mebibyte, left: 0 });
  const many = await countIn(100, {});
  expect(many).toMatchObject({ fetched: 70 * mebibyte, left: 0 }); // no shard is left open
  expect(many.fewest).toBe(50_000); // each of the places that were counted keeps half of its rows
});

function fail(): never {
  throw new Error("the page is damaged");
}

test("the rows that a filter keeps are not counted on after five seconds, nor after an error", async () => {
  expect((await countIn(5, { msEach: 6000 })).fewest).toBe(500);
  expect((await countIn(5, { fail })).fewest).toBe(0);
});
