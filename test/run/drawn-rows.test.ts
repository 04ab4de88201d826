import { expect, test } from "vitest";
import type { JobContext } from "#src/flow/context.js";
import type { ByteRange, Decoder, SliceRequest } from "#src/formats/format.js";
import type { Plan } from "#src/run/plan/plan.js";
import { fewestKept, planSample } from "#src/run/planning.js";
import { drawRows } from "#src/run/preview-rows.js";
import { planOf } from "../support/plans.js";

test("drawing rows draws each row once, the same ones for a seed, however many are drawn at a time", () => {
  const whole = drawRows(50, 3);
  expect(whole.more(60).toSorted((one, other) => one - other)).toEqual(Array.from({ length: 50 }, (_, row) => row));
  expect(whole.more(1)).toEqual([]);
  const parts = drawRows(50, 3);
  expect([...parts.more(7), ...parts.more(1), ...parts.more(50)]).toEqual(whole.rows);
  expect(drawRows(50, 4).more(50)).not.toEqual(whole.rows);
});

test("each row, and each pair of neighbours, is drawn equally often over many seeds", () => {
  const [all, wanted, seeds] = [20, 5, 20_000];
  const counts = new Float64Array(all);
  let pairs = 0;
  for (let seed = 1; seed <= seeds; seed += 1) {
    const drawn = new Set(drawRows(all, seed).more(wanted));
    for (const row of drawn) {
      counts[row] = (counts[row] ?? 0) + 1;
      pairs += drawn.has(row + 1) ? 1 : 0;
    }
  }
  const expected = (seeds * wanted) / all;
  const chiSquare = counts.reduce((sum, found) => sum + (found - expected) ** 2 / expected, 0);
  expect(chiSquare).toBeLessThan(43.8); // 19 degrees of freedom, p = 0.001; the seeds are fixed
  const expectedPairs = (seeds * (all - 1) * wanted * (wanted - 1)) / (all * (all - 1));
  expect(Math.abs(pairs - expectedPairs)).toBeLessThan(4 * Math.sqrt(expectedPairs));
});

test("rows are drawn from a table of 100 million without a list of them", () => {
  const drawn = drawRows(100_000_000, 1).more(10_000);
  expect(new Set(drawn).size).toBe(10_000);
  const tenths = new Float64Array(10);
  for (const row of drawn) {
    const tenth = Math.floor(row / 10_000_000);
    tenths[tenth] = (tenths[tenth] ?? 0) + 1;
  }
  for (const rows of tenths) {
    expect(Math.abs(rows - 1000)).toBeLessThan(120); // four standard deviations
  }
});

const mebibyte = 1024 * 1024;

interface StoreOptions {
  /** How long counting the rows of a window takes. */
  readonly msEach?: number;
  /** Bytes of a shard that are fetched to count its rows; 0: the shards are on a disk. */
  readonly bytesEach?: number;
  /** Windows that a store cuts a shard into. */
  readonly windowsEach?: number;
  /** Called before the nth shard is opened. */
  readonly beforeOpen?: (nth: number) => void;
  /** The rows of a shard that are kept. */
  readonly keep?: () => number;
}

/** A store that does not exist, and what was done there. The filter keeps half of the rows unless `keep` says otherwise. */
function storeOf({
  msEach = 0,
  bytesEach = 10 * mebibyte,
  windowsEach = 1,
  beforeOpen = () => {},
  keep = () => 500,
}: StoreOptions) {
  const seen = { fetched: 0, opened: 0, left: 0, info: [] as string[] };
  let now = 0;
  const source = {
    readAhead: {
      files: 4,
      coalescedFiles: bytesEach === 0 ? 64 : 1,
      windowBytes: 32 * mebibyte,
      bytes: 256 * mebibyte,
    },
    open: async ({ uri }: { readonly uri: string }) => {
      seen.opened += 1;
      beforeOpen(seen.opened);
      seen.left += 1;
      const remote = {
        fetch: async (ranges: readonly ByteRange[]) => {
          seen.fetched += ranges.reduce((sum, { start, end }) => sum + end - start, 0);
        },
      };
      return {
        path: uri,
        name: uri,
        remote: bytesEach === 0 ? undefined : remote,
        [Symbol.asyncDispose]: async () => {
          seen.left -= 1;
        },
      };
    },
  };
  const decoder = {
    windows: async ({ rowStart, rowEnd }: SliceRequest) => {
      const rows = (rowEnd - rowStart) / windowsEach;
      return Array.from({ length: windowsEach }, (_, index) => ({
        rowStart: rowStart + index * rows,
        rowEnd: rowStart + (index + 1) * rows,
        ranges: [{ start: 0, end: bytesEach / windowsEach }],
      }));
    },
    countKept: async (requests: readonly SliceRequest[]) => {
      now += msEach;
      return requests.reduce((sum) => sum + keep() / windowsEach, 0);
    },
  } as unknown as Decoder;
  const context = {
    source,
    signal: new AbortController().signal,
    nowMs: () => now,
    log: { debug() {}, info: (message: string) => seen.info.push(message) },
  } as unknown as JobContext;
  return { context, decoder, seen };
}

