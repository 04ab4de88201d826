import { expect, test } from "vitest";
import { findZeros } from "#src/columns/loops/page-loops.js";
import { takeMemory } from "#src/columns/loops/vectors.js";
import { readRuns } from "#src/formats/parquet/pages/runs.js";
import { damagedBits } from "../../support/parquet-runs.js";
import { randomOf } from "../../support/random.js";

const random = randomOf(12);
const below = (limit: number): number => Math.floor(random() * limit);

/** The same, one number after the other; undefined: the runs are refused. */
function zerosOf(bytes: Uint8Array, count: number): number[] | undefined {
  const bits = new Uint8Array(count);
  try {
    readRuns(bytes, { at: 0, end: bytes.length, width: 1 }, bits, count);
  } catch {
    return undefined;
  }
  return [...bits].flatMap((bit, at) => (bit === 0 ? [at] : []));
}

/** What the loops find; undefined: they refuse the runs. */
function found<T>(find: () => T): T | undefined {
  try {
    return find();
  } catch (error) {
    expect(error).toBeInstanceOf(RangeError);
    return undefined;
  }
}

/** The places of zeros, where there is room for so many. */
function zerosHere(
  bytes: Uint8Array,
  { count, room }: { readonly count: number; readonly room: number },
): number[] | undefined {
  const { buffer, byteOffset } = takeMemory((room + 1) * 4).fill(9);
  const target = new Uint32Array(buffer, byteOffset, room + 1);
  const zeros = found(() => findZeros(bytes, target.subarray(0, room), count));
  expect(target[room]).toBe(0x09090909);
  return zeros === undefined ? undefined : [...target.subarray(0, zeros)];
}

test("the zeros among numbers of one bit are found as one after the other, or refused by both", () => {
  let refused = 0;
  for (let round = 0; round < 3000; round += 1) {
    const { bytes, count } = damagedBits(random);
    const cut = takeMemory(bytes.length).subarray(0, random() < 0.1 ? below(bytes.length) : bytes.length);
    cut.set(bytes.slice(0, cut.length));
    const expected = zerosOf(cut, count);
    expect(zerosHere(cut, { count, room: expected?.length ?? count })).toEqual(expected);
    expect(found(() => findZeros(cut, undefined, count))).toBe(expected?.length);
    refused += expected === undefined ? 1 : 0;
    if (expected !== undefined) {
      expect(zerosHere(cut, { count, room: expected.length + 1 })).toBeUndefined();
      expect(expected.length > 0 ? zerosHere(cut, { count, room: expected.length - 1 }) : undefined).toBeUndefined();
    }
  }
  expect(refused).toBeGreaterThan(200);
});

test("zeros are refused where loops do not reach the runs or the target", () => {
  const bytes = takeMemory(2);
  bytes.set([16, 0]);
  expect(findZeros(bytes, undefined, 8)).toBe(8);
  expect(() => findZeros(bytes.slice(), undefined, 8)).toThrow(RangeError);
  expect(() => findZeros(bytes, new Uint32Array(8), 8)).toThrow(RangeError);
});
