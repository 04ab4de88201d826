import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { ColumnType } from "#src/columns/types.js";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { parsePageHeader } from "#src/formats/parquet/pages/page-header.js";
import { countLevels } from "#src/formats/parquet/pages/runs.js";
import type { Projection } from "#src/models/binding/contract.js";
import { emptyContract } from "../../../support/batches.js";
import { scratch, scratchFolder } from "../../../support/job.js";
import { outputRows, partNames } from "../../../support/output.js";
import { type TinyFile, tinyParquet } from "../../../support/parquet-bytes.js";
import { packedRun, repeatedRun } from "../../../support/parquet-runs.js";
import { carryAll } from "../../../support/parquet-units.js";
import { writeRows } from "../../../support/parquet.js";
import { hasPyarrow, runPython } from "../../../support/pyarrow.js";
import { randomOf } from "../../../support/random.js";
import { patch, shardJob } from "../../../support/shards.js";
import { shownCli } from "../../../support/shown.js";

async function read(path: string, projection: Projection, rowStart = 0): Promise<{ rows: number; error?: string }> {
  await using decoder = openParquetDecoder({ threads: 1, folders: [join(path, "..")], timezone: "UTC" });
  const { rows: rowEnd } = await readParquetFooter({ path });
  const slice = { file: { path, name: "a.parquet" }, rowStart, rowEnd, projection, partitions: new Map() };
  let rows = 0;
  try {
    for await (const batch of decoder.read([slice])) {
      rows += batch.rowCount;
    }
    return { rows };
  } catch (error) {
    return { rows, error: String(error) };
  }
}

const listOfDoubles: ColumnType = { kind: "list", element: "float64" };

async function readTiny(file: Partial<TinyFile>): Promise<{ rows: number; error?: string }> {
  await using folder = await scratchFolder();
  const path = join(folder.path, "a.parquet");
  await writeFile(path, tinyParquet({ values: [1, 2, 3], repetition: 2, rows: 2, groupRows: 2, ...file }));
  return await read(path, carryAll([{ name: "x", type: listOfDoubles }]));
}

/** Before each its length. */
function levels(...runs: readonly (readonly number[])[]): number[] {
  return runs.flatMap((run) => [[run.length, 0, 0, 0], run].flat());
}

const all = repeatedRun(1, 3, 1);

test("the levels of a list over two rows are read", async () => {
  expect(await readTiny({ levels: levels(packedRun([0, 1, 0], 1), all) })).toEqual({ rows: 2 });
  expect(await readTiny({ levels: levels(packedRun([0, 0, 1, 1, 1, 1, 1, 1], 1), all) })).toEqual({ rows: 2 });
});

test.each<{ what: string; file: Partial<TinyFile>; says: string }>([
  {
    what: "begin inside a row",
    file: { levels: levels(packedRun([1, 0, 0], 1), all) },
    says: "its first repetition level is 1, not 0: it begins inside a row",
  },
  {
    what: "are fewer than the page's values",
    file: { levels: levels(repeatedRun(0, 2, 1), all) },
    says: "it has levels for 2 values, its header promises 3",
  },
  {
    what: "say less of what is NULL than the page has values",
    file: { levels: levels(packedRun([0, 1, 0], 1), repeatedRun(1, 2, 1)) },
    says: "it has levels for 2 values, its header promises 3",
  },
  {
    what: "begin more rows than there are",
    file: { levels: levels(repeatedRun(0, 3, 1), all) },
    says: "its repetition levels begin 3 rows, the row group has 2",
  },
  {
    what: "begin fewer rows than there are",
    file: { levels: levels(packedRun([0, 1, 1], 1), all) },
    says: "its repetition levels begin 1 rows, the row group has 2",
  },
  {
    what: "end behind the page",
    file: { levels: [255, 255, 0, 0, ...packedRun([0, 1, 0], 1), ...levels(all)] },
    says: "its levels end in the middle",
  },
  {
    what: "are in an encoding that is out of use",
    file: { levels: levels(packedRun([0, 1, 0], 1), all), levelEncoding: 4 },
    says: "levels of encoding 4 are not supported",
  },
  {
    what: "lie in a page that claims to be larger, when unpacked, than its column chunk",
    file: { levels: levels(all, all), codec: 2, unpackedBytes: 2 ** 31 - 1, chunkUnpackedBytes: 100 },
    says: "the page at byte 4 claims 2147483647 bytes when unpacked, its column chunk 100",
  },
  {
    what: "lie in a page that claims less than no values",
    file: { levels: levels(all, all), pageValues: -3 },
    says: "the page at byte 4 claims -3 values",
  },
])("a list's levels that $what are refused", async ({ file, says }) => {
  const { rows, error = "" } = await readTiny(file);

  expect(rows).toBe(0);
  expect(error).toContain("reading a.parquet: row group 0 (rows 0 to 1), column `x`: ");
  expect(error).toContain(says);
});

