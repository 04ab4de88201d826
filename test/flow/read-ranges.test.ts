import { describe, expect, test } from "vitest";
import type { Decoder } from "#src/formats/format.js";
import { spansOf } from "#src/run/plan/spans.js";
import { readRanges, type ReadRangesOptions } from "#src/flow/read.js";
import type { SliceReader } from "#src/flow/workers/slice-reader.js";
import type { Source } from "#src/sources/source.js";
import { matrixBatch, packingContract } from "../support/batches.js";
import { planOf } from "../support/plans.js";

/** 2,048 values a row: decoding the next shard begins when 1,024 rows are left. */
const columns = Array.from({ length: 2047 }, (_, index) => `f${index}`);
const rows = 2000;
const batchRows = 100;

interface Watched {
  readonly tools: ReadRangesOptions;
  /** What was asked of source and decoder, in order. */
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
    async *read(slices, _rowsLeft, turn) {
      const paths = slices.map(({ file }) => file.path).join(" ");
      calls.push(`begin ${paths}`);
      await turn?.queued;
      calls.push(`queue ${paths}`);
      await turn?.near;
      calls.push(`decode ${paths}`);
      for (const { rowStart, rowEnd } of slices) {
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
    read(slices, rowsLeft, turn) {
      left.push(rowsLeft);
      return tools.reader.read(slices, rowsLeft, turn);
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
    read: (slices, rowsLeft, turn) =>
      tools.reader.read(
        slices.map((slice) => ({ ...slice, rowEnd: slice.rowEnd + more })),
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

describe("while a shard is read", () => {
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
});
