import { expect, test } from "vitest";
import { sameSeries } from "#src/run/plan/identity.js";

test.each([
  [{}, {}],
  [{ ds: "2026-11-01" }, { ds: "2026-11-02" }],
  [{ ds: "20261101" }, { ds: "2026-12" }],
  [{ ds: "2026-W48" }, { ds: "2026-11-02T03:00:00+01:00" }],
  [
    { ds: "2026-11-01", region: "EU" },
    { ds: "2026-11-02", region: "EU" },
  ],
])("runs with the params %j and %j belong to one series", (one, other) => {
  expect(sameSeries(one, other)).toBe(true);
  expect(sameSeries(other, one)).toBe(true);
});

test.each([
  [{ region: "EU" }, { region: "US" }],
  [
    { ds: "2026-11-01", region: "EU" },
    { ds: "2026-11-02", region: "US" },
  ],
  [{ tenant: "17" }, { tenant: "1707" }],
  [{ tenant: "20261301" }, { tenant: "20269999" }],
  [{ ds: "2026-11-01" }, {}],
])("runs with the params %j and %j belong to two series", (one, other) => {
  expect(sameSeries(one, other)).toBe(false);
  expect(sameSeries(other, one)).toBe(false);
});
