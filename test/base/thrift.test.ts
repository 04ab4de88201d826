import { describe, expect, test } from "vitest";
import { type Cursor, readStruct } from "#src/base/thrift.js";

function walk(bytes: readonly number[] | Uint8Array): { ids: number[]; at: number } {
  const cursor: Cursor = { bytes: Uint8Array.from(bytes), at: 0 };
  const ids: number[] = [];
  readStruct(cursor, (id) => {
    ids.push(id);
    return false;
  });
  return { ids, at: cursor.at };
}

test.each([
  { what: "bools, whose value is their type", bytes: [0x11, 0x12, 0], ids: [1, 2] },
  {
    what: "a byte, a varint, a double",
    bytes: [0x13, 9, 0x16, 0x80, 1, 0x17, 1, 2, 3, 4, 5, 6, 7, 8, 0],
    ids: [1, 2, 3],
  },
  { what: "a text", bytes: [0x18, 3, 97, 98, 99, 0], ids: [1] },
  { what: "a field id far from the last one", bytes: [0x05, 0xe8, 7, 4, 0], ids: [500] },
  { what: "a list of bools, one byte each", bytes: [0x19, 0x31, 1, 2, 1, 0], ids: [1] },
  { what: "a set of structs", bytes: [0x1a, 0x2c, 0x15, 2, 0, 0, 0], ids: [1] },
  { what: "a map of texts to numbers", bytes: [0x1b, 2, 0x85, 1, 97, 2, 1, 98, 4, 0], ids: [1] },
  { what: "an empty map, which has no types", bytes: [0x1b, 0, 0x15, 2, 0], ids: [1, 2] },
  { what: "a UUID", bytes: [0x1d, ...Array.from({ length: 16 }, () => 7), 0], ids: [1] },
  { what: "a struct in a struct", bytes: [0x1c, 0x15, 2, 0, 0x15, 2, 0], ids: [1, 2] },
])("a struct is walked over $what", ({ bytes, ids }) => {
  expect(walk([...bytes, 99])).toEqual({ ids, at: bytes.length });
});

describe("bytes that are no struct are refused at once:", () => {
  test.each([
    { what: "nothing", bytes: [] },
    { what: "no end", bytes: [0x15, 2] },
    { what: "a text longer than the bytes", bytes: [0x18, 0xff, 0xff, 0xff, 0xff, 7, 97, 0] },
    { what: "a list of 2^60 bytes", bytes: [0x19, 0xf3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 15, 0] },
  ])("$what", ({ bytes }) => {
    expect(() => walk(bytes)).toThrow(RangeError);
  });

  test.each([
    { what: "an unknown type", bytes: [0x1f, 0] },
    { what: "a number that does not end", bytes: new Uint8Array(1024 * 1024).fill(0xff).fill(0x16, 0, 1) },
    { what: "structs without end", bytes: new Uint8Array(1024 * 1024).fill(0x1c) },
    { what: "lists without end", bytes: new Uint8Array(1024 * 1024).fill(0x19) },
  ])("$what", ({ bytes }) => {
    const before = process.cpuUsage();
    // Not RangeError, which would say that more bytes may help, or that the stack ran over.
    expect(() => walk(bytes)).toThrow(
      /^(a value has type|a number has more than 10 bytes|(structs|lists) are nested too deeply)/,
    );
    expect(process.cpuUsage(before).user).toBeLessThan(2_000_000); // µs of work
  });
});
