import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, open, readFile, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { SliceRequest } from "#src/formats/format.js";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import { placeAfter } from "#src/formats/parquet/duckdb.js";
import { exactTables } from "#src/formats/parquet/exact-table.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import type { Projection } from "#src/models/binding/contract.js";
import { ref } from "../../../support/batches.js";
import { scratch } from "../../../support/job.js";
import { makeNanosUtc } from "../../../support/parquet-patches.js";
import { connectToDuckDb, writeRows } from "../../../support/parquet.js";

const projection = {
  inputs: [],
  passthrough: [{ column: "id", source: ref("id", "int64") }],
  expressions: null,
  cast: "exact",
  missing: "bad_row",
} as const;

function whole(path: string, rows: number, wanted: Projection = projection): SliceRequest {
  return { file: { path, name: path }, rowStart: 0, rowEnd: rows, projection: wanted, partitions: new Map() };
}

describe("rows of several shards are those that are due", () => {
  const slices = [whole("a", 2), whole("b", 1), whole("c", 3)];

  test.each([
    {
      rows: "in order",
      chunk: [
        [0, 0],
        [0, 1],
        [1, 0],
        [2, 0],
      ],
      place: { slice: 2, row: 1 },
    },
    {
      rows: "to a shard's end",
      chunk: [
        [0, 0],
        [0, 1],
      ],
      place: { slice: 1, row: 0 },
    },
    {
      rows: "of which one is missing",
      chunk: [
        [0, 0],
        [1, 0],
      ],
      place: undefined,
    },
    {
      rows: "of which one comes twice",
      chunk: [
        [0, 0],
        [0, 0],
      ],
      place: undefined,
    },
    {
      rows: "of shards in another order",
      chunk: [
        [1, 0],
        [0, 0],
      ],
      place: undefined,
    },
    {
      rows: "beyond a shard's end",
      chunk: [
        [0, 0],
        [0, 1],
        [0, 2],
      ],
      place: undefined,
    },
  ])("$rows", async ({ chunk, place }) => {
    const values = chunk.map(([shard, number]) => `(${shard}::UBIGINT, ${number}::BIGINT)`).join(", ");
    const found = await (await connectToDuckDb()).stream(`SELECT * FROM (VALUES ${values})`);
    const first = await found.fetchChunk();
    expect(first && placeAfter(first, slices, { slice: 0, row: 0 })).toEqual(place);
  });
});

test("a chunk that cannot be packed is not passed over", async () => {
  const paths = Array.from({ length: 4 }, (_, index) => join(scratch.path, `${index}.parquet`));
  for (const path of paths) {
    await writeRows(path, "SELECT range::FLOAT AS a, range::FLOAT AS b FROM range(100)");
  }
  const columns = [ref("a", "float32"), ref("b", "float32")];
  const inputs = [{ kind: "matrix", input: "x", dtype: "float32", rank: 2, columns }] as const;
  const slices = paths.map((path) => whole(path, 100, { ...projection, inputs, passthrough: [] }));
  await using decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "UTC" });
  let lists = 0;
  const words = new Proxy(Uint32Array, {
    construct(target, [buffer, offset, length]: [ArrayBuffer, number, number]) {
      lists += length === 4 * 100 ? 1 : 0; // where the rows of a chunk lie
      if (lists === 2) {
        throw new RangeError("Array buffer allocation failed");
      }
      return new target(buffer, offset, length);
    },
  });
  vi.stubGlobal("Uint32Array", words);
  let rows = 0;
  const reading = async (): Promise<void> => {
    for await (const { rowCount } of decoder.read(slices)) {
      rows += rowCount;
    }
  };

  await expect(reading()).rejects.toThrow(RangeError); // and no word of a damaged shard
  vi.unstubAllGlobals();

  expect(rows).toBe(100);
});

