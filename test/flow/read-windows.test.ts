import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { Decoder } from "#src/formats/format.js";
import { type SliceOfRun, windowsAhead } from "#src/flow/read.js";
import type { OpenShard, Source } from "#src/sources/source.js";

interface Seen {
  /** Files that are open. */
  open: number;
  mostOpen: number;
  /** Bytes that were asked for, of files that are open. */
  bytes: number;
  mostBytes: number;
}

/** A source of shards in windows of 10 rows and 100 bytes; fetching one takes a while. */
function slowSource(
  readAhead: Source["readAhead"],
  seen: Seen,
  fails: (fetches: number) => boolean = () => false,
): Source {
  let fetches = 0;
  return {
    readAhead,
    list: () => Promise.reject(new Error("not listed here")),
    listNames: () => Promise.resolve([]),
    exists: () => Promise.resolve(true),
    open(shard): Promise<OpenShard> {
      let own = 0;
      seen.open += 1;
      seen.mostOpen = Math.max(seen.mostOpen, seen.open);
      return Promise.resolve({
        path: shard.uri,
        name: shard.uri,
        partitions: new Map(),
        remote: {
          async fetch(ranges) {
            fetches += 1;
            const mine = fetches;
            own += ranges.reduce((sum, { start, end }) => sum + end - start, 0);
            seen.bytes += own;
            seen.mostBytes = Math.max(seen.mostBytes, seen.bytes);
            await sleep(mine % 3);
            if (fails(mine)) {
              throw new Error("the store is away");
            }
          },
          forget: () => Promise.resolve(),
        },
        check: () => Promise.resolve(),
        digest: () => Promise.resolve(""),
        [Symbol.asyncDispose]() {
          seen.open -= 1;
          seen.bytes -= own;
          return Promise.resolve();
        },
      });
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

const decoder = {
  windows: ({ rowStart, rowEnd }: { rowStart: number; rowEnd: number }) => {
    const count = (rowEnd - rowStart) / 10;
    return Promise.resolve(
      Array.from({ length: count }, (_, index) => ({
        rowStart: rowStart + index * 10,
        rowEnd: rowStart + index * 10 + 10,
        ranges: [{ start: 0, end: 100 }],
      })),
    );
  },
} as unknown as Decoder;

const shards = [30, 10, 50, 20, 10, 10].map((rows, index) => ({
  uri: `s${index}`,
  sizeBytes: 1000,
  fingerprint: "",
  rows,
}));

function slices(): SliceOfRun[] {
  let rowStart = 0;
  return shards.map((shard) => {
    rowStart += shard.rows;
    return { slice: { shard, rowStart: 0, rowEnd: shard.rows }, rowStart: rowStart - shard.rows };
  });
}

function world(
  readAhead: Omit<Source["readAhead"], "coalescedFiles">,
  fails?: (fetches: number) => boolean,
): { seen: Seen; tools: Parameters<typeof windowsAhead>[0] } {
  const seen: Seen = { open: 0, mostOpen: 0, bytes: 0, mostBytes: 0 };
  const projection = { inputs: [], passthrough: [], expressions: null, cast: "exact", missing: "bad_row" } as const;
  return { seen, tools: { source: slowSource({ ...readAhead, coalescedFiles: 1 }, seen, fails), decoder, projection } };
}

describe("windows that are fetched ahead", () => {
  test.each([
    { files: 1, bytes: 100 },
    { files: 4, bytes: 250 },
    { files: 8, bytes: 10_000 },
    { files: 8, bytes: 50 },
  ])("windows that are fetched ahead come in order, within $files files and $bytes bytes", async ({ files, bytes }) => {
    const { seen, tools } = world({ files, bytes, windowBytes: 100 });
    const starts: number[] = [];

    for await (const window of windowsAhead(
      tools,
      slices().map((slice) => [slice]),
    )) {
      await window.there;
      starts.push(window.rowStart);
      await sleep(1);
      await window.done();
    }

    expect(starts).toEqual(Array.from({ length: 13 }, (_, index) => index * 10));
    expect(seen.open).toBe(0);
    expect(seen.mostBytes).toBeLessThanOrEqual(Math.max(bytes, 100));
    expect(seen.mostOpen).toBeLessThanOrEqual(2 * files + 2);
    expect(seen.mostBytes).toBeGreaterThanOrEqual(Math.min(bytes, files * 100, 800) - 50);
  });

  test("windows that are fetched ahead do not wait for each other if the limit allows several", async () => {
    const { seen, tools } = world({ files: 4, bytes: 1000, windowBytes: 100 });
    const windows = windowsAhead(
      tools,
      slices().map((slice) => [slice]),
    );
    await windows.next();
    await sleep(20);

    expect(seen.bytes).toBeGreaterThanOrEqual(400);

    await windows.return(undefined);
  });

  test("windows that were opened ahead are closed when the reader stops", async () => {
    const { seen, tools } = world({ files: 4, bytes: 1000, windowBytes: 100 });
    for await (const window of windowsAhead(
      tools,
      slices().map((slice) => [slice]),
    )) {
      await window.done();
      break;
    }
    expect(seen.open).toBe(0);
  });

  test("a window that could not be fetched fails when it is its turn, and all windows are closed", async () => {
    const { seen, tools } = world({ files: 4, bytes: 1000, windowBytes: 100 }, (fetches) => fetches === 5);
    const starts: number[] = [];
    const reading = async (): Promise<void> => {
      for await (const window of windowsAhead(
        tools,
        slices().map((slice) => [slice]),
      )) {
        try {
          await window.there;
          starts.push(window.rowStart);
        } finally {
          await window.done();
        }
      }
    };

    await expect(reading()).rejects.toThrow("the store is away");

    expect(starts).toEqual([0, 10, 20, 30]);
    expect(seen.open).toBe(0);
  });

  test("a window that cannot be opened fails after the windows before it in its group", async () => {
    const { seen, tools } = world({ files: 1, bytes: 1000, windowBytes: 100 });
    const local = { ...tools.source, open: openLocally(tools.source, "s3") };
    const starts: number[] = [];
    const reading = async (): Promise<void> => {
      for await (const window of windowsAhead({ ...tools, source: local }, [slices()])) {
        starts.push(window.rowStart);
        await window.done();
      }
    };

    await expect(reading()).rejects.toThrow("s3 was replaced");

    expect(starts).toEqual([0, 30, 40]);
    expect(seen.open).toBe(0);
  });

  test("a group of shards that can be opened is one window", async () => {
    const { seen, tools } = world({ files: 1, bytes: 1000, windowBytes: 100 });
    const local = { ...tools.source, open: openLocally(tools.source, "none") };
    const windows: (readonly [number, number, number])[] = [];
    for await (const window of windowsAhead({ ...tools, source: local }, [slices()])) {
      windows.push([window.rowStart, window.rowEnd, window.requests.length]);
      await window.done();
    }
    expect(windows).toEqual([[0, 130, 6]]);
    expect(seen.open).toBe(0);
  });
});

/** Files on a disk, all but one. */
function openLocally(source: Source, replaced: string): Source["open"] {
  return async (shard) => {
    if (shard.uri === replaced) {
      throw new Error(`${replaced} was replaced`);
    }
    return { ...(await source.open(shard)), remote: undefined };
  };
}
