import { describe, expect, test } from "vitest";
import { binsFor, mergeProfiles, parseProfile, profileRows, profileText } from "#src/checks/profile/profile.js";
import { namedSlices, planSlices, profileSlices } from "#src/checks/profile/slices.js";
import type { NamedColumn } from "#src/columnar/types.js";
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

  test("a column with more values than slices are made of has none", () => {
    const plan = planSlices(["id"], [{ name: "column_0", type: "float64" }]);
    const id: NamedColumn = { name: "id", type: "utf8", column: textColumn(normals(rows).map(String)) };
    const slices = profileSlices({ rowCount: rows, columns: [column(0), id] }, plan);
    expect(slices.columns.get("id")).toBeUndefined();
  });
});
