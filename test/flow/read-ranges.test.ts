import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import {
  type CoalesceLimits,
  coalesceSlices,
  readRanges,
  type ReadRangesOptions,
  type SliceOfRun,
  windowsAhead,
} from "#src/flow/read.js";
import type { SliceReader } from "#src/flow/workers/slice-reader.js";
import type { Decoder } from "#src/formats/format.js";
import { type PlannedShard, unwatched } from "#src/run/plan/plan.js";
import { spansOf } from "#src/run/plan/spans.js";
import type { OpenShard, Source } from "#src/sources/source.js";
import { matrixBatch, packingContract } from "../support/batches.js";
import { planOf } from "../support/plans.js";

/** 2,048 values a row: decoding the next shard begins when 1,024 rows are left. */
const columns = Array.from({ length: 2047 }, (_, index) => `f${index}`);
const rows = 2000;
const batchRows = 100;

interface Watched {
  readonly tools: ReadRangesOptions;
  readonly calls: string[];
}

function watched(shards: number, { together = 1, uniform = true } = {}): Watched {
  const calls: string[] = [];
  const source = {
    readAhead: { files: 1, coalescedFiles: together, windowBytes: 1, bytes: 1 },
    async open({ uri }) {
      calls.push(`open ${uri}`);
      return {
        path: uri,
        name: uri,
        partitions: new Map(),
        remote: undefined,
        check: async () => {},
        digest: async () => "",
        async [Symbol.asyncDispose]() {
          calls.push(`close ${uri}`);
        },
      };
    },
  } as Pick<Source, "readAhead" | "open"> as Source;
  const reader = {
    async *read(askedSlices, _rowsLeft, turn) {
      const paths = askedSlices.map(({ file }) => file.path).join(" ");
      calls.push(`begin ${paths}`);
      await turn?.queued;
      calls.push(`queue ${paths}`);
      await turn?.near;
      calls.push(`decode ${paths}`);
      for (const { rowStart, rowEnd } of askedSlices) {
        for (let row = rowStart; row < rowEnd; row += batchRows) {
          yield matrixBatch(Array.from({ length: Math.min(batchRows, rowEnd - row) }, () => [1]));
        }
      }
    },
  } satisfies Pick<SliceReader, "read">;
  const decoder = {} as Decoder; // asked only where shards are fetched in parts
  const plan = planOf(Array<number>(shards).fill(rows), 3000);
  const projection = packingContract(columns);
  return { calls, tools: { source, decoder, reader, windowsAhead: 1, spans: spansOf(plan), projection, uniform } };
}

const oneWindow: Decoder["windows"] = ({ rowStart, rowEnd }) =>
  Promise.resolve([{ rowStart, rowEnd, ranges: [{ start: 0, end: 1 }] }]);

const never = (): Promise<never> => new Promise(() => {});

test("a reader gets the number of pending rows that are left", async () => {
  const { tools } = watched(3);
  const left: number[] = [];
  const reader: ReadRangesOptions["reader"] = {
    read(askedSlices, rowsLeft, turn) {
      left.push(rowsLeft);
      return tools.reader.read(askedSlices, rowsLeft, turn);
    },
  };
  const ranges = [
    { rowStart: 500, rowEnd: rows + 100 },
    { rowStart: 2 * rows, rowEnd: 3 * rows },
  ];
  for await (const piece of readRanges({ ...tools, reader, windowsAhead: 2 }, ranges)) {
    expect(piece.shards).toHaveLength(1);
  }
  expect(left).toEqual([rows - 500 + 100 + rows, 100 + rows, rows]);
});

test.each([1, -1])("a reader that yields another number of rows than a shard has ends the run", async (more) => {
  const { tools } = watched(2);
  const reader: ReadRangesOptions["reader"] = {
    read: (askedSlices, rowsLeft, turn) =>
      tools.reader.read(
        askedSlices.map((slice) => ({ ...slice, rowEnd: slice.rowEnd + more })),
        rowsLeft,
        turn,
      ),
  };
  const reading = async (): Promise<void> => {
    for await (const piece of readRanges({ ...tools, reader }, [{ rowStart: 0, rowEnd: 2 * rows }])) {
      expect(piece.shards).toHaveLength(1);
    }
  };
  await expect(reading()).rejects.toThrow(`${-more} rows before row ${rows} of the run did not come`);
});

test("while a shard is read, the next one is open and started, and it is decoded when the end is near", async () => {
  const { tools, calls } = watched(3);
  for await (const {
    rowStart,
    shards: [shard],
  } of readRanges(tools, [{ rowStart: 0, rowEnd: 3 * rows }])) {
    calls.push(`${shard?.path} ${rowStart}`);
  }
  const rowBefore = (call: string): number => Number(calls[calls.indexOf(call) - 1]?.split(" ")[1]);
  expect(calls.indexOf("open s1")).toBeLessThan(calls.indexOf("s0 0"));
  expect(calls.indexOf("begin s1")).toBeLessThan(calls.indexOf("s0 100"));
  expect([800, 900]).toContain(rowBefore("decode s1")); // 1,024 rows are left after row 900
  expect(calls.indexOf("begin s2")).toBeLessThan(calls.indexOf("s1 2100"));
  expect([2800, 2900]).toContain(rowBefore("decode s2"));
  expect(calls.filter((call) => / \d+$/.test(call))).toHaveLength((3 * rows) / batchRows);
});

