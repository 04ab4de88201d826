import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { describe, expect, test } from "vitest";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { verifyPages } from "#src/formats/parquet/pages/page-walk.js";
import { refusalOf } from "../../../support/faulty.js";
import { scratch, scratchFolder } from "../../../support/job.js";
import { writeRows } from "../../../support/parquet.js";
import { type TinyFile, tinyParquet } from "../../../support/parquet-bytes.js";
import { hasPyarrow, runPython } from "../../../support/pyarrow.js";
import { shardFixture } from "../../../support/shards.js";

const values = [1, 2, 3];
const crcOf = (given: readonly number[]): number => crc32(Buffer.from(new Float64Array(given).buffer));

async function check(bytes: Uint8Array): Promise<unknown> {
  await using folder = await scratchFolder();
  const path = join(folder.path, "a.parquet");
  await writeFile(path, bytes);
  try {
    return await verifyPages({ path });
  } catch {
    return (await refusalOf(verifyPages({ path }))).replaceAll(path, "a.parquet").split("\n").slice(0, 2).join(" ");
  }
}

const tiny = (file: Partial<TinyFile>): Promise<unknown> => check(tinyParquet({ values, ...file }));

describe("pages that are as they should be", () => {
  test.each([
    { name: "plain", checksums: 0 },
    { name: "checked", checksums: 66 },
    { name: "checked-v2", checksums: 66 },
  ] as const)("correct pages are counted, and those with a checksum ($name)", async ({ name, checksums }) => {
    expect(await verifyPages({ path: shardFixture(name) })).toEqual({ pages: 66, checksums });
  });

  test("correct pages of an encrypted column are skipped", async () => {
    expect(await verifyPages({ path: shardFixture("encrypted-column") })).toEqual({ pages: 8, checksums: 0 });
  });

  test("correct pages may be larger than the read buffer", async () => {
    const many = Array.from({ length: 400_000 }, (_, row) => row / 7);
    const whole = tinyParquet({ values: many, crc: crcOf(many) });
    expect(await check(whole)).toEqual({ pages: 1, checksums: 1 });
    whole[3_000_000] = (whole[3_000_000] ?? 0) ^ 1;
    expect(await check(whole)).toMatch(/the page at byte 4 does not match its checksum/);
  });

  test("correct pages may have long statistics in their header", async () => {
    expect(await tiny({ statisticsBytes: 300_000, crc: crcOf(values) })).toEqual({ pages: 1, checksums: 1 });
  });

  test("correct pages of DuckDB's writer are verified over many row groups", async () => {
    const path = join(scratch.path, "a.parquet");
    await writeRows(
      path,
      "SELECT row, [row, NULL] AS l, {'a': row, 'b': [{'c': 1}]} AS s, NULL AS n FROM range(9000) t(row)",
      "ROW_GROUP_SIZE 2048",
    );
    expect(await verifyPages({ path })).toMatchObject({ checksums: 0 });
  });
});

