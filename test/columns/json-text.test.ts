import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { numberTexts, spreadTexts } from "#src/columns/numbered-texts.js";
import { decodeTexts, encodeTexts } from "#src/columns/tensor.js";
import type { Column, ColumnType } from "#src/columns/types.js";
import { jsonOf } from "#src/columns/value-text.js";
import type { Values } from "#src/columns/values.js";

const fixed = (data: Values, elementsPerValue: 1 | 2 = 1): Column => ({
  kind: "fixed",
  data,
  elementsPerValue,
  valid: undefined,
});
const texts = (bytes: readonly number[]): Column => ({
  kind: "bytes",
  offsets: Uint32Array.of(0, bytes.length),
  bytes: Uint8Array.from(bytes),
  valid: undefined,
});

test.each<[string, ColumnType, Column, string]>([
  ["a float32 has the shortest text that reads back", "float32", fixed(Float32Array.of(0.1)), "0.1"],
  ["a zero keeps its sign", "float64", fixed(Float64Array.of(-0)), "-0"],
  ["a number that is not finite is a text", "float64", fixed(Float64Array.of(Number.NaN)), '"NaN"'],
  ["an int64 keeps all digits", "int64", fixed(BigInt64Array.of(9_007_199_254_740_993n)), "9007199254740993"],
  ["a date is written as in ISO 8601", "date32", fixed(Int32Array.of(20_454)), '"2026-01-01"'],
  ["a moment in UTC has an offset", "timestamp[us, UTC]", fixed(BigInt64Array.of(0n)), '"1970-01-01T00:00:00+00:00"'],
  [
    "a decimal has its decimal places",
    { kind: "decimal", precision: 5, scale: 2 },
    fixed(BigInt64Array.of(-5n)),
    "-0.05",
  ],
  ["a text is quoted", "utf8", texts([0xc3, 0xa9, 0x22]), String.raw`"é\""`],
  ["bytes are hexadecimal digits", "binary", texts([0, 255]), String.raw`"\\x00ff"`],
])("%s", (_, type, column, text) => {
  expect(jsonOf(type, column, 0)).toBe(text);
});

const numbered = (allTexts: readonly string[]): { entries: string[]; indices: number[] } => {
  const { entries, indices } = numberTexts(encodeTexts(allTexts));
  return { entries: decodeTexts(entries), indices: Array.from(indices, Number) };
};

test("texts are numbered in the order in which they come first", () => {
  expect(numbered(["b", "", "a", "b", "", "ab", "a"])).toEqual({
    entries: ["b", "", "a", "ab"],
    indices: [0, 1, 2, 0, 1, 3, 2],
  });
});

test("no texts have no entries", () => {
  expect(numbered([])).toEqual({ entries: [], indices: [] });
});

test("texts of more than 64 bytes are not compared", () => {
  const [short, long] = ["x".repeat(64), "x".repeat(65)];
  expect(numbered([short, long, short, long])).toEqual({ entries: [short, long, long], indices: [0, 1, 0, 2] });
});

test("as many texts as there may be are found again, in a table that is half full", () => {
  const allTexts = Array.from({ length: 4096 }, (_, index) => `t${index}`);
  expect(numbered([...allTexts, ...allTexts.toReversed()])).toEqual({
    entries: allTexts,
    indices: [...allTexts.keys(), ...[...allTexts.keys()].toReversed()],
  });
});

const fewTexts = fc.array(
  fc.constantFrom("", "a", "b", "ab", "é", "日本", "\u{1f600}", "x".repeat(40), "y".repeat(70)),
);
const anyTexts = fc.array(fc.oneof(fc.string({ unit: "binary" }), fc.string({ unit: "grapheme", maxLength: 3 })));

test("numbers and entries come to the same texts", () => {
  fc.assert(
    fc.property(fc.oneof(fewTexts, anyTexts), (allTexts) => {
      const given = encodeTexts(allTexts);
      const { entries, indices } = numberTexts(given);
      expect(spreadTexts({ entries, indices })).toEqual(given);
      const short = decodeTexts(entries).filter((text) => Buffer.byteLength(text) <= 64);
      expect(new Set(short).size).toBe(short.length);
    }),
  );
});

test("texts of part of a larger array are those that are meant", () => {
  const all = encodeTexts(["zz", "a", "b", "a"]);
  expect(decodeTexts(spreadTexts(numberTexts({ ...all, offsets: all.offsets.slice(1) })))).toEqual(["a", "b", "a"]);
});

describe("a place without an entry is refused:", () => {
  test.each([[2n], [-1n], [2n ** 31n]])("%i", (place) => {
    const entries = encodeTexts(["a", "b"]);
    expect(() => spreadTexts({ entries, indices: BigInt64Array.of(0n, place) })).toThrow(RangeError);
  });
});
