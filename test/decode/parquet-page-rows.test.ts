import { describe, expect, test } from "vitest";
import type { FixedColumn } from "#src/batch/types.js";
import { takeMemory } from "#src/batch/vectors.js";
import { openPageRoom } from "#src/decode/page-room.js";
import { encodings, mostRows, pageRows } from "#src/decode/parquet-page-values.js";
import type { StoredColumn } from "#src/decode/parquet-storage.js";
import { randomOf } from "../support/random.js";

const random = randomOf(5);
const below = (limit: number): number => Math.floor(random() * limit);

const column: StoredColumn = {
  name: "x",
  type: "float64",
  storage: { kind: "fixed", stored: "float64", element: "float64" },
  isOptional: true,
  codec: 0,
  start: 0,
  end: 0,
  unpackedBytes: 0,
  rows: 0,
};

/** Bits, the lowest first, of numbers of `width` bits each, as one run. */
function packedRun(numbers: readonly number[], width: number): Buffer {
  const eights = Math.ceil(numbers.length / 8);
  const bytes = Buffer.alloc(eights * width);
  for (const [index, number] of numbers.entries()) {
    for (let bit = 0; bit < width; bit += 1) {
      const at = index * width + bit;
      bytes[at >> 3] = (bytes[at >> 3] ?? 0) | (((number >> bit) & 1) << (at & 7));
    }
  }
  let head = eights * 2 + 1;
  const heads: number[] = [];
  for (; head >= 128; head = Math.floor(head / 128)) {
    heads.push((head % 128) | 128);
  }
  return Buffer.concat([Buffer.from([...heads, head]), bytes]);
}

interface Page {
  readonly isDictionary: boolean;
  /** null: NULL. Of a dictionary: places. */
  readonly rows: readonly (number | null)[];
}

const dictionary = Float64Array.from({ length: 100 }, (_, place) => place / 7);

/** A page of version 1. */
function pageBytes({ isDictionary, rows }: Page): Buffer {
  const levels = packedRun(
    rows.map((row) => (row === null ? 0 : 1)),
    1,
  );
  const present = rows.filter((row) => row !== null);
  const values = isDictionary
    ? Buffer.concat([Buffer.from([7]), packedRun(present, 7)])
    : Buffer.from(Float64Array.from(present).buffer);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(levels.length);
  return Buffer.concat([length, levels, values]);
}

/** In memory that loops reach or not; values are aligned or not. */
function placed(bytes: Buffer, place: "here" | "not aligned" | "elsewhere"): Uint8Array<ArrayBuffer> {
  const valuesAt = bytes.readUInt32LE(0) + 4;
  const lead = place === "not aligned" ? 1 : -valuesAt & 7;
  const memory = place === "elsewhere" ? new Uint8Array(bytes.length + 8) : takeMemory(bytes.length + 8);
  memory.set(bytes, lead);
  return memory.subarray(lead, lead + bytes.length);
}

describe.each(["here", "not aligned", "elsewhere"] as const)("rows of a page, %s,", (place) => {
  test.each([
    { name: "of a dictionary, with NULLs", isDictionary: true, nulls: 0.3 },
    { name: "of a dictionary, with few NULLs", isDictionary: true, nulls: 0.002 },
    { name: "with NULLs", isDictionary: false, nulls: 0.3 },
    { name: "with few NULLs", isDictionary: false, nulls: 0.002 },
    { name: "of NULLs only", isDictionary: false, nulls: 1 },
  ])("$name, are taken from anywhere on", ({ isDictionary, nulls }) => {
    const memory = openPageRoom();
    const values = memory.memory("dictionary", dictionary.byteLength);
    values.set(new Uint8Array(dictionary.buffer));
    const data = new Float64Array(values.buffer, values.byteOffset, dictionary.length);
    for (let round = 0; round < 40; round += 1) {
      const rows = Array.from({ length: 1 + below(round % 4 === 0 ? 3000 : 60) }, () =>
        random() < nulls ? null : below(dictionary.length),
      );
      const bytes = placed(pageBytes({ isDictionary, rows }), place);
      const header = {
        kind: "data",
        compressedBytes: bytes.length,
        uncompressedBytes: bytes.length,
        values: rows.length,
        crc: undefined,
        encoding: isDictionary ? encodings.runDictionary : encodings.plain,
        entries: 0,
        levelBytes: { repetition: 0, definition: 0 },
        isCompressed: false,
        levelEncoding: encodings.runs,
      } as const;
      const page = pageRows(column, bytes, {
        header,
        room: memory,
        dictionary: isDictionary ? { kind: "fixed", lanes: 1, data, valid: undefined } : undefined,
      });
      const most = Math.min(mostRows, 1 + below(round % 2 === 0 ? 20 : 2000));
      for (let from = below(3) * below(rows.length); from < rows.length; ) {
        const to = Math.min(rows.length, from + 1 + below(most));
        const { data: taken, valid } = page.take(from, to) as FixedColumn;
        const found = Array.from(taken as Float64Array, (value, index) => (valid?.[index] === 0 ? null : value));
        const expected = rows
          .slice(from, to)
          .map((row) => (row === null ? null : isDictionary ? (dictionary[row] as number) : row));
        expect(found).toEqual(expected);
        from = to + (random() < 0.3 ? below(20) : 0);
      }
    }
    memory.close();
  });
});
