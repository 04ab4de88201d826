import { describe, expect, test } from "vitest";
import { loadSpec } from "#src/spec/load.js";
import { load, minimalSpec, specRefusal } from "../support/spec.js";

const withChecks = (checks: string): string => `${minimalSpec}checks: ${checks}\n`;

describe("checks", () => {
  test("checks are off unless the spec has them, and {} has all defaults", () => {
    expect(load(minimalSpec).checks).toBeUndefined();
    expect(load(withChecks("{}")).checks).toEqual({
      on_fail: "hold",
      baseline: "published",
      rows: { min: 0.7, max: 3 },
      inputs: { psi: 1 },
      rejects: 0.01,
      outputs: {},
      expect: [],
    });
  });

  test("take percentages as shares of rows", () => {
    const { rows, rejects, outputs } =
      load(withChecks("{ rows: { min: 60%, max: 250% }, rejects: 0.5%, outputs: { score: { nulls: 0% } } }")).checks ??
      {};
    expect([rows, rejects, outputs]).toEqual([{ min: 0.6, max: 2.5 }, 0.005, { score: { nulls: 0 } }]);
  });

  test.each([
    ["{ on_fail: stop }", /checks\.on_fail/],
    ["{ rows: { min: 0.6 } }", /checks\.rows\.min: found 0\.6, expected a percentage such as 1%/],
    ["{ rejects: 0.01x }", /checks\.rejects.*expected a percentage such as 1%/],
    ["{ rejects: 101% }", /checks\.rejects.*at most 100%/],
    ["{ outputs: { score: { range: [1, 0] } } }", /checks\.outputs\.score\.range.*expected \[least, most\]/],
    ["{ unique: [id, id] }", /checks\.unique.*a column is named twice/],
    ["{ golden: { path: gold*.parquet } }", /checks\.golden\.path.*without wildcards/],
    ["{ golden: { path: a.parquet, atol: -1 } }", /checks\.golden\.atol.*expected a number from 0/],
    ["{ inputs: { nulls: 1 } }", /checks\.inputs\.nulls: unknown key/],
    ["{ expect: [{ reason: why }] }", /checks\.expect.*expected a param and its value next to reason/],
    ["{ expect: [{ day: 2026-11-27, reason: why }] }", /checks\.expect.*`day` is no param of this spec/],
  ])("refuse what they cannot do: %s", (checks, message) => {
    expect(specRefusal(withChecks(checks))).toMatch(message);
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

describe("the logical date", () => {
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
});

test("a param of type date has its default as value, and takes dates only", () => {
  const spec = `params: { ds: { type: date, default: "\${today}" } }\n${minimalSpec}`;
  expect(load(spec).params).toEqual({ ds: "2026-11-21" });
  expect(load(spec, { params: { ds: "2026-01-31" } }).params).toEqual({ ds: "2026-01-31" });
  expect(specRefusal(spec, { params: { ds: "20260131" } })).toMatch(
    /params\.ds: found 20260131, expected a date such as 2026-11-23/,
  );
});
