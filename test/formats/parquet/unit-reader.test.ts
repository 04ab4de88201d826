import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openParquetUnitReader, parquetUnits } from "#src/formats/parquet/units.js";
import { readFooter } from "#src/formats/parquet/footer.js";
import type { SliceRequest } from "#src/formats/format.js";
import { scratchFolder } from "../../support/job.js";
import { plenty } from "../../support/memory.js";
import { writeRows } from "../../support/parquet.js";
import { wholeSlice } from "../../support/parquet-units.js";

/** Reads all rows of a shard that a query writes without DuckDB, and counts them. */
async function countHere(query: string, options: string): Promise<number> {
  await using folder = await scratchFolder();
  const path = join(folder.path, "a.parquet");
  await writeRows(path, query, options);
  const slice = (await wholeSlice(path)) as SliceRequest;
  const reader = openParquetUnitReader();
  let count = 0;
  try {
    for (const unit of parquetUnits(await readFooter({ path }), slice, { limits: plenty }) ?? []) {
      for await (const { rowStart, rowEnd } of reader.read(unit, slice.projection)) {
        count += rowEnd - rowStart;
      }
    }
    return count;
  } finally {
    reader.close();
  }
}

test("a page of numbers in a dictionary is left to DuckDB if it is larger than what loops reach", async () => {
  const lists =
    "SELECT list_transform(range(460), k -> (hash(i * 1000 + k) % 40000)::FLOAT) AS l FROM range(20000) t(i)";
  const options = "COMPRESSION snappy, ROW_GROUP_SIZE 122880, DICTIONARY_SIZE_LIMIT 100000";
  await expect(countHere(lists, options)).rejects.toThrow(/^a page of \d+ bytes, 19\d{6} when unpacked$/);
  expect(await countHere(lists.replace("20000", "9000"), options)).toBe(9000);
});

test("a thread without WebAssembly memory leaves all units to DuckDB", () => {
  const code = `import { openParquetUnitReader } from "#src/formats/parquet/units.js";
    import { doWithoutVectors } from "#src/columns/loops/vectors.js";
    const columns = [];
    doWithoutVectors();
    try {
      openParquetUnitReader().read({ path: process.execPath, columns }).next();
    } catch (error) {
      console.log(error.name, error.message);
    }`;
  const told = execFileSync(process.execPath, ["--input-type=module", "-e", code], { encoding: "utf8" });
  expect(told).toBe("RangeError a thread without WebAssembly memory\n");
});
