import { expect, test } from "vitest";
import { jsonOf } from "#src/columns/value-text.js";
import type { Column, ColumnType } from "#src/columns/types.js";
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
