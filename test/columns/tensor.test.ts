import { describe, expect, test } from "vitest";
import {
  decodeTexts,
  encodeTexts,
  fromFloat16Bits,
  isTensorType,
  numericTensorTypes,
  tensorElement,
  toFloat16Bits,
} from "#src/columns/tensor.js";

const isNaNBits = (bits: number): boolean => (bits & 0x7c00) === 0x7c00 && (bits & 0x3ff) !== 0;
const finite = Array.from({ length: 0x7c00 }, (_, bits) => bits);

test("float16 survives conversion and back for all 65,536 bit patterns, except for the payload of NaN", () => {
  const changed: number[] = [];
  for (let bits = 0; bits <= 0xffff; bits += 1) {
    const value = fromFloat16Bits(bits);
    const same = isNaNBits(bits)
      ? Number.isNaN(value) && isNaNBits(toFloat16Bits(value))
      : !Number.isNaN(value) && toFloat16Bits(value) === bits;
    if (!same) {
      changed.push(bits);
    }
  }
  expect(changed).toEqual([]);
});

test("float16 widens to a float32 that holds it exactly", () => {
  expect(finite.filter((bits) => Math.fround(fromFloat16Bits(bits)) !== fromFloat16Bits(bits))).toEqual([]);
});

test("float16 numbers grow with their bits: no two patterns are the same number, and signs mirror each other", () => {
  expect(finite.filter((bits) => fromFloat16Bits(bits + 1) <= fromFloat16Bits(bits))).toEqual([]);
  expect(finite.filter((bits) => !Object.is(fromFloat16Bits(bits | 0x8000), -fromFloat16Bits(bits)))).toEqual([]);
});

test("float16 rounds a value between two numbers to the nearer one, and a tie to the even one, with both signs", () => {
  const wrong: number[] = [];
  for (const bits of finite.slice(0, -1)) {
    const below = fromFloat16Bits(bits);
    const middle = (below + fromFloat16Bits(bits + 1)) / 2;
    const even = bits + (bits % 2);
    const expected = [bits, even, bits + 1, even | 0x8000, (bits + 1) | 0x8000];
    // The next float32 to either side of the middle, which itself is one, and the next float64.
    for (const tip of [middle * 2 ** -23, middle * 2 ** -52]) {
      const rounded = [middle - tip, middle, middle + tip, -middle, -(middle + tip)].map(toFloat16Bits);
      if (rounded.some((found, index) => found !== expected[index])) {
        wrong.push(bits);
      }
    }
  }
  expect(wrong).toEqual([]);
});

// numpy.float16(value).view(numpy.uint16), of a numpy.float64
test.each([
  [0, 0x0000],
  [-0, 0x8000],
  [1, 0x3c00],
  [-2, 0xc000],
  [65504, 0x7bff],
  [65519.99609375, 0x7bff],
  [65520, 0x7c00],
  [1e30, 0x7c00],
  [-1e30, 0xfc00],
  [Number.POSITIVE_INFINITY, 0x7c00],
  [Number.NEGATIVE_INFINITY, 0xfc00],
  [Number.NaN, 0x7e00],
  [6.103515625e-5, 0x0400],
  [6.100535392761231e-5, 0x0400],
  [5.960464477539063e-8, 0x0001],
  [2 ** -25, 0x0000],
  [2.980232594040899e-8, 0x0001],
  [8.940696716308594e-8, 0x0002],
  [1.4901161193847656e-7, 0x0002],
  [1e-10, 0x0000],
  [1.00048828125, 0x3c00],
  [1.0004884004592896, 0x3c01],
  [1.00146484375, 0x3c02],
  [2047.5, 0x6800],
  [2049, 0x6800],
  [2051, 0x6802],
  [4095, 0x6c00],
  [4097, 0x6c00],
  [4098.99951171875, 0x6c01],
  [Math.fround(0.1), 0x2e66],
  [Math.fround(1 / 3), 0x3555],
  [Math.fround(-Math.PI), 0xc248],
  // From here on, most would be another number by way of float32.
  [1.0004882812509095, 0x3c01],
  [1.0004882812490905, 0x3c00],
  [1.0014648437499996, 0x3c01],
  [2049.000000000001, 0x6801],
  [-2049.0000000009313, 0xe801],
  [2050.999999999999, 0x6801],
  [65519.999999999, 0x7bff],
  [2.980232238769616e-8, 0x0001],
  [8.940696716308509e-8, 0x0001],
  [6.100535392761144e-5, 0x03ff],
  [6.103515624999999e-5, 0x0400],
  [0.1, 0x2e66],
  [5e-324, 0x0000],
  [-1e300, 0xfc00],
])("float16 of %d is what numpy makes of it", (value, bits) => {
  expect(toFloat16Bits(value)).toBe(bits);
});

describe("tensor types", () => {
  test("tensor types that are stored as another type are bool and float16", () => {
    for (const dtype of numericTensorTypes) {
      expect(tensorElement(dtype)).toBe(dtype === "bool" ? "uint8" : dtype === "float16" ? "uint16" : dtype);
    }
    expect(numericTensorTypes).toHaveLength(12);
  });

  test.each(["bfloat16", "complex64", "toString", "", undefined, "seq"])("%s is none", (name) => {
    expect(isTensorType(name)).toBe(false);
    expect(isTensorType("string")).toBe(true);
  });
});

test.each([
  ["none", []],
  ["empty ones", ["", "", ""]],
  ["one byte a character", ["a", "", "bc\u0000d\u007f", "x".repeat(64), "y".repeat(65), "x".repeat(1000)]],
  ["more bytes a character, at the end too", ["plain", "Zürich", "\u0080", "日本", "👩‍👧", "\ufeffbom", "", "é"]],
  ["more than one decoding takes", ["x".repeat((1 << 24) - 1), "yz", "w"]],
])("texts come back from bytes: %s", (_, texts) => {
  const encoded = encodeTexts(texts);
  expect(encoded.bytes.length).toBe(encoded.offsets.at(-1));
  expect(decodeTexts(encoded)).toEqual(texts);
});

test("texts that end in half a character do not join with the next text", () => {
  const [first = 0, second = 0] = new TextEncoder().encode("é");
  const halves = { offsets: Uint32Array.of(0, 2, 4), bytes: Uint8Array.of(0x61, first, second, 0x62) };
  expect(decodeTexts(halves)).toEqual(["a\ufffd", "\ufffdb"]);
});
