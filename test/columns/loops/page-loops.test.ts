import { describe, expect, test } from "vitest";
import { bytesPerElement, type Values, viewOf } from "#src/columns/values.js";
import { takeMemory } from "#src/columns/loops/vectors.js";
import {
  bitsSpareBytes,
  countOnesHere,
  type PackedValues,
  readBits,
  spreadHere,
  takeRunsHere,
} from "#src/columns/loops/page-loops.js";
import { readRuns } from "#src/formats/parquet/pages/runs.js";
import { anyRuns, damagedBits, repeatedRun } from "../../support/parquet-runs.js";
import { randomOf } from "../../support/random.js";

const random = randomOf(11);
const below = (limit: number): number => Math.floor(random() * limit);

/** In the memory that loops reach, with other bytes around it. */
function here(bytes: readonly number[], lead = 0): Uint8Array<ArrayBuffer> {
  const piece = takeMemory(lead + bytes.length + 8).fill(0xa5);
  piece.set(bytes, lead);
  return piece.subarray(0, lead + bytes.length);
}

/** Bytes of which some may be behind the end that is told. */
function cutShort(bytes: readonly number[], share: number): Uint8Array<ArrayBuffer> {
  return here(bytes).subarray(0, random() < share ? below(bytes.length) : bytes.length);
}

function dictionaryOf(kind: "float32" | "int64" | "float64", entries: number): Values {
  const values = roomFor(kind, entries);
  const words = new Uint32Array(values.buffer, values.byteOffset, (entries * bytesPerElement(kind)) / 4);
  words.forEach((_, index) => {
    words[index] = below(2 ** 32);
  });
  return values;
}

/** `count` arbitrary values. */
function roomFor(kind: "float32" | "int64" | "float64", count: number): Values {
  const { buffer, byteOffset } = takeMemory(count * bytesPerElement(kind));
  return viewOf(kind, buffer, byteOffset, count);
}

function bitsOf(values: Values): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/** All values that are left of some, in pieces, of which some are passed over. */
function takeAll(values: PackedValues, numbers: readonly number[], dictionary: Values, mostAtOnce: number): void {
  const kind = dictionary instanceof Float32Array ? "float32" : "int64";
  for (let from = 0; from < numbers.length; ) {
    const to = Math.min(numbers.length, from + 1 + below(mostAtOnce));
    if (random() < 0.2) {
      values.skip(to - from);
    } else {
      const room = takeMemory((to - from + 1) * bytesPerElement(kind)).fill(0x5a);
      const target = viewOf(kind, room.buffer, room.byteOffset, to - from);
      values.take(target);
      const expected = numbers.slice(from, to).map((number) => bitsOf(dictionary.subarray(number, number + 1)));
      expect(Buffer.from(bitsOf(target)).equals(Buffer.concat(expected))).toBe(true);
      expect(room.subarray(target.byteLength).every((byte) => byte === 0x5a)).toBe(true);
    }
    from = to;
  }
}

