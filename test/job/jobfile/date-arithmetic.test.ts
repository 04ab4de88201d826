import { assert, date as anyDate, integer, property } from "fast-check";
import { describe, expect, test } from "vitest";
import { computeDate, parseDateExpression } from "#src/job/jobfile/template.js";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

function compute(body: string, date: string): string | undefined {
  const parsed = parseDateExpression(body);
  return parsed && computeDate(date, parsed);
}

test.each([
  ["ds - 7d", "2026-11-03", "2026-10-27"],
  ["ds + 1d", "2028-02-28", "2028-02-29"],
  ["ds - 2w", "2026-01-01", "2025-12-18"],
  ["ds - 1mo", "2026-03-31", "2026-02-28"],
  ["ds + 13mo", "2026-01-31", "2027-02-28"],
  ["ds - 1y", "2028-02-29", "2027-02-28"],
  ["start_of_month(ds)", "2026-11-23", "2026-11-01"],
  ["start_of_month(ds) - 1d", "2026-03-23", "2026-02-28"],
  ["start_of_week(ds)", "2026-11-23", "2026-11-23"],
  ["start_of_week(ds)", "2026-11-22", "2026-11-16"],
  ["start_of_week(start_of_year(ds) - 1mo) + 1w", "2026-06-15", "2025-12-08"],
  ["start_of_year(ds)", "0099-06-15", "0099-01-01"],
  ["ds + 1y", "9999-01-01", undefined],
  ["ds - 1d", "0001-01-01", undefined],
])("%s of %s is %s", (body, date, result) => {
  expect(compute(body, date)).toBe(result);
});

test.each([
  "ds-7d",
  "ds - 7",
  "ds - 7h",
  "ds - d",
  "- 7d",
  "start_of_day(ds)",
  "start_of_month(ds",
  "ds * 2d",
  "",
  `ds${" + 1d".repeat(60)}`,
])("%s is no date expression", (body) => {
  expect(parseDateExpression(body)).toBeUndefined();
});

test("days, weeks and starts of weeks agree with counting days one by one", () => {
  const dates = anyDate({ min: new Date("1900-01-01"), max: new Date("2200-01-01"), noInvalidDate: true });
  assert(
    property(dates, integer({ min: 0, max: 99_999 }), (date, days) => {
      const start = date.toISOString().slice(0, 10);
      const later = new Date(Date.parse(start) + days * 86_400_000).toISOString();
      const expected = later.startsWith("+") ? undefined : later.slice(0, 10);
      expect(compute(`ds + ${days}d`, start)).toBe(expected);
      const monday = compute("start_of_week(ds)", start) ?? "";
      expect(new Date(monday).getUTCDay()).toBe(1);
      expect((Date.parse(start) - Date.parse(monday)) / 86_400_000).toBeOneOf([0, 1, 2, 3, 4, 5, 6]);
    }),
  );
});

const withPath = (path: string, params: string): string =>
  `${minimalSpec.replace("in/*.parquet", () => `"${path}"`)}params: ${params}\n`;

describe("in a spec", () => {
  test("dates are computed from params, the clock and the environment", () => {
    const text = withPath(
      "in/${ds - 1d}/${today - 1w}/${start_of_month(ds)}/${DAY + 1d}",
      '{ ds: "${today - 1d}", before: "${ds - 1mo}" }',
    );
    const spec = load(text, { env: { DAY: "2026-01-31" } });
    expect(spec.params).toEqual({ ds: "2026-11-20", before: "2026-10-20" });
    expect(spec.input.path).toEqual(["in/2026-11-19/2026-11-14/2026-11-01/2026-02-01"]);
  });

  test("computed dates in SQL are text literals", () => {
    const text = `${minimalSpec}params: { ds: 2026-11-21 }\n`.replace(
      /path: \S*in\S*/,
      "$&\n  where: signup >= ${ds - 30d}",
    );
    expect(load(text).input.where).toBe("signup >= '2026-10-22'");
  });

  test.each([
    ["${ds-7d}", "found ${ds-7d}, expected ${name} or ${name:-default}, or for a date ${name - 7d} with blanks"],
    ["${region - 7d}", "${region - 7d} needs a date such as 2026-11-23, but the value of region is not a date"],
    ["${ds - 3000y}", "${ds - 3000y} is not in the years 1 to 9999"],
    ["${other - 1d}", "${other} is neither a param nor an environment variable"],
    ["${SECRET - 1d}", "but the value of SECRET is not a date"],
  ])("%s is refused", (reference, message) => {
    const refusal = specRefusal(withPath(`in/${reference}`, "{ ds: 2026-11-21, region: EU }"), {
      env: { SECRET: "hunter2" },
    });
    expect(refusal).toContain(message);
    expect(refusal).not.toContain("hunter2");
  });

  test("the hour of the clock is that of the job's zone", () => {
    const text = `${minimalSpec}timezone: Asia/Tokyo\nparams: { ds: "\${today}", hour: "\${hour}" }\n`;
    expect(load(text, { nowMs: Date.parse("2026-11-21T15:30Z") }).params).toEqual({ ds: "2026-11-22", hour: "00" });
  });
});
