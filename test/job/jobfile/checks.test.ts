import { describe, expect, test } from "vitest";
import { loadSpec } from "#src/job/jobfile/load.js";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const withChecks = (checks: string): string => `${minimalSpec}checks: ${checks}\n`;

function listed(values: string): unknown {
  const limits = load(withChecks(`{ outputs: { s: { in: ${values} } } }`)).checks?.outputs["s"];
  return limits === undefined || limits === "ignore" ? undefined : limits.in;
}

describe("checks", () => {
  test("checks are off unless the spec has them, and {} has all defaults", () => {
    expect(load(minimalSpec).checks).toBeUndefined();
    expect(load(withChecks("{}")).checks).toEqual({
      on_fail: "hold",
      baseline: "published",
      factor: 4,
      inputs: {},
      rejects: 0.01,
      outputs: {},
      expect: [],
    });
  });

  test("checks take percentages as shares of rows", () => {
    const { rejects, outputs } =
      load(withChecks("{ rejects: 0.5%, outputs: { score: { nulls: 0% } } }")).checks ?? expect.fail();
    expect([rejects, outputs]).toEqual([0.005, { score: { nulls: 0 } }]);
  });

  test("checks take a factor for all columns, and one for a column, or leave it out", () => {
    const { factor, inputs, outputs } =
      load(withChecks("{ factor: 5, inputs: { temp: { factor: 10 }, day: ignore }, outputs: { s: ignore } }")).checks ??
      expect.fail();
    expect([factor, inputs, outputs]).toEqual([5, { temp: { factor: 10 }, day: "ignore" }, { s: "ignore" }]);
  });

  test.each([
    ["{ on_fail: stop }", /checks\.on_fail/],
    ["{ rejects: 0.01x }", /checks\.rejects.*expected a percentage such as 1%/],
    ["{ rejects: 101% }", /checks\.rejects.*at most 100%/],
    [
      "{ outputs: { s: { range: [1, 0] } } }",
      /s\.range: found \[1, 0\], expected \[least, most\], .*: the least comes first/,
    ],
    ["{ outputs: { s: { range: 0..1 } } }", /s\.range: found "0\.\.1", expected \[least, most\], such as \[0, 1\]$/],
    ["{ outputs: { s: { range: [0] } } }", /s\.range: found \[0\], expected \[least, most\], such as \[0, 1\]$/],
    ["{ outputs: { s: { range: [0, 1, 2] } } }", /s\.range: found \[0, 1, 2\], expected \[least, most\]/],
    ["{ outputs: { s: { range: [] } } }", /s\.range: found a list, expected \[least, most\]/],
    ["{ factor: -1 }", /checks\.factor: found -1, expected a number greater than 0, such as 4$/],
    ["{ outputs: { s: { factor: 0 } } }", /s\.factor: found 0, expected a number greater than 0, such as 4$/],
    ["{ inputs: { s: 5 } }", /inputs\.s: found 5, expected a mapping such as \{ factor: 10 \}, or ignore$/],
    [
      "{ expect: [{ ds: 2026-11-27, reason: '' }] }",
      /expect\[0\]\.reason: found "", expected a text that is not empty$/,
    ],
    [
      '{ expect: [{ ds: 2026-11-27, reason: "a\\0" }] }',
      /reason: found "a.*", expected a text without NUL characters$/,
    ],
    ["{ outputs: { s: { in: [0.5] } } }", /s\.in\[0\]: found 0\.5, expected a text, a whole number, true or false$/],
    [
      "{ outputs: { s: { in: [late, 1] } } }",
      /s\.in: expected values of one type; write a number that is a text in quotes/,
    ],
    ["{ outputs: { s: { in: late } } }", /s\.in: found "late", expected a list of values, such as \[churn, stay\]$/],
    ["{ outputs: { s: { in: [] } } }", /s\.in: found a list, expected at least one value$/],
    ["{ golden: file }", /golden: found "file", expected a mapping such as \{ path: golden\.parquet \}$/],
    ["{ sql: text }", /sql: found "text", expected conditions by name, such as \{ some_rows: count\(\*\) > 0 \}$/],
    ["{ unique: id }", /unique: found "id", expected a list of columns, such as \[customer_id\]$/],
    ["{ unique: [] }", /unique: found a list, expected at least one column$/],
    ["{ slices: country }", /slices: found "country", expected a list of columns, such as \[country\]$/],
    ["{ slices: [a, b, c, d, e] }", /slices: expected at most 4 columns$/],
    ["", /checks: found null, expected a mapping; `checks: \{\}` has all defaults$/],
    ["{ unique: [id, id] }", /checks\.unique.*a column is named twice/],
    ["{ golden: { path: gold*.parquet } }", /checks\.golden\.path.*without wildcards/],
    ["{ golden: { path: a.parquet, atol: -1 } }", /checks\.golden\.atol.*expected a number from 0/],
    ["{ inputs: { s: { nulls: 1 } } }", /checks\.inputs\.s\.nulls: unknown key/],
    ["{ expect: [{ reason: why }] }", /checks\.expect.*expected a param and its value next to reason/],
    [
      "{ expect: [{ day: 2026-11-27, reason: why }] }",
      /checks\.expect.*`day` is no param of this spec, which has no params$/,
    ],
  ])("checks refuse settings that they cannot carry out: %s", (checks, message) => {
    expect(specRefusal(withChecks(checks))).toMatch(message);
  });

  test("a key of expect that is no param is refused with the params that the spec has", () => {
    const spec = `params: { ds: "\${today}", region: EU }\n${withChecks("{ expect: [{ date: 2026-11-27, reason: why }] }")}`;
    expect(specRefusal(spec)).toMatch(/`date` is no param of this spec; its params are ds, region$/);
    expect(specRefusal(spec.replace("date: ", "regoin: "))).toMatch(/spec; did you mean `region`\?$/);
  });

  test("values of one type are listed, also numbers and truths as texts", () => {
    expect([listed("[1, -2]"), listed("[true]"), listed('["1", late]')]).toEqual([
      ["1", "-2"],
      ["true"],
      ["1", "late"],
    ]);
  });

  test.each(["2026-11-5", "2026-13-17"])("a date in expect that no run has is refused: %s", (date) => {
    const spec = `params: { ds: "\${today}" }\n${withChecks(`{ expect: [{ ds: ${date}, reason: why }] }`)}`;
    expect(specRefusal(spec)).toMatch(new RegExp(`checks\\.expect.*\`ds\` is a date such as .*, and ${date} is not`));
  });

  test("checks that hold a run replace the default of max_rejects", () => {
    const limits = ["", "checks: {}\n", "checks: { on_fail: warn }\n", "checks: {}\nmax_rejects: 5\n"].map(
      (more) => load(minimalSpec + more).max_rejects,
    );
    expect(limits).toEqual(["0.1%", "100%", "0.1%", 5]);
  });
});