describe("values of a dictionary are looked up by their numbers", () => {
  test.each([
    ["float32", 1],
    ["float32", 40],
    ["int64", 500],
    ["float64", 70_000],
  ] as const)("%s, of %i", (kind, entries) => {
    const dictionary = dictionaryOf(kind, entries);
    for (let round = 0; round < 100; round += 1) {
      const width = Math.ceil(Math.log2(entries)) + below(3);
      const { bytes, numbers } = anyRuns(random, width, entries);
      const lead = below(9);
      const runs = { at: lead, end: lead + bytes.length, width };
      const values = takeRunsHere(here(bytes, lead), runs, dictionary, numbers.length) as PackedValues;
      takeAll(values, numbers, dictionary, round % 2 === 0 ? 20 : 2000);
      expect(() => {
        values.skip(1);
      }).toThrow(RangeError);
    }
  });

  test("several lookups of dictionary values at the same time do not disturb each other", () => {
    const dictionary = dictionaryOf("float32", 30);
    const both = [anyRuns(random, 5, 30), anyRuns(random, 5, 30)].map(({ bytes, numbers }) => ({
      numbers,
      values: takeRunsHere(here(bytes), { at: 0, end: bytes.length, width: 5 }, dictionary, numbers.length),
    }));
    const least = Math.min(...both.map(({ numbers }) => numbers.length));
    for (let row = 0; row < least; row += 1) {
      for (const { numbers, values } of both) {
        const target = roomFor("float32", 1);
        values?.take(target);
        const place = numbers[row] as number;
        expect([...bitsOf(target)]).toEqual([...bitsOf(dictionary.subarray(place, place + 1))]);
      }
    }
  });

  test("values of a dictionary are gathered by index, also into the first byte of the memory", () => {
    const dictionary = dictionaryOf("float32", 3);
    const first = new Uint8Array(dictionary.buffer, 0, 20);
    const before = first.slice();
    const target = viewOf("float32", dictionary.buffer, 0, 5);
    takeRunsHere(here(repeatedRun(2, 5, 2)), { at: 0, end: 2, width: 2 }, dictionary, 5)?.take(target);
    const expected = bitsOf(dictionary.subarray(2));
    expect(Buffer.from(first)).toEqual(Buffer.concat(Array.from({ length: 5 }, () => expected)));
    first.set(before); // its holder still reads it
  });

  test("values of a dictionary are refused if the runs have more or fewer values than are due", () => {
    const dictionary = dictionaryOf("float32", 3);
    const bytes = here([...repeatedRun(2, 5000, 2), ...repeatedRun(1, 5000, 2)]);
    const runs = { at: 0, end: bytes.length, width: 2 };
    expect(takeRunsHere(bytes, runs, dictionary, 10_000)).toBeDefined();
    for (const count of [9999, 10_001, 4000]) {
      expect(() => takeRunsHere(bytes, runs, dictionary, count)).toThrow(RangeError);
    }
  });

  test("page loops refuse arrays in other memory or of another size", () => {
    const runs = { at: 0, end: 2, width: 1 };
    const bytes = here(repeatedRun(0, 5, 1));
    const dictionary = dictionaryOf("float32", 2);
    expect(takeRunsHere(bytes, runs, dictionary, 5)).toBeDefined();
    expect(takeRunsHere(bytes.slice(), runs, dictionary, 5)).toBeUndefined();
    expect(takeRunsHere(bytes, runs, dictionary.slice(), 5)).toBeUndefined();
    expect(takeRunsHere(bytes, runs, viewOf("int16", dictionary.buffer, dictionary.byteOffset, 2), 5)).toBeUndefined();
    expect(takeRunsHere(bytes, { ...runs, width: 25 }, dictionary, 5)).toBeUndefined();
    expect(takeRunsHere(bytes, { ...runs, end: 3 }, dictionary, 5)).toBeUndefined();
    expect(() => takeRunsHere(bytes, runs, dictionary, 5)?.take(new Float32Array(5))).toThrow(TypeError);
    expect(() => {
      takeRunsHere(bytes, runs, dictionary, 5)?.take(dictionaryOf("int64", 5));
    }).toThrow(TypeError);
  });
});

/** The numbers of runs, one after the other; undefined: they are damaged. */
function runsInJs(
  bytes: Uint8Array,
  { width, count, entries }: { width: number; count: number; entries: number },
): number[] | undefined {
  const numbers = new Uint32Array(count);
  try {
    readRuns(bytes, { at: 0, end: bytes.length, width }, numbers, count);
  } catch {
    return undefined;
  }
  return numbers.every((number) => number < entries) ? [...numbers] : undefined;
}

test.each([
  ["float32", 90],
  ["float64", 90],
  ["float32", 300],
] as const)("runs that are damaged are refused by both loops, or say the same to both: %s, of %i", (kind, entries) => {
  const dictionary = dictionaryOf(kind, entries);
  let refused = 0;
  for (let round = 0; round < 3000; round += 1) {
    const width = 7 + below(2);
    const { bytes, numbers } = anyRuns(random, width, 90);
    const count = Math.max(1, numbers.length + (random() < 0.3 ? below(20) - 10 : 0));
    for (let flips = below(3); flips > 0; flips -= 1) {
      bytes[below(bytes.length)] = random() < 0.5 ? below(256) : 255;
    }
    const cut = cutShort(bytes, 0.3);
    const expected = runsInJs(cut, { width, count, entries });
    let found: Values | undefined = roomFor(kind, count);
    try {
      takeRunsHere(cut, { at: 0, end: cut.length, width }, dictionary, count)?.take(found);
    } catch (error) {
      expect(error).toBeInstanceOf(RangeError);
      found = undefined;
      refused += 1;
    }
    expect(found && [...bitsOf(found)]).toEqual(
      expected?.flatMap((number) => Array.from(bitsOf(dictionary.subarray(number, number + 1)))),
    );
  }
  expect(refused).toBeGreaterThan(500);
});

