import { join } from "node:path";
import { expect, test } from "vitest";
import { readFooter } from "#src/formats/parquet/footer.js";
import { withTextSizes } from "#src/formats/parquet/long-values.js";
import { emptyContract, ref } from "../../support/batches.js";
import { scratchFolder } from "../../support/job.js";
import { writeRows } from "../../support/parquet.js";

const rows = 1000;

async function sizesOf(body: string, options: string): Promise<(number | undefined)[]> {
  await using scratch = await scratchFolder();
  const path = join(scratch.path, "a.parquet");
  await writeRows(path, `SELECT range AS id, ${body} AS body FROM range(${rows})`, options);
  const names = ["id", "body"] as const;
  const passthrough = names.map((name) => ({ column: name, source: ref(name, name === "id" ? "int64" : "utf8") }));
  const slice = {
    file: { path, name: path },
    rowStart: 0,
    rowEnd: rows,
    projection: { ...emptyContract, passthrough },
  };
  const footer = await withTextSizes(await readFooter({ path }), slice);
  return footer.rowGroups.flatMap(({ chunks }) => chunks.map(({ unencodedBytes }) => unencodedBytes));
}

test.each(["uncompressed", "snappy", "zstd", "gzip", "lz4_raw", "brotli"])(
  "all rows of a dictionary's column are taken to have its longest text (%s)",
  async (codec) => {
    const body = "CASE WHEN range % 2 = 0 THEN 'short' ELSE repeat('a', 50000) END";
    expect(await sizesOf(body, `COMPRESSION ${codec}`)).toEqual([undefined, 50_000 * rows]);
  },
);

test("short texts of a dictionary, and texts without one, are left as the footer describes them", async () => {
  expect(await sizesOf("'kind ' || (range % 7)", "COMPRESSION zstd")).toEqual([undefined, undefined]);
  expect(await sizesOf("repeat('a', 5000) || range", "DICTIONARY_SIZE_LIMIT 0")).toEqual([undefined, undefined]);
});