describe("a page is refused, with its row group, column and byte, when", () => {
  test.each(["checked", "checked-v2"] as const)("a bit of it changed (%s)", async (name) => {
    const good = await readFile(shardFixture(name));
    const { rowGroups } = await readParquetFooter({ path: shardFixture(name) });
    for (const [group, { chunks }] of rowGroups.entries()) {
      for (const { path, start, compressedBytes } of chunks) {
        // The last bytes of a chunk are those of its last page.
        const bytes = Buffer.from(good);
        const at = start + compressedBytes - 1 - group * 5;
        bytes[at] = (bytes[at] ?? 0) ^ (1 << group);
        const place = `row group ${group}, column \`${path.join(".")}\``;
        expect(await check(bytes)).toMatch(
          new RegExp(`^65 SHARD_CORRUPT checking a.parquet: ${place}: the page at byte \\d+ does not match`),
        );
      }
    }
  });

  test("a page is refused, with its row group, column and byte, when its checksum is wrong", async () => {
    expect(await tiny({ crc: crcOf(values) })).toEqual({ pages: 1, checksums: 1 });
    expect(await tiny({ crc: crcOf(values) ^ 1 })).toMatchInlineSnapshot(
      `"65 SHARD_CORRUPT checking a.parquet: row group 0, column \`x\`: the page at byte 4 does not match its checksum"`,
    );
  });

  test("a page is refused, with its row group, column and byte, when its stated size is wrong, and no memory of that size is allocated", async () => {
    const before = process.memoryUsage().rss;
    expect(await tiny({ pageBytes: 2 ** 31 - 1, crc: 1 })).toMatchInlineSnapshot(
      `"65 SHARD_CORRUPT checking a.parquet: row group 0, column \`x\`: the page at byte 4 claims 2147483647 bytes, which the file does not have"`,
    );
    expect(await tiny({ pageBytes: -5 })).toMatchInlineSnapshot(
      `"65 SHARD_CORRUPT checking a.parquet: row group 0, column \`x\`: the page at byte 4 claims -5 bytes, which the file does not have"`,
    );
    expect(process.memoryUsage().rss - before).toBeLessThan(300 * 1024 * 1024);
  });

  test("a page is refused, with its row group, column and byte, when its stated uncompressed size exceeds that of its column chunk", async () => {
    expect(await tiny({ codec: 2, unpackedBytes: 2 ** 31 - 1, chunkUnpackedBytes: 100 })).toBe(
      "65 SHARD_CORRUPT checking a.parquet: row group 0, column `x`: the page at byte 4 claims 2147483647 bytes when unpacked, its column chunk 100",
    );
  });

  test("a page is refused, with its row group, column and byte, when it has fewer or more values than the footer states", async () => {
    expect(await tiny({ pageValues: 2 })).toMatchInlineSnapshot(
      `"65 SHARD_CORRUPT checking a.parquet: row group 0, column \`x\`: its pages have 2 values, the footer promises 3"`,
    );
    expect(await tiny({ pageValues: 4 })).toMatchInlineSnapshot(
      `"65 SHARD_CORRUPT checking a.parquet: row group 0, column \`x\`: its pages have 4 values, the footer promises 3"`,
    );
  });

  test("a page is refused, with its row group, column and byte, when its header cannot be parsed", async () => {
    const bytes = tinyParquet({ values });
    bytes.fill(0xff, 4, 10);
    expect(await check(bytes)).toMatchInlineSnapshot(
      `"65 SHARD_CORRUPT checking a.parquet: row group 0, column \`x\`: the page at byte 4 has a damaged header (a value has type 15, where type 1 to 13 is due)"`,
    );
  });
});

test.each<Partial<TinyFile>>([
  { rows: 4 },
  { rows: -3, groupRows: -3, chunkValues: -3 },
  { groupRows: 2 },
  { chunkValues: 2 },
  { chunkBytes: 1000 },
  { chunkBytes: -1 },
  { schemaType: 2 },
  { unpackedBytes: 200 },
  { repetition: null },
  { repetition: 3 },
  { rows: 2 ** 52, groupRows: 2 ** 52, chunkValues: 2 ** 52 },
])("a footer is refused when it says %j of 3 rows of an uncompressed DOUBLE", async (lie) => {
  expect(await tiny(lie)).toMatch(/^65 SHARD_CORRUPT reading the footer of a\.parquet: /);
});

test("a footer is refused when its levels are not those of its schema", async () => {
  const bytes = await readFile(shardFixture("checked-v2"));
  const { pagesEnd } = await readParquetFooter({ path: shardFixture("checked-v2") });
  // `l`, an optional list, becomes a required one: its NULLs would be read as empty lists.
  const at = bytes.indexOf(Buffer.from([0x25, 2, 0x18, 1, "l".charCodeAt(0)]), pagesEnd);
  bytes[at + 1] = 0;
  expect(await check(bytes)).toMatchInlineSnapshot(`
    { "checksums": 66, "pages": 66 }
  `);
});

describe.skipIf(!hasPyarrow)("pyarrow, checking checksums", () => {
  test("agrees about which shards are damaged", async () => {
    const good = await readFile(shardFixture("checked"));
    const places = [undefined, 500, 1500, 4600, 5300, 6500, 9000, 15_800, 22_000];
    const ours: string[] = [];
    for (const [index, at] of places.entries()) {
      const bytes = Buffer.from(good);
      if (at !== undefined) {
        bytes[at] = (bytes[at] ?? 0) ^ 4;
      }
      await writeFile(join(scratch.path, `${index}.parquet`), bytes);
      ours.push(typeof (await check(bytes)) === "string" ? "damaged" : "good");
    }
    const script = `import sys, pyarrow.parquet as pq
for index in range(int(sys.argv[2])):
    try:
        pq.read_table(f"{sys.argv[1]}/{index}.parquet", page_checksum_verification=True)
        print("good")
    except OSError:
        print("damaged")`;
    expect(runPython(script, scratch.path, String(places.length)).trim().split("\n")).toEqual(ours);
    expect(ours).toEqual(places.map((at) => (at === undefined ? "good" : "damaged")));
  });
});