/** Heads of a run of four, and what comes before them, that no reader takes: of one bit a number, or of two. */
const wrongHeads = [
  { what: "of more than 32 bits, whose last ones say 8", runs: [0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 1] },
  { what: "behind a run of none", runs: [0, 1, 8, 1] },
  { what: "behind a packed run of none", runs: [1, 8, 1] },
  { what: "that is said behind the end", runs: [4, 1], behind: [4, 1] },
  { what: "whose number is said behind the end", runs: [8], behind: [1] },
  { what: "whose bits are said behind the end", runs: [3], behind: [15] },
];

describe("a run is refused", () => {
  test.each(wrongHeads)("$what", ({ runs, behind = [] }) => {
    const bytes = here([...runs, ...behind]).subarray(0, runs.length);
    const dictionary = dictionaryOf("float32", 4);
    for (const width of [1, 2]) {
      expect(runsInJs(bytes, { width, count: 4, entries: 4 })).toBeUndefined();
      expect(() => takeRunsHere(bytes, { at: 0, end: runs.length, width }, dictionary, 4)).toThrow(RangeError);
    }
    expect(bitsIn(bytes, 4).ones).toBeUndefined();
  });
});

/** `ones` undefined: they are refused. */
function bitsIn(bytes: Uint8Array, count: number): { ones: number | undefined; bits: number[] } {
  const target = takeMemory(count + bitsSpareBytes + 1).fill(9);
  const room = target.subarray(0, count + bitsSpareBytes);
  let ones: number | undefined;
  try {
    ones = readBits(bytes, room, count);
  } catch (error) {
    expect(error).toBeInstanceOf(RangeError);
  }
  expect(target.at(-1)).toBe(9);
  return { ones, bits: [...target.subarray(0, count)] };
}

test("numbers of one bit are read and counted as one after the other, or refused by both", () => {
  let refused = 0;
  for (let round = 0; round < 3000; round += 1) {
    const { bytes, count } = damagedBits(random);
    const cut = cutShort(bytes, 0.1);
    const expected = runsInJs(cut, { width: 1, count, entries: 2 });
    const { ones, bits } = bitsIn(cut, count);
    expect(ones).toBe(expected?.reduce<number>((sum, bit) => sum + bit, 0));
    refused += ones === undefined ? 1 : 0;
    if (ones !== undefined) {
      expect(bits).toEqual(expected);
      expect(countOnesHere(here(bits, 3).subarray(3))).toBe(ones);
    }
  }
  expect(refused).toBeGreaterThan(200);
});

test("numbers of one bit need a little room behind them, in memory that loops reach", () => {
  const bytes = here(repeatedRun(1, 5, 1));
  expect(readBits(bytes, takeMemory(5 + bitsSpareBytes), 5)).toBe(5);
  expect(() => readBits(bytes, takeMemory(5), 5)).toThrow(RangeError);
  expect(() => readBits(bytes.slice(), takeMemory(20), 5)).toThrow(RangeError);
  expect(() => readBits(bytes, new Uint8Array(20), 5)).toThrow(RangeError);
});

describe("values are put among NULLs", () => {
  test.each(["float32", "int64"] as const)("%s", (kind) => {
    for (let round = 0; round < 200; round += 1) {
      const rows = below(70);
      const share = random();
      const present = Array.from({ length: rows }, () => (random() < share ? 1 : 0));
      const count = present.reduce<number>((sum, one) => sum + one, 0);
      const values = dictionaryOf(kind, rows + 1);
      const before = [...bitsOf(values)];
      const size = bytesPerElement(kind);
      spreadHere(values.subarray(0, rows), count, here(present));
      let next = 0;
      const expected = present.flatMap((one) => {
        next += one;
        return one === 1 ? before.slice((next - 1) * size, next * size) : Array.from({ length: size }, () => 0);
      });
      expect([...bitsOf(values)]).toEqual([...expected, ...before.slice(rows * size)]);
    }
  });

  test("page loops refuse targets in other memory or without spare bytes", () => {
    const values = dictionaryOf("float32", 4);
    const valid = here([1, 0, 1, 0]);
    expect(() => {
      spreadHere(values, 2, valid.slice());
    }).toThrow(TypeError);
    expect(() => {
      spreadHere(values.subarray(0, 3), 2, valid);
    }).toThrow(TypeError);
    expect(() => countOnesHere(new Uint8Array(3))).toThrow(TypeError);
  });
});