const nested = `CASE WHEN i % 7 = 3 THEN NULL ELSE list_transform(range(i % 5), lambda x: CASE WHEN x % 3 = 1 THEN NULL ELSE x + i END) END AS l,
  list_transform(range(i % 4), lambda x: range(x)) AS ll,
  CASE WHEN i % 5 = 1 THEN NULL ELSE {'a': i, 'b': CASE WHEN i % 3 = 0 THEN NULL ELSE [{'c': 'text ' || i}] END} END AS s,
  MAP {'k' || (i % 3): CASE WHEN i % 2 = 0 THEN NULL ELSE [i] END} AS m, NULL::INTEGER[] AS n, []::INTEGER[] AS e`;

const throughExpression: Projection = {
  ...emptyContract,
  passthrough: [{ column: "y", source: { name: "y", path: ["y"], type: "int64", computed: true } }],
  expressions: {
    list: [
      { kind: "column", name: "y", text: "hash(l, ll, s, m, n, e)::BIGINT", uses: ["l", "ll", "s", "m", "n", "e"] },
    ],
    folders: [],
    columns: [],
  },
};

describe("nested columns of every shape are read", () => {
  const codecs = ["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw"];

  test.each(codecs)("nested columns of every shape are read as DuckDB writes them with %s", async (codec) => {
    const path = join(scratch.path, "a.parquet");
    // Of a page of version 1 the levels are compressed too, which no codec does in its own way.
    for (const version of /uncompressed|snappy/.test(codec) ? ["V1", "V2"] : ["V2"]) {
      // Three row groups, in the first of which the rows that are read begin; the last one is not full.
      const select = `SELECT ${nested} FROM range(5000) t(i)`;
      await writeRows(path, select, `COMPRESSION ${codec}, ROW_GROUP_SIZE 2048, PARQUET_VERSION ${version}`);
      expect(await read(path, throughExpression, 1000)).toEqual({ rows: 4000 });
    }
  });

  test.skipIf(!hasPyarrow).each(["none", "snappy", "gzip", "zstd", "brotli", "lz4"])(
    "nested columns of every shape are read as pyarrow writes them with %s, in pages of either version",
    async (codec) => {
      runPython(`
import itertools, pyarrow as pa, pyarrow.parquet as pq
n = 2000
nested = lambda i: None if i % 7 == 3 else [None if x % 3 == 1 else x + i for x in range(i % 5)]
table = pa.table({
    "l": pa.array([nested(i) for i in range(n)], pa.list_(pa.int64())),
    "ll": pa.array([None if i % 11 == 5 else [nested(i + k) for k in range(i % 4)] for i in range(n)], pa.list_(pa.list_(pa.int64()))),
    "s": pa.array([None if i % 5 == 1 else {"a": None if i % 2 else i, "b": [{"c": "text %d" % i}] if i % 3 else None} for i in range(n)]),
    "m": pa.array([None if i % 13 == 0 else [("k%d" % k, None if k == 1 else [i]) for k in range(i % 3)] for i in range(n)], pa.map_(pa.string(), pa.list_(pa.int64()))),
    "n": pa.array([None] * n, pa.list_(pa.int32())),
    "e": pa.array([[]] * n, pa.list_(pa.field("element", pa.int32(), nullable=False))),
})
for version, dictionary, bytes, rows in itertools.product(["1.0", "2.0"], [True, False], [100, 1 << 20], [n, 300]):
    pq.write_table(table, "${scratch.path}/%s-%s-%d-%d.parquet" % (version, dictionary, bytes, rows), compression="${codec}",
        data_page_version=version, use_dictionary=dictionary, data_page_size=bytes, row_group_size=rows)
`);
      for (const version of ["1.0", "2.0"]) {
        for (const writing of ["True-100-2000", "True-1048576-300", "False-100-300", "False-1048576-2000"]) {
          const path = join(scratch.path, `${version}-${writing}.parquet`);
          expect({ path, ...(await read(path, throughExpression)) }).toEqual({ path, rows: 2000 });
        }
      }
    },
  );
});

