import { describe, expect, test } from "vitest";
import type { FetchedRecords } from "#src/sources/kafka/cluster.js";
import { visitRecords } from "#src/sources/kafka/records.js";
import { batch, crc32c } from "../../support/record-batches.js";

const marker = (base: number, producer: number, type: number): Buffer => {
  const made = batch({ base, values: [""], producer, attributes: 48 });
  const at = 61 + 5; // the key, in place of "k1"
  const key = Buffer.concat([made.subarray(0, at), Buffer.from([0, type]), made.subarray(at + 2)]);
  // A key of four bytes: version, then type.
  const longer = Buffer.concat([key.subarray(0, at - 1), Buffer.from([8, 0, 0, 0, type]), key.subarray(at + 2)]);
  longer[61] = (longer[61] ?? 0) + 4;
  longer.writeInt32BE(longer.length - 12, 8);
  longer.writeUInt32BE(crc32c(longer.subarray(21)), 17);
  return longer;
};

function visit(
  batches: readonly Buffer[],
  aborted: FetchedRecords["aborted"] = [],
  { from = 0, to = 100 } = {},
): { readonly seen: readonly string[]; readonly next: number } {
  const seen: string[] = [];
  const fetched = { logStart: 0, aborted, records: Buffer.concat(batches) };
  const unpack = (): Uint8Array => new Uint8Array(0);
  const visited = visitRecords(
    fetched,
    { from, to, unpack },
    {
      record(bytes, offset, timestampMs, keyStart, keyEnd, valueStart, valueEnd) {
        const [key, value] = [bytes.toString("utf8", keyStart, keyEnd), bytes.toString("utf8", valueStart, valueEnd)];
        seen.push(`${offset} ${key} ${value} ${timestampMs}`);
        return false;
      },
    },
  );
  return { seen, next: [...visited].at(-1) ?? from };
}

describe("records of Kafka", () => {
  test("are unpacked a batch at a time, and taken from the visitor where it has many", () => {
    const steps: string[] = [];
    const packed = [0, 10].map((base) => batch({ base, values: ["a", "b"], attributes: 3 }));
    const unpack = (_: string, bytes: Buffer): Uint8Array => {
      steps.push("unpack");
      return bytes;
    };
    const record = (_: Buffer, offset: number): boolean => {
      steps.push(`record ${offset}`);
      return offset === 10;
    };
    const fetched = { logStart: 0, aborted: [], records: Buffer.concat(packed) };
    for (const reached of visitRecords(fetched, { from: 0, to: 100, unpack }, { record })) {
      steps.push(`reached ${reached}`);
    }
    expect(steps.join(", ")).toBe(
      "unpack, record 0, record 1, reached 2, unpack, record 10, reached 11, record 11, reached 12",
    );
  });

  test("are those from one offset to another; a batch that is cut off comes again", () => {
    const all = [batch({ base: 0, values: ["a", "b", "c"] }), batch({ base: 7, values: ["d"], gone: 2 })];
    expect(visit(all)).toEqual({ seen: ["0 k1 a 1000", "1 k1 b 1000", "2 k1 c 1000", "7 k1 d 1000"], next: 10 });
    expect(visit(all, [], { from: 1, to: 2 })).toEqual({ seen: ["1 k1 b 1000"], next: 3 });
    const cut = Buffer.concat(all).subarray(0, -1);
    expect(visit([cut]).next).toBe(3);
    expect(visit([cut.subarray(0, 20)]).next).toBe(0);
  });

  test("of an aborted transaction are left out up to its marker, and no others", () => {
    const batches = [
      batch({ base: 0, values: ["a"], producer: 1, attributes: 16 }),
      batch({ base: 1, values: ["b"], producer: 2, attributes: 16 }),
      marker(2, 1, 0),
      batch({ base: 3, values: ["c"], producer: 1, attributes: 16 }),
      marker(4, 2, 1),
      marker(5, 1, 1),
    ];
    expect(visit(batches, [{ producer: 1n, first: 0 }])).toEqual({ seen: ["1 k1 b 1000", "3 k1 c 1000"], next: 6 });
    expect(
      visit(batches, [
        { producer: 1n, first: 3 },
        { producer: 2n, first: 1 },
      ]).seen,
    ).toEqual(["0 k1 a 1000"]);
  });

  test("are refused where a bit is wrong", () => {
    const whole = batch({ base: 0, values: ["abc", "def"] });
    for (let at = 21; at < whole.length; at += 1) {
      const damaged = Buffer.from(whole);
      damaged[at] = (damaged[at] ?? 0) ^ (1 << (at % 8));
      expect(() => visit([damaged]), `byte ${at}`).toThrow(/checksum/);
    }
  });

  test("may be none in a marker that was compacted", () => {
    const batches = [
      batch({ base: 0, values: [], producer: 1, attributes: 48, gone: 1 }),
      batch({ base: 1, values: ["a"], producer: 1, attributes: 16 }),
    ];
    expect(visit(batches)).toEqual({ seen: ["1 k1 a 1000"], next: 2 });
  });

  const count = 36;
  const firstRecord = 40;
  const secondRecord = firstRecord + 10;
  test.each<[string, RegExp, (checked: Buffer) => void]>([
    ["has fewer records than it says", /record 2 of the 3/, (checked) => checked.writeInt32BE(3, count)],
    ["has more records than it says", /more than 1 record/, (checked) => checked.writeInt32BE(1, count)],
    ["says that it has none", /more than 0 record/, (checked) => checked.writeInt32BE(-1, count)],
    ["has an offset twice", /offset 0 is not in order/, (checked) => checked.writeInt8(0, secondRecord + 3)],
    ["has an offset after its last", /offset 5 is not in order/, (checked) => checked.writeInt8(10, secondRecord + 3)],
    ["has a key that is too long", /shorter than its key/, (checked) => checked.writeInt8(126, secondRecord + 4)],
    ["has a number without an end", /outside|shorter/, (checked) => checked.fill(0x80, secondRecord)],
  ])("are refused where a batch %s", (_, message, spoil) => {
    expect(() => visit([batch({ base: 0, values: ["a", "b"], spoil })])).toThrow(message);
  });

  test("are refused where a batch is shorter than its head", () => {
    for (const length of [-12, -1, 0, 48]) {
      const short = batch({ base: 0, values: ["a"] });
      short.writeInt32BE(length, 8);
      short.writeUInt32BE(crc32c(short.subarray(21, 12 + length)), 17);
      expect(() => visit([short, batch({ base: 1, values: ["b"] })]), `${length}`).toThrow(/a batch of/);
    }
  });
});
