import { describe, expect, test } from "vitest";
import type { Column } from "#src/columns/types.js";
import { createKeyHasher, addStored, createStoredTable, findStored, noPlace } from "#src/flow/pack/feature-hasher.js";
import { randomOf } from "../../support/random.js";

/** The hash of a key or a row, by its number. Keys whose numbers differ by 1,000 share a slot; by 10,000, all that a slot keeps. */
function hashesOf(numbers: readonly number[], of: "key" | "row"): Int32Array {
  return Int32Array.from(
    numbers.flatMap((number) =>
      of === "row"
        ? [number, Math.imul(number, 0x9e3779b1), 7, number ^ 0x55]
        : [Math.imul(number % 1000, 0x85ebca6b), number % 10_000, number, 0],
    ),
  );
}

interface Named {
  readonly key: number;
  readonly row: number;
}

function both(rows: readonly Named[]): { readonly keys: Int32Array; readonly rows: Int32Array } {
  return {
    keys: hashesOf(
      rows.map(({ key }) => key),
      "key",
    ),
    rows: hashesOf(
      rows.map(({ row }) => row),
      "row",
    ),
  };
}

function expectedPlaces(stored: readonly Named[], wanted: readonly Named[]): number[] {
  const places = new Map<number, number[]>();
  stored.forEach(({ key }, place) => places.set(key, [...(places.get(key) ?? []), place]));
  return wanted.map(({ key, row }) => {
    const [place = noPlace, ...others] = places.get(key) ?? [];
    return others.length === 0 && stored[place]?.row === row ? place : noPlace;
  });
}

function tableOf(
  stored: readonly Named[],
  pieceRows: number,
): { find: (wanted: readonly Named[]) => number[]; keys: number } {
  const table = createStoredTable(stored.length);
  let keys = 0;
  for (let from = 0; from < stored.length; from += pieceRows) {
    keys += addStored(table, from, both(stored.slice(from, from + pieceRows)));
  }
  return { find: (wanted) => [...findStored(table, both(wanted), undefined)], keys };
}

function shuffled<T>(random: () => number, values: readonly T[]): T[] {
  return values
    .map((value) => ({ value, at: random() }))
    .toSorted((one, other) => one.at - other.at)
    .map(({ value }) => value);
}

describe("stored rows in memory", () => {
  test("a stored row is found by its hash where its key came once, in any order of the rows", () => {
    const random = randomOf(3);
    for (let round = 0; round < 60; round += 1) {
      const stored = Array.from({ length: 1 + Math.floor(random() * 900) }, () => {
        const key = Math.floor(random() * 5000);
        return { key, row: key * 2 };
      });
      const changed = stored.map(({ key, row }) => ({ key, row: random() < 0.1 ? row + 1 : row }));
      const added = changed.flatMap((row) => (random() < 0.05 ? [{ key: row.key + 5000, row: 1 }, row] : [row]));
      const { find, keys } = tableOf(stored, 1 + Math.floor(random() * 200));

      for (const wanted of [changed, added, shuffled(random, added), added.toReversed()]) {
        expect(find(wanted)).toEqual(expectedPlaces(stored, wanted));
      }
      expect(keys).toBe(expectedPlaces(stored, stored).filter((place) => place !== noPlace).length);
    }
  });

  test("no stored row is found for keys that a slot cannot distinguish", () => {
    const stored = [1, 2, 10_001].map((key) => ({ key, row: key }));
    expect(tableOf(stored, 3).find(stored)).toEqual([noPlace, 1, noPlace]);
  });

  test.each([
    ["numbers in order", (row: number) => BigInt(row) - 500n],
    ["multiples of 64", (row: number) => BigInt(row) * 64n],
    ["numbers in disorder", (row: number) => BigInt.asIntN(64, BigInt(row) * 0x9e3779b97f4a7c15n)],
  ])("each key that is stored once is found among keys that are %s", (_, keyOf) => {
    const count = 5000;
    const data = BigInt64Array.from({ length: count }, (__, row) => keyOf(row));
    const key: Column = { kind: "fixed", elementsPerValue: 1, data, valid: undefined };
    const keys = createKeyHasher(Int32Array.of(1, 2, 3, 4))([key], count);
    const rows = hashesOf(
      Array.from({ length: count }, (__, row) => row),
      "row",
    );
    const table = createStoredTable(count);
    expect(addStored(table, 0, { keys, rows })).toBe(count);
    expect([...findStored(table, { keys, rows }, undefined)]).toEqual([...rows].filter((__, at) => at % 4 === 0));
    expect(addStored(table, 0, { keys, rows })).toBe(-count);
    expect(findStored(table, { keys, rows }, undefined).every((place) => place === noPlace)).toBe(true);
  });

  test("a row without a key finds no stored row, though its hash is there", () => {
    const rows = [1, 2, 3].map((key) => ({ key, row: key }));
    const table = createStoredTable(3);
    addStored(table, 0, both(rows));
    expect([...findStored(table, both(rows), Uint8Array.of(1, 0, 1))]).toEqual([0, noPlace, 2]);
  });

  test("a table of no rows finds nothing", () => {
    expect(tableOf([], 1).find([{ key: 1, row: 0 }])).toEqual([noPlace]);
  });
});