function dateParamOf(params: string, given: Record<string, string> = {}): string | undefined {
  return loadSpec(`params: ${params}\n${minimalSpec}`, { file: "job.yaml", params: given, env: {}, nowMs: 0 })
    .dateParam;
}

test.each([
  ["{ ds: '${today}' }", "ds"],
  ["{ region: EU, day: '${yesterday}' }", "day"],
  ["{ region: EU }", undefined],
  ["{ file: 'x-${today}' }", undefined],
  ["{ ds: { type: date, default: '${today}' }, other: '${yesterday}' }", "ds"],
  ["{ other: '${today}', ds: { type: date, default: 2026-01-31 } }", "ds"],
  ["{ region: { type: enum, values: [a], default: a }, ds: '${today - 2d}' }", "ds"],
  ["{ top: { type: integer, default: 1 }, file: '${DS:-today}' }", undefined],
])("the logical date of %s is the param %s, whether a date is given or not", (params, name) => {
  expect(dateParamOf(params)).toBe(name);
  const given = name === undefined ? {} : { [name]: "2026-11-20" };
  expect(dateParamOf(params, given)).toBe(name);
});

test("a param of type date has its default as value, and takes dates only", () => {
  const spec = `params: { ds: { type: date, default: "\${today}" } }\n${minimalSpec}`;
  expect(load(spec).params).toEqual({ ds: "2026-11-21" });
  expect(load(spec, { params: { ds: "2026-01-31" } }).params).toEqual({ ds: "2026-01-31" });
  expect(specRefusal(spec, { params: { ds: "20260131" } })).toMatch(
    /params\.ds: found 20260131, expected a date such as 2026-11-23/,
  );
});
