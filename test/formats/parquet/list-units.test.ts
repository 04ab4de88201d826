import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import type { FixedColumn, ListColumn } from "#src/columns/types.js";
import type { Projection } from "#src/models/binding/contract.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { withPageBytes } from "#src/formats/parquet/long-values.js";
import type { PageMemory } from "#src/formats/parquet/pages/page-memory.js";
import {
  openParquetUnitReader,
  openUnitPieces,
  type ParquetUnit,
  parquetUnits,
  type UnitCut,
} from "#src/formats/parquet/units.js";
import { scratch } from "../../support/job.js";
import { plenty } from "../../support/memory.js";
import { writeRows } from "../../support/parquet.js";
import { reader, wholeSlice } from "../../support/parquet-units.js";
import { hasPyarrow, runPython } from "../../support/pyarrow.js";

const width = 400;
/** In bytes, more than a unit of lists has. */
const rows = 12_000;

async function unitsOf(path: string, cut: UnitCut = { limits: plenty }): Promise<ParquetUnit[] | undefined> {
  const slice = await wholeSlice(path);
  return slice && parquetUnits(await withPageBytes(await readParquetFooter({ path }), slice), slice, cut);
}

async function writeLists(path: string, options: string): Promise<void> {
  await writeRows(
    path,
    `SELECT list_transform(range(${width}), k -> (i + k)::FLOAT) AS l FROM range(${rows}) t(i)`,
    options,
  );
}

const oneGroup = "COMPRESSION uncompressed, ROW_GROUP_SIZE 122880, DICTIONARY_SIZE_LIMIT 1";

test("lists in one large page are a group: the worker that has unpacked it reads them", async () => {
  const path = join(scratch.path, "a.parquet");
  await writeLists(path, oneGroup);
  const sharing = { workers: 1, rowsLeft: rows, batchRows: () => 1000 };
  const units = await unitsOf(path, { limits: plenty, sharing });
  expect(units?.length).toBe(4);
  expect(new Set(units?.map(({ group }) => group))).toEqual(new Set([`0 ${path}`]));
});

test("lists in one large page are left to DuckDB where the page has no room, or another encoding", async () => {
  const path = join(scratch.path, "a.parquet");
  await writeLists(path, oneGroup);
  expect(await unitsOf(path, { limits: { ...plenty, pageBytes: 10 * 2 ** 20 } })).toBe(undefined);
  await writeLists(path, `${oneGroup}, PARQUET_VERSION V2`);
  expect(await unitsOf(path)).toBe(undefined);
});

describe.skipIf(!hasPyarrow)("lists in pages of a MiB", () => {
  test("lists in pages of a MiB are cut by bytes, and read in order by any worker, which seeks their pages", async () => {
    const path = join(scratch.path, "a.parquet");
    runPython(`
import numpy, pyarrow, pyarrow.parquet
values = numpy.add.outer(numpy.arange(${rows}), numpy.arange(${width})).astype("float32").reshape(-1)
offsets = pyarrow.array(numpy.arange(0, ${rows * width + 1}, ${width}, dtype="int32"))
table = pyarrow.table({"l": pyarrow.ListArray.from_arrays(offsets, pyarrow.array(values))})
pyarrow.parquet.write_table(table, "${path}", use_dictionary=False, compression="none")
`);
    const units = (await unitsOf(path)) ?? [];
    expect(units.map(({ rowStart, rowEnd, group }) => [rowStart, rowEnd, group])).toEqual([
      [0, 4000, undefined],
      [4000, 8000, undefined],
      [8000, 12_000, undefined],
    ]);
    const pageMemories: PageMemory[] = [];
    const read = vi.fn(reader(readFileSync(path)));
    const pieces = openUnitPieces({ read, scratch: (size: number) => new Uint8Array(size), pageMemories });
    const firstsOf = (unit: ParquetUnit): number[] =>
      // A thread gets a copy of each unit.
      Array.from(pieces.read(structuredClone(unit)), ({ columns }) => {
        const { offsets, child } = columns.get("l") as ListColumn;
        return [...offsets.subarray(0, -1)].map((offset) => (child as FixedColumn).data[offset] as number);
      }).flat();
    const numbers = Array.from({ length: 4000 }, (_, index) => index);
    expect(firstsOf(units[0] as ParquetUnit)).toEqual(numbers);
    const [before, calls] = [bytesRead(read.mock.calls), read.mock.calls.length];
    expect(firstsOf(units[2] as ParquetUnit)).toEqual(numbers.map((row) => row + 8000));
    const [unitBytes, pageBytes] = [4000 * width * 4, 2 ** 20];
    expect(bytesRead(read.mock.calls) - before).toBeLessThan(unitBytes + 2 * pageBytes);
    expect(read.mock.calls.length - calls).toBeLessThan(calls / 2); // the pages are not counted again
    for (const pageMemory of pageMemories) {
      pageMemory.close();
    }
  });
});

test("a unit of another file is read from its first page, although both files are laid out alike", async () => {
  const parquet = openParquetUnitReader();
  const means: number[] = [];
  for (const [name, factor] of [["a", 1] as const, ["b", 5] as const]) {
    const path = join(scratch.path, `${name}.parquet`);
    await writeRows(
      path,
      `SELECT (${factor} * (i % 50))::DOUBLE AS v FROM range(4000) t(i)`,
      "COMPRESSION uncompressed",
    );
    const [unit] = (await unitsOf(path)) ?? [];
    const part = name === "a" ? { rowStart: 0, rowEnd: 1000 } : { rowStart: 2000, rowEnd: 4000 };
    let sum = 0;
    const projection = (await wholeSlice(path))?.projection as Projection;
    for await (const { columns } of parquet.read({ ...(unit as ParquetUnit), ...part }, projection)) {
      const { data } = columns.get("v") as FixedColumn;
      sum += (data as Float64Array).reduce((one, other) => one + other, 0);
    }
    means.push(sum / (part.rowEnd - part.rowStart));
  }
  parquet.close();
  expect(means).toEqual([24.5, 122.5]);
});

function bytesRead(calls: readonly (readonly [Uint8Array, number])[]): number {
  return calls.reduce((sum, [target]) => sum + target.length, 0);
}