/** A plan over shards of 1000 rows: up to 128 of them are counted whole, more in 64 places. */
function planOver(shards: number): Plan {
  const plan = planOf(
    Array.from({ length: shards }, () => 1000),
    1000,
  );
  return { ...plan, input: { ...plan.input, uniform: true } };
}

async function countIn(shards: number, options: StoreOptions) {
  const { context, decoder, seen } = storeOf(options);
  return { fewest: await fewestKept(context, planOver(shards), decoder), ...seen };
}

test("the rows that a filter keeps are counted whole if there are few bytes, and else over some seventy MiB", async () => {
  expect(await countIn(5, {})).toEqual({ fewest: 2500, fetched: 50 * mebibyte, opened: 5, left: 0, info: [] });
  const many = await countIn(100, {});
  expect(many).toMatchObject({ fetched: 70 * mebibyte, left: 0 }); // no shard is left open
  expect(many.fewest).toBe(50_000); // each of the places that were counted keeps half of its rows
});

test("no more shards are opened to count rows once enough bytes are fetched", async () => {
  const { opened } = await countIn(100, {});
  expect(opened).toBeLessThanOrEqual(7 + 4); // the others were being opened when the seventh needed the last bytes
});

test("the rows that a filter keeps are not counted on after five seconds", async () => {
  expect(await countIn(5, { msEach: 6000 })).toMatchObject({ fewest: 500, left: 0 });
});

const keep = (): number => 0;

test("a count of a small input that ended early is not used if it has found no row that the filter keeps", async () => {
  expect(await countIn(5, { msEach: 6000, keep })).toMatchObject({
    fewest: undefined,
    info: [expect.stringContaining("because only 1 of 5 places could be counted")],
  });
  expect((await countIn(5, { keep })).fewest).toBe(0);
  expect((await countIn(1000, { bytesEach: 0, keep })).fewest).toBe(0);
});

test("the rows that a filter keeps in a large input are estimated from at least 16 places", async () => {
  expect(await countIn(1000, { bytesEach: mebibyte })).toMatchObject({ fewest: 500_000, left: 0, info: [] });
  expect(await countIn(1000, { bytesEach: 4 * mebibyte })).toMatchObject({ fewest: 500_000, left: 0, info: [] });
  for (const few of [{ bytesEach: 5 * mebibyte }, { bytesEach: 20 * mebibyte, windowsEach: 8 }, { msEach: 6000 }]) {
    const { fewest, left, info } = await countIn(1000, few);
    expect([fewest, left]).toEqual([undefined, 0]);
    expect(info).toEqual([
      expect.stringMatching(
        /^the number of rows that input.where keeps is unknown, because only (1|4|13) of 64 places could be counted within 5 s and 64 MiB: features are sampled as if it kept all 1000000 rows, /,
      ),
    ]);
  }
});

test("small files of a large input on a disk are counted one by one, so that they tell how much they differ", async () => {
  expect(await countIn(1000, { bytesEach: 0 })).toMatchObject({ fewest: 500_000, left: 0 });
});

test("a count that an error ended is not used", async () => {
  for (const shards of [5, 1000]) {
    const { fewest, left, info } = await countIn(shards, { keep: failToRead });
    expect([fewest, left]).toEqual([undefined, 0]);
    expect(info).toEqual([expect.stringContaining("because an error ended the count (the page is damaged): ")]);
  }
});

test.each([1, 2, 40])(
  "a plan keeps the rate of the planned rows if shard %i cannot be opened to count",
  async (bad) => {
    const beforeOpen = (nth: number): void => {
      if (nth === bad) {
        throw new Error("503 Slow Down");
      }
    };
    const plan = withFilter(planOver(1000));
    const { context, decoder, seen } = storeOf({ bytesEach: mebibyte, beforeOpen });
    expect(await planSample(context, { plan, decoder })).toEqual(plan);
    expect(seen.info).toEqual([expect.stringContaining("503 Slow Down")]);

    const healthy = storeOf({ bytesEach: mebibyte });
    const { checks } = await planSample(healthy.context, { plan, decoder: healthy.decoder });
    expect(checks?.sampleEvery).toBe(61); // 500,000 rows / 8192
  },
);

function withFilter(plan: Plan): Plan {
  const checks = { baseline: [] } as unknown as Plan["checks"];
  return { ...plan, checks, request: { ...plan.request, where: "id % 2 = 0" } };
}

function failToRead(): never {
  throw new Error("the page is damaged");
}
