import { describe, expect, test } from "vitest";
import { fixedColumn } from "#src/formats/arrow/columns.js";
import type { FixedColumn } from "#src/columns/types.js";

type Bits = 32 | 64 | 128 | 256;

function bytesOf(bits: Bits, values: readonly bigint[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array((values.length * bits) / 8);
  for (const [row, value] of values.entries()) {
    for (let byte = 0; byte < bits / 8; byte += 1) {
      bytes[(row * bits) / 8 + byte] = Number((value >> BigInt(byte * 8)) & 0xffn);
    }
  }
  return bytes;
}

function read(bits: Bits, precision: number, values: readonly bigint[], valid?: Uint8Array): bigint[] {
  const type = { kind: "decimal", bits, precision, scale: 0 } as const;
  const field = { name: "price", type, children: [], dictionary: undefined, extension: undefined };
  const column = fixedColumn(field, bytesOf(bits, values), values.length, valid);
  const { data, elementsPerValue } = column as FixedColumn;
  const words = Array.from(data, BigInt);
  return values.map((_, row) =>
    elementsPerValue === 1
      ? (words[row] ?? 0n)
      : (BigInt.asIntN(64, words[row * 2 + 1] ?? 0n) << 64n) | BigInt.asUintN(64, words[row * 2] ?? 0n),
  );
}

describe("a decimal has at most as many digits as its type says", () => {
  test.each([
    [128, 19],
    [128, 28],
    [128, 37],
    [128, 38],
    [256, 19],
    [256, 38],
    [128, 18],
    [64, 12],
    [32, 9],
  ] as const)("decimal%i of %i digits", (bits, precision) => {
    const most = 10n ** BigInt(precision) - 1n;
    const middle = 2n ** BigInt(Math.min(bits - 1, Math.floor(precision * 3.3)) - 1);
    const values = [most, -most, 0n, -1n, 1n, middle, -middle, most - most / 2000n];

    expect(read(bits, precision, values)).toEqual(values);
    for (const value of [most + 1n, -most - 1n, most + most / 2000n]) {
      expect(() => read(bits, precision, [0n, value])).toThrow(`a decimal of more than ${precision} digits`);
      expect(read(bits, precision, [5n, value], Uint8Array.of(1, 0))[0]).toBe(5n);
    }
  });

  test("also where only the highest bits say otherwise", () => {
    expect(() => read(128, 38, [2n ** 127n - 1n])).toThrow("a decimal of more than 38 digits");
    expect(() => read(128, 19, [-(2n ** 127n)])).toThrow("a decimal of more than 19 digits");
    expect(() => read(256, 38, [2n ** 200n])).toThrow("a decimal of more than 38 digits");
  });
});