/** Where the first repetition level of a list lies in a page of version 2, and a change that makes it 1. */
async function firstLevelOf(path: string, column: string, group: number): Promise<(bytes: Buffer) => void> {
  const { rowGroups } = await readParquetFooter({ path });
  const start = rowGroups[group]?.chunks.find((chunk) => chunk.path[0] === column)?.start ?? 0;
  const bytes = await readFile(path);
  const cursor = { bytes: bytes.subarray(start), at: 0 };
  const { kind } = parsePageHeader(cursor);
  expect(kind).toBe("data-v2");
  const at = start + cursor.at;
  const isPacked = ((bytes[at] ?? 0) & 1) === 1;
  expect((bytes[at] ?? 0) < 128).toBe(true);
  return (changed) => changed.writeUInt8(isPacked ? changed.readUInt8(at + 1) | 1 : 1, at + 1);
}

test("a run over a shard whose lists begin inside a row ends when the spans before that row group are committed; a job without the list reads the shard", async () => {
  const job = await shardJob(scratch.path, { a: "plain", b: "checked-v2" }, { commit_rows: 400 });
  await patch(job.shard("b"), await firstLevelOf(job.shard("b"), "l", 1));

  const said = await shownCli(["run", job.spec, "--quiet"], scratch.path);

  expect(said).toContain(
    "exit 65\n--- stderr\nerror: reading <folder>/in/b.parquet: row group 1 (rows 400 to 799), column `l`: the page at byte ",
  );
  expect(said).toContain(
    ": its first repetition level is 1, not 0: it begins inside a row\n  hint: restore the planned file",
  );
  expect((await partNames(job.out)).length).toBe(4);

  await job.rewrite({ name: "flat", output: { columns: ["id", "k", "s"], parquet: { path: "flat" } } });
  expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");
  expect((await outputRows(join(scratch.path, "flat"))).length).toBe(2400);
});

/** Counts where other bytes lie before and behind. */
function count(runs: readonly number[], most: number, levelsRead: number): { first: number; zeros: number } {
  const bytes = Uint8Array.from([255, 255, ...runs, 255, 255, 255, 255]);
  return countLevels(bytes, { at: 2, end: 2 + runs.length, most }, levelsRead);
}

test.each([1, 2, 3, 4, 7, 12])("levels up to %i are counted, repeated and packed", (most) => {
  const random = randomOf(most);
  const width = Math.ceil(Math.log2(most + 1));
  for (let round = 0; round < 200; round += 1) {
    const levelsRead = [];
    const runs: number[] = [];
    for (let left = Math.floor(random() * 6); left >= 0; left -= 1) {
      const length = 1 + Math.floor(random() * 40);
      if (random() < 0.5) {
        const level = Math.floor(random() * (most + 1));
        runs.push(...repeatedRun(level, length, width));
        levelsRead.push(...Array.from({ length }, () => level));
      } else {
        const size = left === 0 ? length : Math.ceil(length / 8) * 8;
        const some = Array.from({ length: size }, () => Math.floor(random() * (most + 1)));
        runs.push(...packedRun(some, width));
        levelsRead.push(...some);
      }
    }
    const due = 1 + Math.floor(random() * levelsRead.length); // what is behind them does not count
    const expected = { first: levelsRead[0], zeros: levelsRead.slice(0, due).filter((level) => level === 0).length };
    expect(count(runs, most, due)).toEqual(expected);
  }
});

describe("levels are refused", () => {
  test.each<{ what: string; runs: number[]; most: number; due?: number; says: string }>([
    {
      what: "that are too few",
      runs: repeatedRun(1, 6, 1),
      most: 1,
      says: "levels for 6 values, its header promises 7",
    },
    { what: "that are not there", runs: [], most: 1, says: "levels for 0 values" },
    { what: "in a run of none", runs: repeatedRun(1, 0, 1), most: 1, says: "levels for 0 values" },
    { what: "in a run that is cut off", runs: [2 * 2 + 1, 255], most: 1, due: 16, says: "levels for 0 values" },
    {
      what: "that are too high, repeated",
      runs: repeatedRun(3, 7, 2),
      most: 2,
      says: "the level 3, where 2 is the highest",
    },
    { what: "that are too high, packed", runs: packedRun([0, 3, 0, 0, 0, 0, 0], 2), most: 2, says: "the level 3" },
  ])("$what", ({ runs, most, due = 7, says }) => {
    expect(() => count(runs, most, due)).toThrow(says);
    expect(() => count(runs, most, due)).toThrow(RangeError);
  });
});
