import { expect, test } from "vitest";
import { findZerosHere } from "#src/columnar/memory/page-loops.js";
import { takeMemory } from "#src/columnar/memory/vectors.js";
import { readRuns } from "#src/formats/parquet/pages/runs.js";
import { damagedBits } from "../../support/parquet-runs.js";
import { randomOf } from "../../support/random.js";

const random = randomOf(12);
const below = (limit: number): number => Math.floor(random() * limit);

/** The same by the loops in JavaScript; undefined: they refuse the runs. */
function zerosOf(bytes: Uint8Array, count: number): number[] | undefined {
  const bits = new Uint8Array(count);
  try {
    readRuns(bytes, { at: 0, end: bytes.length, width: 1 }, bits, count);
  } catch {
    return undefined;
  }
  return [...bits].flatMap((bit, at) => (bit === 0 ? [at] : []));
}

/** The places of zeros, where there is room for so many. */
function zerosHere(
  bytes: Uint8Array,
  { count, room }: { readonly count: number; readonly room: number },
): { readonly places: number[] } | undefined {
  const { buffer, byteOffset } = takeMemory((room + 1) * 4).fill(9);
  const target = new Uint32Array(buffer, byteOffset, room + 1);
  const found = findZerosHere(bytes, { at: 0, end: bytes.length }, target.subarray(0, room), count);
  expect(target[room]).toBe(0x09090909);
  return found === undefined ? undefined : { places: [...target.subarray(0, found)] };
}

test("the zeros among numbers of one bit are found as by the loops in JavaScript, or refused by both", () => {
  let refused = 0;
  for (let round = 0; round < 3000; round += 1) {
    const { bytes, count } = damagedBits(random);
    const cut = takeMemory(bytes.length).subarray(0, random() < 0.1 ? below(bytes.length) : bytes.length);
    cut.set(bytes.slice(0, cut.length));
    const expected = zerosOf(cut, count);
    const found = zerosHere(cut, { count, room: expected?.length ?? count });
    expect(found?.places).toEqual(expected);
    expect(findZerosHere(cut, { at: 0, end: cut.length }, undefined, count)).toBe(expected?.length);
    refused += found === undefined ? 1 : 0;
    if (expected !== undefined && expected.length > 0) {
      expect(zerosHere(cut, { count, room: expected.length - 1 })).toBeUndefined();
    }
  }
  expect(refused).toBeGreaterThan(200);
});
