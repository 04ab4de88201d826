import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { mebibytes } from "#src/base/memory-budget.js";
import type { FixedColumn } from "#src/columns/types.js";
import { type BatchLimits, cutPieces } from "#src/formats/arrow/batches.js";
import { fixedColumn } from "#src/formats/arrow/columns.js";
import { openShards } from "#src/formats/arrow/shards.js";
import { writeArrow } from "../../support/arrow.js";
import { projectFolder } from "../../support/cli.js";
import { scratch } from "../../support/job.js";

async function piecesOf(path: string, columns: readonly string[], limits: BatchLimits): Promise<number[]> {
  await using shard = await openShards()({ path, name: path });
  const wanted = new Map(columns.map((name) => [name, undefined]));
  const request = { rowStart: 0, rowEnd: shard.index.rows, columns: wanted, limits };
  const found: number[] = [];
  for await (const piece of cutPieces(shard.bytes, shard.index, request)) {
    found.push(piece.rowEnd - piece.rowStart);
  }
  return found;
}

const plenty: BatchLimits = { bytes: mebibytes(512), wholeBytes: mebibytes(256), pieceBytes: mebibytes(32) };

test("a record batch of long texts is read in pieces of as many bytes as there is memory for", async () => {
  const path = join(scratch.path, "a.arrow");
  await writeArrow(path, "SELECT range AS id, repeat('a', 1000000) AS body FROM range(60)", { batchRows: 60 });
  const pieces = await piecesOf(path, ["id", "body"], { ...plenty, pieceBytes: mebibytes(10) });
  expect(pieces.reduce((sum, rows) => sum + rows, 0)).toBe(60);
  expect(Math.max(...pieces)).toBeLessThanOrEqual(10);
});

test.each(["zstd.arrow", "lz4.arrow"])(
  "a compressed record batch without memory is refused by name and size (%s)",
  async (name) => {
    const path = join(projectFolder, "fixtures/arrow", name);
    await using shard = await openShards()({ path, name: path });
    const columns = shard.index.schema.fields.map((field) => field.name);
    const limits = { ...plenty, bytes: 2048, wholeBytes: 512 };
    expect(await piecesOf(path, columns, plenty)).not.toEqual([]);
    await expect(piecesOf(path, columns, limits)).rejects.toMatchObject({
      code: "TOO_LARGE",
      message: expect.stringMatching(
        /reading .*: record batch 0: the data up to column `.+` has [\d.]+ KiB when it is unpacked, more than 0.5 KiB, which is one of 4 parts of engine.memory$/,
      ),
    });
  },
);

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
