import { describe, expect, test } from "vitest";
import { findRange, type RangeStep, rangeValues, stepOf } from "#src/run/series/backfill.js";

const ds = (text: string): ReturnType<typeof findRange>["range"] => findRange([`ds=${text}`]).range;

function texts(text: string, asked?: RangeStep): string[] {
  const range = ds(text);
  return rangeValues(range, stepOf(range, asked)).map((value) => value.text);
}

describe("the values of a range", () => {
  test("a range of dates has each day, both ends included, over the end of a month and a leap day", () => {
    expect(texts("2028-02-27..2028-03-01")).toEqual(["2028-02-27", "2028-02-28", "2028-02-29", "2028-03-01"]);
    expect(texts("2026-01-05..2026-01-05")).toEqual(["2026-01-05"]);
  });

  test("weeks and months count from the first date, and end at or before the last", () => {
    expect(texts("2026-01-05..2026-01-20", "week")).toEqual(["2026-01-05", "2026-01-12", "2026-01-19"]);
    expect(texts("2026-01-31..2026-04-30", "month")).toEqual(["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"]);
  });

  test("a range of months has values without a day", () => {
    expect(texts("2025-11..2026-02")).toEqual(["2025-11", "2025-12", "2026-01", "2026-02"]);
  });

  test("hours are those of UTC: a day on which clocks change has 24", () => {
    expect(texts("2026-03-29..2026-03-29", "hour")).toHaveLength(24);
    expect(texts("2026-03-28T23..2026-03-29T01")).toEqual(["2026-03-28T23", "2026-03-29T00", "2026-03-29T01"]);
    expect(texts("2026-03-28T23:00Z..2026-03-29T00:00Z")).toEqual(["2026-03-28T23:00Z", "2026-03-29T00:00Z"]);
  });

  test("with a param for the hour, the range's own param takes the date alone", () => {
    const range = ds("2026-01-01T22..2026-01-02T00");
    expect(rangeValues(range, "hour", "hour").map(({ params }) => params)).toEqual([
      { ds: "2026-01-01", hour: "22" },
      { ds: "2026-01-01", hour: "23" },
      { ds: "2026-01-02", hour: "00" },
    ]);
  });

  test.each([
    ["2026-01-02..2026-01-01", undefined, "it ends before it begins"],
    ["2026-02-30..2026-03-01", undefined, "2026-02-30 is not a date"],
    ["a..b", undefined, "a is not a date"],
    ["2026-01-01..2026-02", undefined, "its ends are written differently"],
    ["2026-01..2026-03", "day", "the values of ds are months"],
    ["2026-01-01T00..2026-01-01T05", "day", "the values of ds are hours"],
    ["1900-01-01..2026-01-01", undefined, "it has more than 10000 values"],
  ] as const)("the range %s with --step %s is refused", (text, step, found) => {
    expect(() => texts(text, step)).toThrow(found);
  });
});

describe("the param with a range", () => {
  test("other params are kept as they are, and a path with dots is no range", () => {
    const given = ["region=EU", "ds=2026-01-01..2026-01-02", "root=../data/../raw"];
    expect(findRange(given)).toEqual({
      range: { param: "ds", first: "2026-01-01", last: "2026-01-02" },
      others: ["region=EU", "root=../data/../raw"],
    });
  });

  test("two ranges are refused, and so is none", () => {
    expect(() => findRange(["a=2026-01-01..2026-01-02", "b=2026-01-01..2026-01-02"])).toThrow("both a and b");
    expect(() => findRange(["ds=2026-01-01"])).toThrow("no param is given a range");
  });
});
