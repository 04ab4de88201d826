import { afterAll, describe, expect, test } from "vitest";
import type { FixedColumn } from "#src/columnar/types.js";
import type { PackedValues } from "#src/columnar/memory/page-loops.js";
import { areHere, takeMemory } from "#src/columnar/memory/vectors.js";
import { openPageMemory } from "#src/formats/parquet/pages/page-memory.js";
import { parsePageHeader } from "#src/formats/parquet/pages/page-header.js";
import { encodings, valueRows } from "#src/formats/parquet/pages/page-values.js";
import { takeRunsInParts } from "#src/formats/parquet/pages/run-parts.js";
import { readRuns } from "#src/formats/parquet/pages/runs.js";
import { tinyParquet } from "../../../support/parquet-bytes.js";
import { anyRuns, packedRun, repeatedRun } from "../../../support/parquet-runs.js";
import { doubleChunk } from "../../../support/parquet-units.js";
import { randomOf } from "../../../support/random.js";

const pageMemory = openPageMemory();
const mostAtOnce = 60_000;
const room = takeMemory(mostAtOnce * Float64Array.BYTES_PER_ELEMENT);

afterAll(() => {
  pageMemory.close();
});

/** Where loops reach them: each entry is its index. */
function dictionaryOf(entries: number): Float64Array<ArrayBuffer> {
  const { buffer, byteOffset } = takeMemory(entries * Float64Array.BYTES_PER_ELEMENT);
  const dictionary = new Float64Array(buffer, byteOffset, entries);
  dictionary.forEach((_, index) => {
    dictionary[index] = index;
  });
  return dictionary;
}

interface Runs {
  readonly bytes: readonly number[];
  readonly width: number;
  readonly count: number;
}

/** In memory that loops do not reach, with other bytes around them. */
function open({ bytes, width, count }: Runs, dictionary: Float64Array<ArrayBuffer>): PackedValues | undefined {
  const page = new Uint8Array(bytes.length + 4).fill(255);
  page.set(bytes, 2);
  return takeRunsInParts(page, { at: 2, end: 2 + bytes.length, width }, { dictionary, count, pageMemory });
}

function take(values: PackedValues, count: number): Float64Array {
  const target = new Float64Array(room.buffer, room.byteOffset, count);
  values.take(target);
  return target;
}

/** Reads all of them, but skips some. */
function expectValues(values: PackedValues | undefined, numbers: Float64Array, random: () => number): void {
  for (let from = 0; from < numbers.length; ) {
    const to = Math.min(numbers.length, from + 1 + Math.floor(random() ** 3 * mostAtOnce));
    if (random() < 0.3) {
      values?.skip(to - from);
    } else {
      const found = values && Buffer.from(take(values, to - from).buffer, room.byteOffset, (to - from) * 8);
      expect(found?.equals(Buffer.from(numbers.buffer, from * 8, (to - from) * 8))).toBe(true);
    }
    from = to;
  }
}

/** Packed runs of about so many bytes in turns with repeated numbers; the last eight numbers are not all there. */
function runsOf(sizes: readonly number[], width: number, random: () => number): Runs & { numbers: Float64Array } {
  const below = (most: number): number => Math.floor(random() * most);
  const [bytes, numbers]: [number[][], number[][]] = [[], []];
  for (const size of sizes) {
    const some = Array.from({ length: 8 * Math.ceil(size / Math.max(1, width)) }, () => below(2 ** width));
    const times = 1 + below(500);
    const number = below(2 ** width);
    bytes.push(repeatedRun(number, times, width), packedRun(some, width));
    numbers.push(
      Array.from({ length: times }, () => number),
      some,
    );
  }
  const last = Array.from({ length: 3 }, () => below(2 ** width));
  bytes.push(packedRun(last, width).slice(0, 1 + Math.ceil((3 * width) / 8)));
  const all = Float64Array.from([...numbers, last].flat());
  return { bytes: bytes.flat(), numbers: all, width, count: all.length };
}

const part = 64 * 1024;
const manyRuns = Array.from({ length: 80 }, () => 900);

