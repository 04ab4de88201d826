import { expect, test } from "vitest";
import type { ColumnType } from "#src/columns/types.js";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";

test.each<[string, ColumnType, string, readonly (string | null)[], readonly boolean[]]>([
  ["bytes, which are in hex", "binary", "v = 'abc'::BLOB", ["616263", "00ff", null], [true, false, false]],
  ["bytes that are NULL", "binary", "v IS NULL", ["616263", null], [false, true]],
  [
    "an instant, in the job's zone",
    "timestamp[us, UTC]",
    "hour(v) = 1",
    ["2026-11-20 06:00:00+00", null],
    [true, false],
  ],
  ["a date", "date32", "v < DATE '2026-11-21'", ["2026-11-20", "2026-11-21"], [true, false]],
  ["a value on which the filter fails", "utf8", "v::INTEGER > 1", ["2", "1", "x"], [true, false, true]],
  ["a part of the filter that is true of none", "utf8", "v = 'a' AND x > 0", ["a", "b"], [true, false]],
])("partitions of which a filter may keep rows are known by %s", async (_, type, text, values, kept) => {
  await using decoder = openParquetDecoder({ threads: 1, folders: [], timezone: "America/New_York" });
  const columns = [{ name: "v", sourceType: "", type, partition: true as const }];

  const partitions = values.map((value) => new Map([["v", value]]));

  expect(await decoder.mayKeep({ text, columns, partitions })).toEqual(kept);
});
