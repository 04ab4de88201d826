import { describe, expect, test } from "vitest";
import { allocate, bytesPerElement, elementOf, type Values, viewOf } from "#src/columns/values.js";
import { takeMemory } from "#src/columns/loops/vectors.js";
import { type Cast, type MatrixColumn, packMatrix, type TakeValues } from "#src/flow/pack/direct.js";
import { randomOf } from "../../../support/random.js";

const inReach: TakeValues = (element, length) => {
  const piece = takeMemory(length * bytesPerElement(element));
  return viewOf(element, piece.buffer, piece.byteOffset, length);
};

/** More than are packed at once. */
const rows = 2500;
const random = randomOf(3);

const kinds = {
  copy: () => new Float32Array(rows).map(() => random() * 2 - 1),
  round: () => new Float64Array(rows).map(() => random() * 2 - 1),
  exact: () => new Int32Array(rows).map(() => random() * 1000 - 500),
  long: () => new BigInt64Array(rows).map(() => BigInt(Math.floor(random() * 1000 - 500))),
} satisfies Partial<Record<Cast, () => Values>>;

interface Case {
  readonly name: string;
  readonly casts: readonly (keyof typeof kinds)[];
  readonly odd: readonly { readonly column: number; readonly row: number; readonly value: number | bigint }[];
  /** Of these columns, a tenth. */
  readonly nulls?: readonly number[];
}

const four = <T>(one: T): T[] => [one, one, one, one];
const cases: readonly Case[] = [
  { name: "floats", casts: [...four("copy" as const), ...four("copy" as const), "copy"], odd: [] },
  { name: "doubles", casts: [...four("round" as const), ...four("round" as const), "round"], odd: [] },
  { name: "floats, then doubles", casts: [...four("copy" as const), ...four("round" as const)], odd: [] },
  { name: "one kind among others", casts: ["copy", "round", "exact", "copy", ...four("round" as const)], odd: [] },
  { name: "whole numbers", casts: ["exact", "long", "long", "exact", "long"], odd: [] },
  { name: "whole numbers with NULLs", casts: ["exact", "long", "copy", "round", "long"], odd: [], nulls: [0, 1, 4] },
  { name: "three columns", casts: ["copy", "round", "long"], odd: [], nulls: [0] },
  ...[0, 1100, rows - 1].flatMap((row): Case[] => [
    { name: `a float in row ${row} that is NaN`, casts: four("copy"), odd: [{ column: 2, row, value: Number.NaN }] },
    {
      name: `a double in row ${row} that is infinite`,
      casts: [...four("copy" as const), ...four("round" as const)],
      odd: [{ column: 6, row, value: Number.POSITIVE_INFINITY }],
    },
    { name: `a double in row ${row} that is no float`, casts: four("round"), odd: [{ column: 1, row, value: -1e39 }] },
    {
      name: `a whole number in row ${row} that no float is`,
      casts: ["exact", "long", "copy", "round", "copy"],
      odd: [{ column: 1, row, value: 2n ** 24n + 1n }],
      nulls: [1, 4],
    },
    {
      name: `a large whole number in row ${row} that a float is`,
      casts: ["exact", "long", "copy", "round"],
      odd: [{ column: 1, row, value: 2n ** 40n }],
    },
  ]),
];

describe.each(["bad_row", "nan"] as const)("vectors make the matrix that other loops make, NULL: %s", (missing) => {
  test.each(cases)("$name", ({ casts, odd, nulls = [] }) => {
    const columns = casts.map((cast, index): MatrixColumn => {
      const data: Values = kinds[cast]();
      for (const { row, value } of odd.filter(({ column }) => column === index)) {
        (data as Float32Array)[row] = value as number;
      }
      const valid = nulls.includes(index) ? new Uint8Array(rows).map(() => (random() < 0.1 ? 0 : 1)) : undefined;
      return { column: { kind: "fixed", elementsPerValue: 1, data, valid }, cast };
    });
    const reached = columns.map(({ column, cast }): MatrixColumn => {
      const data = inReach(elementOf(column.data), rows);
      (data as Float32Array).set(column.data as Float32Array);
      return { column: { ...column, data }, cast };
    });
    const range = { from: 3, to: rows };
    const expected = packMatrix("float32", columns, range, { missing });
    const made = packMatrix("float32", reached, range, { missing, take: inReach });
    expect(made.data).toEqual(expected.data);
    expect(made.valid).toEqual(expected.valid);
    expect(made.isFinite).toBe((casts.length > 3 && odd.every(({ row }) => row < range.from)) || undefined);
    expect(made.data).not.toEqual(allocate("float32", made.data.length));
  });
});
