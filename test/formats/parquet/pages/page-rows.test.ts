import { describe, expect, test } from "vitest";
import type { FixedColumn } from "#src/columns/types.js";
import { takeMemory } from "#src/columns/loops/vectors.js";
import { openPageMemory } from "#src/formats/parquet/pages/page-memory.js";
import { encodings, mostRows, pageRows } from "#src/formats/parquet/pages/page-values.js";
import { packedRun } from "../../../support/parquet-runs.js";
import { doubleChunk } from "../../../support/parquet-units.js";
import { randomOf } from "../../../support/random.js";

const random = randomOf(5);
const below = (limit: number): number => Math.floor(random() * limit);

interface Page {
  readonly isDictionary: boolean;
  /** null: NULL. Of a dictionary: places. */
  readonly rows: readonly (number | null)[];
}

const dictionary = Float64Array.from({ length: 100 }, (_, place) => place / 7);

function pageBytes({ isDictionary, rows }: Page): Buffer {
  const levels = Buffer.from(
    packedRun(
      rows.map((row) => (row === null ? 0 : 1)),
      1,
    ),
  );
  const present = rows.filter((row) => row !== null);
  const values = isDictionary
    ? Buffer.from([7, ...packedRun(present, 7)])
    : Buffer.from(Float64Array.from(present).buffer);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(levels.length);
  return Buffer.concat([length, levels, values]);
}

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
    const memory = openPageMemory();
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
        rows: 0,
        crc: undefined,
        encoding: isDictionary ? encodings.runDictionary : encodings.plain,
        entries: 0,
        levelBytes: { repetition: 0, definition: 0 },
        isCompressed: false,
        repetitionEncoding: 3,
        levelEncoding: encodings.runs,
      } as const;
      const page = pageRows(doubleChunk(bytes.length, rows.length), bytes, {
        header,
        pageMemory: memory,
        dictionary: isDictionary ? { kind: "fixed", elementsPerValue: 1, data, valid: undefined } : undefined,
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
