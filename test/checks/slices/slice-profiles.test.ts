import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { planSlices } from "#src/checks/slices/slice-plan.js";
import { mergeSlices, profileSlices, type SliceProfiles } from "#src/checks/slices/slice-profiles.js";
import { parseSlices, publicSlices, slicesJson } from "#src/checks/slices/slices-json.js";
import type { Column, ColumnType, OutputRows } from "#src/columnar/types.js";
import { sealedProfile } from "#src/sink/sealing.js";

function texts(values: readonly (string | null)[]): Column {
  const encoded = values.map((value) => new TextEncoder().encode(value ?? ""));
  const offsets = new Uint32Array(values.length + 1);
  for (const [index, bytes] of encoded.entries()) {
    offsets[index + 1] = (offsets[index] as number) + bytes.length;
  }
  const valid = Uint8Array.from(values, (value) => (value === null ? 0 : 1));
  return { kind: "bytes", offsets, bytes: Uint8Array.from(Buffer.concat(encoded)), valid };
}

const score = (values: readonly number[]): { name: string; type: ColumnType; column: Column } => ({
  name: "score",
  type: "float64",
  column: { kind: "fixed", elementsPerValue: 1, data: Float64Array.from(values), valid: undefined },
});

function rowsOf(countries: readonly (string | null)[], from = 0): OutputRows {
  return {
    rowCount: countries.length,
    columns: [
      { name: "country", type: "utf8", column: texts(countries) },
      score(countries.map((_, row) => from + row)),
    ],
  };
}

const plan = { columns: ["country"], outputs: ["score"], values: 4 };

/** Of each slice, its rows and the sum of its scores. */
function told(slices: SliceProfiles): unknown {
  return [...publicSlices(slices)].map(([slice, columns]) => {
    const profile = columns.get("score");
    return [slice, profile?.rows, profile?.kind === "numbers" ? [profile.numbers.min, profile.numbers.max] : undefined];
  });
}

test("a slice has the rows of one value or of NULL, and slices of fewer than 20 rows are not published", () => {
  const countries = Array.from({ length: 60 }, (_, row) => (row % 3 === 0 ? "FR" : row % 3 === 1 ? null : "D\u0007"));
  const slices = profileSlices(rowsOf([...countries, "US"]), plan);
  expect(told(slices)).toEqual([
    ["country is NULL", 20, [1, 58]],
    ["country=D\\x07", 20, [2, 59]],
    ["country=FR", 20, [0, 57]],
  ]);
});

test("slices do not depend on how rows are divided or merged, and survive JSON", () => {
  const countries = Array.from({ length: 90 }, (_, row) => ["FR", "DE", "US", null][((row * row) % 7) % 4] ?? null);
  const whole = JSON.stringify(slicesJson(profileSlices(rowsOf(countries), plan)));
  for (const size of [1, 13, 40]) {
    const parts = Array.from({ length: Math.ceil(90 / size) }, (_, part) => {
      const rows = countries.slice(part * size, (part + 1) * size);
      return parseSlices(JSON.parse(JSON.stringify(slicesJson(profileSlices(rowsOf(rows, part * size), plan)))));
    });
    expect(JSON.stringify(slicesJson(parts.reduce(mergeSlices)))).toBe(whole);
    expect(JSON.stringify(slicesJson(parts.toReversed().reduce(mergeSlices)))).toBe(whole);
  }
});

test("a column with too many values, or with a long value, has no slices", () => {
  const many = profileSlices(rowsOf(["a", "b", "c", "d", "e"]), plan);
  const few = profileSlices(rowsOf(["a", "b", "c"]), plan);
  const others = profileSlices(rowsOf(["d", "e"]), plan);
  const long = profileSlices(rowsOf(["x".repeat(65)]), plan);
  for (const slices of [many, long, mergeSlices(few, others), mergeSlices(few, many), mergeSlices(many, few)]) {
    expect(slices.columns.get("country")).toBe(undefined);
  }
  expect(few.columns.get("country")?.size).toBe(3);
  const again = parseSlices(JSON.parse(JSON.stringify(slicesJson(mergeSlices(many, few)))));
  expect([again.columns.has("country"), again.columns.get("country")]).toEqual([true, undefined]);
});

test.each<[ColumnType, number[], string[]]>([
  ["bool", [1, 0, 1], ["true", "false"]],
  ["int32", [7, -7, 7], ["7", "-7"]],
])("slices of %s are named by the value", (type, values, names) => {
  const column: Column = { kind: "fixed", elementsPerValue: 1, data: Int32Array.from(values), valid: undefined };
  const slices = profileSlices({ rowCount: 3, columns: [{ name: "country", type, column }, score(values)] }, plan);
  expect([...(slices.columns.get("country")?.keys() ?? [])]).toEqual(names);
});

test("the JSON of the profiles of all slices stays within 64 KiB", () => {
  const outputs = Array.from({ length: 4 }, (_, index) => ({ name: `p${index}`, type: "float64" as const }));
  expect(planSlices(["a"], [{ name: "score", type: "float32" }])).toEqual({
    columns: ["a"],
    outputs: ["score"],
    values: 50,
  });
  expect(planSlices(["a", "b"], [{ name: "score", type: "float32" }]).values).toBe(25);
  const planned = planSlices(["country"], outputs);
  expect(planned.outputs.length).toBeGreaterThan(1);
  const rows = planned.values * 300;
  const values = Array.from(
    { length: rows },
    (_, row) => (row % 2 === 0 ? 1 : -1) * 10 ** ((row % 600) - 300) * Math.PI,
  );
  const profiled = profileSlices(
    {
      rowCount: rows,
      columns: [
        {
          name: "country",
          type: "utf8",
          column: texts(values.map((_, row) => `${row % planned.values}`.padStart(60, "c"))),
        },
        ...planned.outputs.map((name) => ({ ...score(values), name })),
      ],
    },
    planned,
  );
  expect(profiled.columns.get("country")?.size).toBe(planned.values);
  const privateProfile = JSON.stringify(slicesJson(profiled));
  expect(privateProfile.length).toBeLessThan(64 * 1024);
  const sealed = sealedProfile(randomBytes(32), { runId: "job", span: 0 }, { profile: "{}", privateProfile });
  expect(sealed?.length).toBeLessThan(64 * 1024);
});