test("where a shard among several is damaged in its middle, the rows before come once, then it is named", async () => {
  const paths = ["a", "b"].map((name) => join(scratch.path, `${name}.parquet`));
  const rows = 1_500_000; // more than the stream holds ahead
  const groupRows = 122_880;
  const damagedGroup = 10;
  for (const [index, path] of paths.entries()) {
    await writeRows(path, `SELECT range + ${index * rows} AS id FROM range(${rows})`, `ROW_GROUP_SIZE ${groupRows}`);
  }
  const [, damaged = ""] = paths;
  const { rowGroups } = await readParquetFooter({ path: damaged });
  const start = rowGroups[damagedGroup]?.chunks[0]?.start ?? 0;
  const bytes = await readFile(damaged);
  await writeFile(damaged, bytes.fill(0xff, start, start + 20));
  await using decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "UTC" });
  let due = 0;
  const reading = async (): Promise<void> => {
    for await (const { carried, rowCount } of decoder.read(paths.map((path) => whole(path, rows)))) {
      const [column] = carried;
      expect(column?.kind === "fixed" && [column.data[0], column.data[rowCount - 1]].map(Number)).toEqual([
        due,
        due + rowCount - 1,
      ]);
      due += rowCount;
    }
  };

  await expect(reading()).rejects.toThrow(`reading ${damaged}: row group ${damagedGroup}`);

  expect(due).toBe(rows + damagedGroup * groupRows);
});

async function copyIn(
  folder: string,
  before: () => Promise<void> = async () => await Promise.resolve(),
): Promise<{ copied: Buffer; whole: Buffer; copies: string }> {
  vi.stubEnv("TMPDIR", folder);
  const path = join(folder, "a.parquet");
  await writeRows(path, "SELECT make_timestamp_ns(i) AS t FROM range(5000) r(i)");
  await makeNanosUtc(path);
  const [footer, wholeFile] = [await readParquetFooter({ path }), await readFile(path)];
  await using tables = exactTables();
  const ranges = [{ start: 4, end: footer.pagesEnd }];
  const shard = { file: { path, name: "a" }, footer, columns: new Map([["t", "timestamp[ns]"]] as const), ranges };
  await before();
  const copied = await tables.use(shard, async () => await readFile(join(tables.folder, "1.spool")));
  return { copied, whole: wholeFile, copies: tables.folder };
}

/** Lets the system read and write a half of what it is given. */
async function halve(): Promise<void> {
  await using handle = await open(import.meta.filename);
  const methods = Object.getPrototypeOf(handle) as Record<"read" | "write", (...given: unknown[]) => unknown>;
  for (const name of ["read", "write"] as const) {
    const wholeFile = methods[name];
    vi.spyOn(methods, name).mockImplementation(function (this: unknown, bytes, offset, length, position) {
      return wholeFile.call(this, bytes, offset, Math.ceil(Number(length) / 2), position);
    });
  }
}

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

test("a copy is whole where the system reads and writes a part of what it is given", async () => {
  const { copied, whole: wholeFile } = await copyIn(scratch.path, halve);

  expect(copied.length).toBe(wholeFile.length);
  expect(copied.filter((byte, at) => byte !== wholeFile[at]).length, "the one that says UTC").toBe(1);
});

test("copies that a killed process left are removed, those of others stay", async () => {
  const { pid } = spawnSync("true");
  const host = hostname().replaceAll(/[^A-Za-z0-9-]/g, "_");
  const [dead, alive, away] = [
    `${host}.${pid}.00000000`,
    `${host}.${process.ppid}.00000000`,
    `other.${pid}.00000000`,
  ].map((writer) => join(scratch.path, `infer-batch-spool-${process.getuid?.()}/${writer}.copies`));
  for (const folder of [dead, alive, away]) {
    await mkdir(folder ?? "", { recursive: true });
  }

  const { copies } = await copyIn(scratch.path);

  expect([dead, alive, away, copies].map((folder) => existsSync(folder ?? ""))).toEqual([false, true, true, false]);
});
