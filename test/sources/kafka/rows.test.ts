import { describe, expect, test } from "vitest";
import { recordRows } from "#src/sources/kafka/rows.js";

describe("rows of records", () => {
  const value = Buffer.from('{"a": 1}');
  const rowsOf = (records: number, timestampMs = 0): ReturnType<typeof recordRows> => {
    const rows = recordRows({ columns: { a: "int64" } }, { partition: 0, from: 0 });
    const far = 1_000_000; // in a batch of many records
    const bytes = Buffer.concat([Buffer.alloc(far), value]);
    for (let offset = 0; offset < records; offset += 1) {
      rows.record(bytes, offset, timestampMs, -1, far, far, far + value.length, far + value.length);
    }
    return rows;
  };

  test("without keys make batches as large as others", () => {
    expect(
      rowsOf(1000)
        .take(true)
        .map(({ rowCount }) => rowCount),
    ).toEqual([1000]);
  });

  test("with long headers, or of values that become long, make smaller batches", () => {
    const header = Buffer.concat([Buffer.from([2, 2, 0x68, 0x80, 0x80, 0x80, 1]), Buffer.alloc(1024 * 1024, 0x61)]);
    const long = Buffer.from(`{"a": 1, "b": "${"b".repeat(1024 * 1024)}"}`);
    const headed = recordRows({ columns: { a: "int64" }, headers: { h: "h" } }, { partition: 0, from: 0 });
    const read = { json: () => long, load: () => Promise.resolve() };
    const made = recordRows({ columns: { a: "int64" } }, { partition: 0, from: 0 }, read);
    const bytes = Buffer.concat([value, header]);
    for (let offset = 0; offset < 20; offset += 1) {
      headed.record(bytes, offset, 0, -1, 0, 0, value.length, bytes.length);
      made.record(value, offset, 0, -1, 0, 0, value.length, value.length);
    }
    const counts = [headed, made].map((rows) => rows.take(true).map(({ rowCount }) => rowCount));
    expect(counts).toEqual([
      [8, 8, 4],
      [8, 8, 4],
    ]);
  });

  test.each([
    [1000, 1_000_000n],
    [-1, undefined],
    [1_764_510_000_000_000_000, undefined],
  ])("have the time %d of a record, where it has one", (timestampMs, expected) => {
    const [rows] = rowsOf(1, timestampMs).take(true);
    const column = rows?.columns.find(({ name }) => name === "_timestamp")?.column;
    expect(column?.valid?.[0] === 1 ? (column as { data: BigInt64Array }).data[0] : undefined).toBe(expected);
  });
});
