import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { matchColumns, type Measures } from "#src/checks/agreement.js";
import type { ColumnType } from "#src/columns/types.js";
import { openDuckDb } from "#src/duckdb/instance.js";
import { compareRows } from "#src/duckdb/row-join.js";
import { projectFolder, runHere } from "../support/cli.js";
import { lastJson } from "../support/nights.js";

const golden = join(projectFolder, "fixtures/agreement");

async function measured(
  pairs: readonly (readonly [string, string])[],
  [a, b]: readonly [ColumnType, ColumnType],
  tolerance = 0.25,
): Promise<Measures | undefined> {
  using duckdb = await openDuckDb({ threads: 2, allowed: {} });
  const connection = await duckdb.connect();
  for (const [index, side] of ["a", "b"].entries()) {
    const rows = pairs.map((pair, row) => `SELECT ${row}::BIGINT AS _row, ${pair[index]} AS score`).join(" UNION ALL ");
    await connection.run(`CREATE TEMP TABLE ${side} AS ${rows}`);
  }
  const columns = { a: [{ name: "score", type: a }], b: [{ name: "score", type: b }] };
  const found = await compareRows(
    { connection, memoryBytes: 2 ** 30, columns },
    { key: ["_row"], columns: [{ name: "score", a, b }], shown: [], tolerance },
  );
  connection.closeSync();
  return new Map(found.columns).get("score");
}

const float32s = (values: readonly (readonly [number | string, number | string])[]) =>
  measured(
    values.map(([a, b]) => [`${a}::FLOAT`, `${b}::FLOAT`] as const),
    ["float32", "float32"],
  );

describe("numbers", () => {
  test("two columns of numbers are compared by differences, rank correlation and rows beyond the tolerance", async () => {
    const found = await float32s([
      [1, 1],
      [2, 2.5],
      [3, 3.25],
      [4, 4],
      [5, 3],
    ]);
    // scipy.stats.spearmanr([1, 2, 3, 4, 5], [1, 2.5, 3.25, 4, 3]).statistic
    expect(found?.rows).toBe(5);
    expect(found?.figures).toMatchObject({
      median_difference: 0.25,
      largest_difference: 2,
      rows_beyond_tolerance: 2,
      mean_difference: expect.closeTo(0.55, 12),
      rank_correlation: expect.closeTo(0.7, 12),
    });
    expect(found?.most.map(({ row, distance }) => [row, distance])).toEqual([
      [4, 2],
      [1, 0.5],
      [2, 0.25],
    ]);
  });

  test("a number differs from NULL, NaN and infinity by more than every tolerance, and each of these equals itself", async () => {
    const found = await float32s([
      [1, "NULL"],
      ["NULL", "NULL"],
      ["'NaN'", "'NaN'"],
      ["'inf'", "'inf'"],
      ["'inf'", "'-inf'"],
    ]);
    expect(found?.figures).toMatchObject({ rows_beyond_tolerance: 2, mean_difference: null, rank_correlation: null });
    expect(found?.most).toEqual([
      { row: 0, distance: null, one: "1", other: "NULL" },
      { row: 4, distance: null, one: "Infinity", other: "-Infinity" },
    ]);
  });

  test("float32 and float64 predictions are compared by their values", async () => {
    const pairs = [
      ["1::FLOAT", "1::DOUBLE"],
      ["2::FLOAT", "2.5::DOUBLE"],
    ] as const;
    expect(await measured(pairs, ["float32", "float64"])).toMatchObject({
      figures: { largest_difference: 0.5, rows_beyond_tolerance: 1 },
    });
  });
});

test("two columns of labels are compared by the rows that are equal and a table of flips, the most frequent first", async () => {
  const pairs = ["aa", "ab", "ba", "ba", "cc"].map(([a, b]) => [`'${a}'`, `'${b}'`] as const);
  const found = await measured(pairs, ["utf8", "utf8"]);
  expect(found).toMatchObject({
    rows: 5,
    figures: { rows_equal: 2 },
    flips: [
      { one: '"b"', other: '"a"', rows: 2 },
      { one: '"a"', other: '"b"', rows: 1 },
    ],
  });
  expect(found?.most.map(({ row }) => row)).toEqual([1, 2, 3]);
});

test("integer labels of different widths are equal when their numbers are", async () => {
  const pairs = [
    ["9007199254740993::BIGINT", "9007199254740993::UBIGINT"],
    ["9007199254740993::BIGINT", "9007199254740992::UBIGINT"],
  ] as const;
  expect(await measured(pairs, ["int64", "uint64"])).toMatchObject({ figures: { rows_equal: 1 } });
});

test("two columns of vectors are compared by the mean and the lowest cosine, and vectors without a direction are counted", async () => {
  const list: ColumnType = { kind: "list", element: "float32" };
  const pairs = [
    ["[1, 0]", "[0, 2]"],
    ["[1, 1]", "[2, 2]"],
    ["[0, 0]", "[0, 1]"],
    ["[1]", "[1, 1]"],
    ["[0, 0]", "[0, 0]"],
    ["[1, NULL]", "[1, 1]"],
    ["NULL", "NULL"],
  ].map(([a, b]) => [`${a}::FLOAT[]`, `${b}::FLOAT[]`] as const);
  const found = await measured(pairs, [list, list]);
  expect(found).toMatchObject({
    rows: 7,
    figures: { lowest_cosine: 0, rows_without_cosine: 3, mean_cosine: expect.closeTo(2 / 3, 12) },
  });
  expect(found?.most.map(({ row }) => row)).toEqual([2, 3, 5, 0]);
});

test.each([["id"], ["customer"]])("what diff says by key %s is what pandas says, to 1e-9", async (key) => {
  const expected = JSON.parse(readFileSync(join(golden, "golden.json"), "utf8"));
  const args = ["--key", key, "--tolerance", "0.1", "--json"];
  const found = await runHere(["diff", join(golden, "b"), "--against", join(golden, "a"), ...args]);
  const { outputs, ...rows } = lastJson(found) as { outputs: Record<string, Record<string, number>> };
  expect(rows).toMatchObject(expected.rows);
  for (const name of ["score", "amount"]) {
    for (const [figure, value] of Object.entries(expected[name])) {
      expect(Math.abs(Number(outputs[name]?.[figure]) - Number(value)), `${name} ${figure}`).toBeLessThan(1e-9);
    }
  }
  expect(outputs["label"]).toMatchObject({ rows_equal: expected.label_equal });
});

test("columns that only one side has, or whose types differ, are reported and not compared", () => {
  const one = [
    { name: "score", type: "float32" as const },
    { name: "label", type: "int64" as const },
    { name: "old", type: "utf8" as const },
  ];
  const other = [
    { name: "label", type: "utf8" as const },
    { name: "score", type: "float64" as const },
    { name: "vector", type: { kind: "list", element: "float32" } as const },
  ];
  expect(matchColumns(one, other)).toEqual({
    compared: [{ name: "score", a: "float32", b: "float64" }],
    apart: [
      { name: "label", reason: "int64 in A, utf8 in B" },
      { name: "old", reason: "only A has it (utf8)" },
      { name: "vector", reason: "only B has it (list<float32>)" },
    ],
  });
});
