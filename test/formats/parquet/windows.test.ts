import { open, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import type { ByteRange, ShardFile } from "#src/formats/format.js";
import type { Projection } from "#src/models/binding/contract.js";
import { scratch } from "../../support/job.js";
import { writeRows } from "../../support/parquet.js";

const rows = 10_000;
const columns = ["id", "a", "b", "c"];
/** Its last 64 KiB, which are fetched with the footer, have no more than the last row group. */
const table = `SELECT i::BIGINT AS id, ${["a", "b", "c"].map((name) => `(hash(i, '${name}') >> 1)::BIGINT AS ${name}`).join(", ")}
  FROM range(${rows}) t(i)`;

function projectionOf(names: readonly string[]): Projection {
  return {
    inputs: [],
    passthrough: names.map((name) => ({ column: name, source: { name, path: [name], type: "int64" } })),
    expressions: null,
    cast: "exact",
    missing: "bad_row",
  };
}

async function holedFile(
  source: string,
  path: string,
): Promise<{ file: ShardFile; asked: ByteRange[] } & AsyncDisposable> {
  const bytes = await readFile(source);
  const handle = await open(path, "w+");
  await handle.truncate(bytes.length);
  const asked: ByteRange[] = [];
  const fetch = async (ranges: readonly ByteRange[]): Promise<void> => {
    asked.push(...ranges);
    for (const { start, end } of ranges) {
      await handle.write(bytes, start, end - start, start);
    }
  };
  const remote = { fetch, forget: () => Promise.resolve() };
  return { file: { path, name: "s3://lake/a.parquet", remote }, asked, [Symbol.asyncDispose]: () => handle.close() };
}

test.each(["uncompressed", "snappy", "zstd"])(
  "windows have the bytes of their columns and rows, and what was not fetched is never read as zeros (%s)",
  async (compression) => {
    const source = join(scratch.path, "whole.parquet");
    await writeRows(source, table, `COMPRESSION ${compression}, ROW_GROUP_SIZE 2048`);
    await using decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "UTC" });
    const partitions = new Map<string, null>();
    for (const needed of [["id"], ["b"], ["id", "c"], ["a", "b", "c"]]) {
      await using holed = await holedFile(source, join(scratch.path, `${needed.join("")}.parquet`));
      const { file } = holed;
      const slice = { file, rowStart: 3000, rowEnd: 9000, projection: projectionOf(needed), partitions };
      const windows = await decoder.windows(slice, 1);
      expect(windows.map(({ rowStart, rowEnd }) => [rowStart, rowEnd])).toEqual([
        [3000, 4096],
        [4096, 6144],
        [6144, 8192],
        [8192, 9000],
      ]);
      await file.remote?.fetch(windows.flatMap(({ ranges }) => ranges));

      let next = 3000n;
      for await (const { carried, rowCount } of decoder.read([slice])) {
        const [first] = carried;
        if (first?.kind === "fixed" && needed[0] === "id") {
          expect([...(first.data as BigInt64Array)].slice(0, rowCount)[0]).toBe(next);
        }
        next += BigInt(rowCount);
      }
      expect(next).toBe(9000n);

      for (const other of columns.filter((name) => !needed.includes(name))) {
        const reading = async (): Promise<void> => {
          for await (const batch of decoder.read([{ ...slice, projection: projectionOf([other]) }])) {
            expect(batch.rowCount).toBe(-1); // no row of it may come
          }
        };
        await expect(reading()).rejects.toThrow(/^reading s3:\/\/lake\/a\.parquet: row group 1 /);
      }
    }
  },
);

test.each(["uncompressed", "snappy", "zstd"])("windows have the levels of a list's pages (%s)", async (compression) => {
  const source = join(scratch.path, "whole.parquet");
  const select = `SELECT i::BIGINT AS id, range(i % 9) AS l, [range(i % 4)] AS other FROM range(${rows}) t(i)`;
  await writeRows(source, select, `COMPRESSION ${compression}, ROW_GROUP_SIZE 2048`);
  await using decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "UTC" });
  await using holed = await holedFile(source, join(scratch.path, "holed.parquet"));
  const { file } = holed;
  const column = { name: "l", path: ["l"], type: { kind: "list", element: "int64" } } as const;
  const projection = { ...projectionOf([]), passthrough: [{ column: "l", source: column }] };
  const slice = { file, rowStart: 3000, rowEnd: 9000, projection, partitions: new Map<string, null>() };
  let next = slice.rowStart;
  for (const window of await decoder.windows(slice, 1)) {
    await file.remote?.fetch(window.ranges);
    for await (const { rowCount } of decoder.read([{ ...slice, rowStart: window.rowStart, rowEnd: window.rowEnd }])) {
      next += rowCount;
    }
    expect(next).toBe(window.rowEnd);
  }
  expect(next).toBe(9000);
});

test("a window is as many row groups as there is room for, and never less than one", async () => {
  const source = join(scratch.path, "whole.parquet");
  await writeRows(source, table, "COMPRESSION uncompressed, ROW_GROUP_SIZE 2048");
  await using decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "UTC" });
  await using holed = await holedFile(source, join(scratch.path, "holed.parquet"));
  const slice = {
    file: holed.file,
    rowStart: 0,
    rowEnd: rows,
    projection: projectionOf(["id"]),
    partitions: new Map<string, null>(),
  };
  const counts = async (windowBytes: number): Promise<number[]> =>
    (await decoder.windows(slice, windowBytes)).map(({ rowStart, rowEnd }) => Math.ceil((rowEnd - rowStart) / 2048));

  expect(await counts(1)).toEqual([1, 1, 1, 1, 1]);
  expect(await counts(2 * 2048 * 8 + 1000)).toEqual([2, 2, 1]);
  expect(await counts(Number.POSITIVE_INFINITY)).toEqual([5]);
  const { size } = await stat(source);
  expect(holed.asked.every(({ start, end }) => start >= 0 && end <= size)).toBe(true);
});