test.each([0, 1500])(
  "the shard that is read and the next one are closed when their reader stops at row %i",
  async (stop) => {
    const { tools, calls } = watched(2);
    for await (const { rowStart } of readRanges(tools, [{ rowStart: 0, rowEnd: 2 * rows }])) {
      if (rowStart === stop) {
        break;
      }
    }
    expect(calls.filter((call) => call.startsWith("close")).toSorted()).toEqual(["close s0", "close s1"]);
    expect(calls.includes("decode s1")).toBe(stop > 1000);
  },
);

test("shards whose bytes never come are closed when their reader stops", async () => {
  const { tools, calls } = watched(4);
  const { source, decoder } = tools;
  const open: Source["open"] = async (shard) => ({
    ...(await source.open(shard)),
    remote: { forget: never, fetch: () => (shard.uri === "s0" ? Promise.resolve() : never()) },
  });
  const far = {
    ...tools,
    source: { ...source, open, ahead: { ...source.readAhead, files: 3, bytes: 100 } },
    decoder: { ...decoder, windows: oneWindow },
    windowsAhead: 2,
  };
  for await (const { rowStart } of readRanges(far, [{ rowStart: 0, rowEnd: 4 * rows }])) {
    if (rowStart === 300) {
      break;
    }
  }
  const opened = calls.filter((call) => call.startsWith("open")).length;
  expect(opened).toBeGreaterThan(1);
  expect(calls.filter((call) => call.startsWith("close"))).toHaveLength(opened);
  expect(calls).not.toContain("begin s1");
});

test("while a shard is read, as many shards are started as threads score, each after the shard before it has given rows", async () => {
  const { tools, calls } = watched(4);
  for await (const { rowStart } of readRanges({ ...tools, windowsAhead: 2 }, [{ rowStart: 0, rowEnd: 4 * rows }])) {
    calls.push(`row ${rowStart}`);
  }
  // What waits for its turn gives no rows: the one after it is begun then.
  expect(calls.indexOf("open s2")).toBeLessThan(calls.indexOf("row 100"));
  expect(calls.indexOf("queue s2")).toBeGreaterThan(calls.indexOf("decode s1"));
  expect(calls.indexOf("queue s2")).toBeLessThan(calls.indexOf("row 2000"));
  expect(calls.filter((call) => call.startsWith("row"))).toHaveLength((4 * rows) / batchRows);
});

interface Seen {
  open: number;
  mostOpen: number;
  /** Bytes that were asked for, of files that are open. */
  bytes: number;
  mostBytes: number;
}

function slowSource(
  readAhead: Source["readAhead"],
  seen: Seen,
  fails: (fetches: number) => boolean = () => false,
): Source {
  let fetches = 0;
  return {
    readAhead,
    list: () => Promise.reject(new Error("not listed here")),
    published: () => Promise.resolve(unwatched),
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

const shards = [30, 10, 50, 20, 10, 10].map((rowCount, index) => ({
  uri: `s${index}`,
  sizeBytes: 1000,
  fingerprint: "",
  rows: rowCount,
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

function openLocally(source: Source, replaced: string): Source["open"] {
  return async (shard) => {
    if (shard.uri === replaced) {
      throw new Error(`${replaced} was replaced`);
    }
    return { ...(await source.open(shard)), remote: undefined };
  };
}

const limits: CoalesceLimits = { uniform: true, shards: 4, rows: 100 };

/** `past`: rows of the run before it that are not asked for. */
type Shard = Partial<PlannedShard> & { readonly from?: number; readonly to?: number; readonly past?: number };

function groupsOf(shardList: readonly Shard[], changed: Partial<CoalesceLimits> = {}): string[] {
  let row = 0;
  const askedSlices = shardList.map(({ from, to, past = 0, ...given }, index): SliceOfRun => {
    const shard = { uri: `d/s${index}`, rows: 10, sizeBytes: 10, fingerprint: "", ...given };
    const slice = { shard, rowStart: from ?? 0, rowEnd: to ?? shard.rows };
    row += past + slice.rowEnd - slice.rowStart;
    return { slice, rowStart: row - (slice.rowEnd - slice.rowStart) };
  });
  return [...coalesceSlices(askedSlices, { ...limits, ...changed })].map((group) =>
    group.map(({ slice }) => slice.shard.uri.split("/").at(-1)).join(" "),
  );
}

test("small shards are read together in order, a bounded number at once", () => {
  expect(groupsOf(Array.from({ length: 9 }, () => ({})))).toEqual(["s0 s1 s2 s3", "s4 s5 s6 s7", "s8"]);
});

test.each([
  { when: "their rows are too many", shards: [{ rows: 60 }, { rows: 40 }, { rows: 1 }], groups: ["s0 s1", "s2"] },
  { when: "one is large", shards: [{}, { rows: 101 }, {}, {}], groups: ["s0", "s1", "s2 s3"] },
  { when: "one has many bytes", shards: [{}, { sizeBytes: 2 ** 25 }, {}], groups: ["s0", "s1", "s2"] },
  {
    when: "a folder is another one",
    shards: [{ uri: "d=1/s0" }, { uri: "d=1/s1" }, { uri: "d=2/s2" }],
    groups: ["s0 s1", "s2"],
  },
  { when: "there are others between them", shards: [{}, {}, { past: 10 }, {}], groups: ["s0 s1", "s2 s3"] },
  { when: "only a part is wanted of one", shards: [{ from: 3 }, {}, {}, { to: 5 }], groups: ["s0", "s1 s2", "s3"] },
])("small shards are not all read together when $when", ({ shards: shardList, groups }) => {
  expect(groupsOf(shardList)).toEqual(groups);
});

test("small shards are not read together when their columns differ", () => {
  expect(groupsOf([{}, {}], { uniform: false })).toEqual(["s0", "s1"]);
});
