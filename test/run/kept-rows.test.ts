import { expect, test } from "vitest";
import type { ByteRange, Decoder, SliceRequest } from "#src/formats/port.js";
import { fewestKept } from "#src/run/planning/kept-rows.js";
import type { JobContext } from "#src/scoring/context.js";
import { planOf } from "../support/plans.js";

const mebibyte = 1024 * 1024;

/** Counts the rows of shards in a store that does not exist. */
async function countIn(
  shards: number,
  {
    msEach = 0,
    count = () => Promise.resolve(500),
  }: { readonly msEach?: number; readonly count?: () => Promise<number> },
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
      return count();
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

test("the rows that a filter keeps are not counted on after five seconds, nor after an error", async () => {
  expect((await countIn(5, { msEach: 6000 })).fewest).toBe(500);
  expect((await countIn(5, { count: () => Promise.reject(new Error("the page is damaged")) })).fewest).toBe(0);
});
