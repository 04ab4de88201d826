import { createHash } from "node:crypto";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Column, FixedColumn, ListColumn } from "#src/columnar/types.js";
import { openParquetUnitReader } from "#src/formats/parquet/unit-reader.js";
import { readFooter } from "#src/formats/parquet/footer/read-footer.js";
import { parquetUnits } from "#src/formats/parquet/units.js";
import type { SliceRequest } from "#src/formats/port.js";
import { scratchFolder } from "../../support/job.js";
import { plenty } from "../../support/memory.js";
import { writeRows } from "../../support/parquet.js";
import { openDuckDb, wholeSlice } from "../../support/parquet-units.js";
import { hasPyarrow, runPython } from "../../support/pyarrow.js";

/** Pages are larger than what is unpacked to where loops reach it. */
const [rows, width, distinct] = [20_000, 460, 40_000];

/** Digests lists row by row: which are NULL, their lengths, which elements are NULL, and the bits of the others. */
function openDigest(): { add(lists: Column, count: number): void; hex(): string } {
  const hash = createHash("sha256");
  return {
    add(column, count) {
      const { offsets, child, valid } = column as ListColumn;
      const { data, valid: present } = child as FixedColumn;
      for (let row = 0; row < count; row += 1) {
        const [from = 0, to = 0] = offsets.subarray(row, row + 2);
        const nulls = [...(present?.subarray(from, to) ?? [])].flatMap((is, index) => (is === 1 ? [] : [index]));
        const elements = data.slice(from, to);
        for (const index of nulls) {
          elements[index] = 0;
        }
        hash.update(valid?.[row] === 0 ? "NULL" : `${to - from} ${String(nulls)}`);
        hash.update(new Uint8Array(elements.buffer));
      }
    },
    hex: () => hash.digest("hex"),
  };
}

async function sliceOf(path: string): Promise<SliceRequest> {
  const slice = await wholeSlice(path);
  if (slice === undefined) {
    throw new Error(`only DuckDB knows the columns of ${path}`);
  }
  return slice;
}

async function digestHere(path: string, from = 0): Promise<string> {
  const slice = { ...(await sliceOf(path)), rowStart: from };
  const reader = openParquetUnitReader();
  const digest = openDigest();
  for (const unit of parquetUnits(await readFooter({ path }), slice, { limits: plenty }) ?? []) {
    for await (const { rowStart, rowEnd, columns } of reader.read(unit, slice.projection)) {
      digest.add(columns.get("l") as Column, rowEnd - rowStart);
    }
  }
  reader.close();
  return digest.hex();
}

async function digestOfDuckDb(path: string, from = 0): Promise<string> {
  await using duckdb = openDuckDb(path);
  const digest = openDigest();
  for await (const { carried, rowCount } of duckdb.read([{ ...(await sliceOf(path)), rowStart: from }])) {
    digest.add(carried[0] as Column, rowCount);
  }
  return digest.hex();
}

const float = `CASE (i + k) % 5000 WHEN 0 THEN 'nan' WHEN 1 THEN '-0' WHEN 2 THEN '-inf' ELSE ((hash(i * 1000 + k) % ${distinct}) / 1000) - 5 END::FLOAT`;

describe("large dictionary pages of lists are read as DuckDB does", () => {
  test.each([
    ["all of one length", `list_transform(range(${width}), k -> ${float})`],
    [
      "NULL, empty, with elements that are NULL or repeated",
      `CASE i % 50 WHEN 0 THEN NULL WHEN 1 THEN [] WHEN 2 THEN list_transform(range(${width}), k -> i::FLOAT)
       ELSE list_transform(range(${width + 40}), k -> CASE WHEN (i + k) % 700 = 0 THEN NULL ELSE ${float} END) END`,
    ],
  ])("%s", async (_, lists) => {
    await using folder = await scratchFolder();
    const path = join(folder.path, "a.parquet");
    const options = "COMPRESSION snappy, ROW_GROUP_SIZE 122880, DICTIONARY_SIZE_LIMIT 100000";
    await writeRows(path, `SELECT ${lists} AS l FROM range(${rows}) t(i)`, options);
    expect((await readFooter({ path })).rowGroups[0]?.chunks[0]?.uncompressedBytes).toBeGreaterThan(2 ** 24);
    for (const from of [0, 15_001]) {
      expect(await digestHere(path, from)).toBe(await digestOfDuckDb(path, from));
    }
  });
});

describe.skipIf(!hasPyarrow)("large dictionary pages of lists are read as pyarrow wrote them", () => {
  test.each(["1.0", "2.0"])("in version %s", async (version) => {
    await using folder = await scratchFolder();
    const path = join(folder.path, "a.parquet");
    const expected = runPython(`
import hashlib, numpy, pyarrow, pyarrow.parquet
some = numpy.random.default_rng(7).integers(0, 2**32, ${distinct}, dtype="uint32").view("float32")
values = some[numpy.random.default_rng(8).integers(0, ${distinct}, ${rows * width})]
offsets = numpy.arange(0, ${rows * width + 1}, ${width}, dtype="int32")
table = pyarrow.table({"l": pyarrow.ListArray.from_arrays(pyarrow.array(offsets), pyarrow.array(values))})
pyarrow.parquet.write_table(table, "${path}", data_page_size=2**30, data_page_version="${version}")
digest = hashlib.sha256()
for row in values.reshape(${rows}, ${width}):
    digest.update(b"${width} ")
    digest.update(row.tobytes())
print(digest.hexdigest())
`).trim();
    expect(await digestHere(path)).toBe(expected);
    expect(await digestOfDuckDb(path)).toBe(expected);
  });
});
