import { describe, expect, test } from "vitest";
import {
  binsFor,
  mergeProfiles,
  namedSlices,
  parseProfile,
  planSlices,
  profileRows,
  profileSlices,
  profileText,
} from "#src/checks/profile/profile.js";
import type { NamedColumn } from "#src/columns/types.js";
import { textColumn } from "../../support/batches.js";
import { normals } from "../../support/run-profiles.js";

const rows = 4000;
const column = (index: number): NamedColumn => ({
  name: `column_${index}`,
  type: "float64",
  column: {
    kind: "fixed",
    elementsPerValue: 1,
    data: Float64Array.from(normals(rows, { seed: index + 1 })),
    valid: undefined,
  },
});

describe("the profile of a span", () => {
  test.each([1, 19, 64, 128])(
    "the JSON of %d columns of many values takes at most 64 KiB, and is read again",
    (many) => {
      const columns = Array.from({ length: many }, (_, index) => column(index));
      const bins = binsFor(many);
      const output = { rowCount: rows, columns: columns.slice(0, 1) };
      const all = profileRows({ rowCount: rows, columns }, { predicted: columns, carried: [], bins });
      const more = profileRows(
        { rowCount: rows, columns: columns.slice(64) },
        { predicted: columns.slice(64), carried: [], bins },
      );
      const profile = {
        ...profileRows(output, { predicted: [], carried: [], bins }),
        columns: all.columns,
        features: more.columns,
      };
      const text = profileText(profile);
      expect(text.length).toBeLessThanOrEqual(64 * 1024);
      expect(profileText(parseProfile(text))).toBe(text);
    },
  );

  test("slices are profiled by value, merged, and named from 20 rows on", () => {
    const plan = planSlices(["country"], [{ name: "column_0", type: "float64" }]);
    const country: NamedColumn = {
      name: "country",
      type: "utf8",
      column: textColumn(Array.from({ length: rows }, (_, row) => (row < 19 ? "IT" : row % 2 === 0 ? "DE" : "FR"))),
    };
    const output = { rowCount: rows, columns: [column(0), country] };
    const half = {
      ...profileRows(output, { predicted: [], carried: [], bins: 50 }),
      slices: profileSlices(output, plan),
    };
    const { slices } = parseProfile(profileText(mergeProfiles(half, half)));
    const named = namedSlices(slices ?? expect.fail());
    expect([...named.keys()]).toEqual(["country=DE", "country=FR", "country=IT"]);
    expect(named.get("country=IT")?.get("column_0")?.rows).toBe(38);
    expect([...namedSlices(half.slices).keys()]).toEqual(["country=DE", "country=FR"]);
  });

  test("as many values as slices are made of have one each, NULL among them, and more have none, nor do long ones", () => {
    const plan = { columns: ["country", "is_new", "age"], outputs: ["column_0"], values: 3 };
    const slicesOf = (countries: readonly (string | null)[]): (readonly [string, (string | null)[] | undefined])[] => {
      const at = countries.map((_, index) => index);
      const fixed = (data: Int32Array | Uint8Array): NamedColumn["column"] => ({ ...column(0).column, data }) as never;
      const columns: NamedColumn[] = [
        { name: "column_0", type: "int32", column: fixed(Int32Array.from(at)) },
        { name: "country", type: "utf8", column: textColumn(countries) },
        { name: "is_new", type: "bool", column: fixed(Uint8Array.from(at, (index) => index % 2)) },
        { name: "age", type: "int32", column: fixed(Int32Array.from(at, (index) => index % 3)) },
      ];
      const slices = profileSlices({ rowCount: countries.length, columns }, plan);
      return [...slices.columns].map(([name, values]) => [name, values && [...values.keys()]] as const);
    };
    expect(slicesOf(["FR", null, "DE", "FR"])).toEqual([
      ["country", ["FR", null, "DE"]],
      ["is_new", ["false", "true"]],
      ["age", ["0", "1", "2"]],
    ]);
    expect(slicesOf(["FR", null, "DE", "IT"])[0]).toEqual(["country", undefined]);
    expect(slicesOf(["F".repeat(65), "DE"])[0]).toEqual(["country", undefined]);
  });
});