describe("values of a dictionary in a page that loops do not reach", () => {
  test.each(Array.from({ length: 21 }, (_, width) => width))("are those of its runs of %i bits", (width) => {
    const random = randomOf(width);
    const dictionary = dictionaryOf(2 ** width);
    for (const sizes of [manyRuns, [1.2 * part, 10, 0.9 * part, part, 3]]) {
      const runs = runsOf(sizes, width, random);
      expectValues(open(runs, dictionary), runs.numbers, random);
    }
  });

  test("values of a dictionary are read from one packed run that has more numbers than the page needs", () => {
    const numbers = Array.from({ length: 200_000 }, (_, index) => index % 19);
    const runs = { bytes: packedRun(numbers, 5), width: 5, count: 150_003 };
    expectValues(open(runs, dictionaryOf(20)), Float64Array.from(numbers.slice(0, runs.count)), randomOf(3));
  });

  test("values of a dictionary end with the page", () => {
    const runs = { bytes: packedRun([1, 2, 3, 0, 0, 0, 0, 0], 2), width: 2, count: 3 };
    const values = open(runs, dictionaryOf(4)) as PackedValues;
    expect([...take(values, 3)]).toEqual([1, 2, 3]);
    expect(() => take(values, 1)).toThrow(RangeError);
    expect(() => {
      values.skip(1);
    }).toThrow(RangeError);
    expect([...take(open({ bytes: [], width: 2, count: 0 }, dictionaryOf(4)) as PackedValues, 0)]).toEqual([]);
  });

  test("values of a dictionary are left to JavaScript if the dictionary is outside WebAssembly memory, too", () => {
    const runs = { bytes: repeatedRun(1, 5, 1), width: 1, count: 5 };
    expect(open(runs, dictionaryOf(2))).toBeDefined();
    expect(open(runs, Float64Array.of(0, 1))).toBeUndefined();
  });

  test("values of a dictionary become rows of a column in WebAssembly memory", () => {
    const header = parsePageHeader({ bytes: tinyParquet({ values: [] }), at: 4 });
    const dictionary = { kind: "fixed", elementsPerValue: 1, data: dictionaryOf(4), valid: undefined } as const;
    const parts = { header: { ...header, encoding: encodings.runDictionary }, dictionary, pageMemory };
    const bytes = Uint8Array.from([2, ...packedRun([3, 1, 0, 2, 2, 2, 0, 1], 2)]);
    const rows = valueRows(doubleChunk(0, 8), bytes, { ...parts, at: 0, valid: undefined, count: 8, rows: 8 });
    const { data } = rows.take(1, 5) as FixedColumn;
    expect([...data]).toEqual([1, 0, 2, 2]);
    expect(areHere([data])).toBe(true);
  });
});

/** What the loops in JavaScript make of runs; undefined: they are damaged. */
function runsInJs({ bytes, width, count }: Runs, entries: number): number[] | undefined {
  const numbers = new Uint32Array(count);
  try {
    readRuns(Uint8Array.from(bytes), { at: 0, end: bytes.length, width }, numbers, count);
  } catch {
    return undefined;
  }
  return numbers.every((number) => number < entries) ? [...numbers] : undefined;
}

function valuesOrRefused(runs: Runs, dictionary: Float64Array<ArrayBuffer>): number[] | undefined {
  try {
    return [...take(open(runs, dictionary) as PackedValues, runs.count)];
  } catch (error) {
    expect(error).toBeInstanceOf(RangeError);
    return undefined;
  }
}

describe("damaged runs in a page that loops do not reach", () => {
  test("damaged runs are refused, or give the same values, as by the loops in JavaScript", () => {
    const random = randomOf(5);
    const below = (limit: number): number => Math.floor(random() * limit);
    const dictionary = dictionaryOf(90);
    let refused = 0;
    for (let round = 0; round < 3000; round += 1) {
      const { bytes, numbers } = anyRuns(random, 7, 90);
      for (let flips = below(3); flips > 0; flips -= 1) {
        bytes[below(bytes.length)] = random() < 0.5 ? below(256) : 255;
      }
      const cut = bytes.slice(0, random() < 0.3 ? below(bytes.length) : bytes.length);
      const count = Math.max(1, numbers.length + (random() < 0.3 ? below(20) - 10 : 0));
      const runs = { bytes: cut, width: 7, count };
      const found = valuesOrRefused(runs, dictionary);
      expect(found).toEqual(runsInJs(runs, 90));
      refused += found === undefined ? 1 : 0;
    }
    expect(refused).toBeGreaterThan(500);
  });

  test.each([
    ["in a run that is repeated", [...repeatedRun(2, 1000, 2), ...repeatedRun(3, 1000, 2)], 2000],
    ["in a packed run", packedRun([2, 2, 3, 0, 0, 0, 0, 0], 2), 8],
  ] as const)("a number beyond the dictionary is refused %s", (_, bytes, count) => {
    expect(valuesOrRefused({ bytes, width: 2, count }, dictionaryOf(3))).toBeUndefined();
    expect(valuesOrRefused({ bytes, width: 2, count }, dictionaryOf(4))).toHaveLength(count);
  });

  test("a number beyond the dictionary is refused in the last part of a long run", () => {
    const numbers = Array.from({ length: 400_000 }, () => 2);
    const runs = { bytes: packedRun([...numbers.slice(8), 2, 2, 2, 2, 2, 2, 3, 2], 2), width: 2, count: 400_000 };
    const values = open(runs, dictionaryOf(3)) as PackedValues;
    values.skip(399_990);
    expect(() => take(values, 10)).toThrow(RangeError);
  });

  test("numbers of too many bits are refused", () => {
    const runs = { bytes: repeatedRun(0, 5, 25), width: 25, count: 5 };
    expect(() => open(runs, dictionaryOf(3))).toThrow(RangeError);
  });
});
