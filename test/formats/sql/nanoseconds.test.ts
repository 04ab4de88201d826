import { DuckDBInstance } from "@duckdb/node-api";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { SourceColumn } from "#src/columnar/types.js";
import { withMicroseconds } from "#src/formats/sql/expressions.js";

const ns = "timestamp[ns]";
const at = { name: "at", sourceType: "TIMESTAMP_NS", type: ns } as const;
const map = "MAP(INTEGER, TIMESTAMP_NS)";
const columns: SourceColumn[] = [
  { ...at, name: "t" },
  { name: "l", sourceType: "TIMESTAMP_NS[]", type: { kind: "list", element: ns } },
  { name: "s", sourceType: "STRUCT(at TIMESTAMP_NS)", type: { kind: "struct", fields: [at] } },
  { name: "m", sourceType: map, type: undefined },
  {
    name: "sm",
    sourceType: `STRUCT(at TIMESTAMP_NS, m ${map})`,
    type: undefined,
    fields: [at, { name: "m", sourceType: map, type: undefined }],
  },
  { name: "a", sourceType: "map<int32, timestamp[ns]>", type: undefined },
];

let instance: DuckDBInstance;
beforeAll(async () => {
  instance = await DuckDBInstance.create(":memory:");
});
afterAll(() => {
  instance.closeSync();
});

/** The value where all columns hold the nanosecond before 1970, as text; "refused". */
async function valueOf(text: string): Promise<string> {
  const connection = await instance.connect();
  try {
    const exact = await withMicroseconds(connection, text, columns);
    const row = `SELECT n AS t, [n] AS l, {'at': n} AS s, MAP {1: n} AS m, {'at': n, 'm': MAP {1: n}} AS sm, MAP {1: n} AS a,
      TIMESTAMP '1970-01-01' AS u FROM (SELECT make_timestamp_ns(-1) AS n)`;
    return exact === undefined
      ? "refused"
      : String((await connection.runAndReadAll(`SELECT (${exact})::VARCHAR FROM (${row})`)).getRows()[0]?.[0]);
  } finally {
    connection.closeSync();
  }
}

test.each([
  ["year(t)", "1969"],
  ["sm.at::DATE", "1969-12-31"],
  ["year(s.at)", "1969"],
  ["year(greatest(t, t))", "1969"],
  ["date_trunc('day', least(t, u))::DATE", "1969-12-31"],
  ["year(coalesce(t, u))", "1969"],
  ["year(CASE WHEN t < u THEN t ELSE u END)", "1969"],
  ["CASE year(t) WHEN 1969 THEN 'a' WHEN 1970 THEN 'b' END", "a"],
  ["CASE t::DATE WHEN DATE '1970-01-01' THEN 'a' ELSE 'b' END", "b"],
  ["greatest(t, t)", "1969-12-31 23:59:59.999999999"],
  ["epoch_ns(greatest(t, t))", "-1"],
  ["nullif(t, u) IN (t)", "true"],
  ["t::TIMESTAMP_NS", "1969-12-31 23:59:59.999999999"],
  ["t::TIME_NS", "23:59:59.999999999"],
  ["t || ''", "1969-12-31 23:59:59.999999999"],
  ["list_value(t::TIMESTAMP)[1]::DATE", "1969-12-31"],
  ["epoch_ns(make_timestamp_ns(1))", "1"],
  ["len(l) + length(l) + cardinality(m)", "3"],
  ["l IS NULL OR s IS NOT NULL AND m IS NOT NULL", "true"],
])("%s is right", async (text, value) => {
  expect(await valueOf(text)).toBe(value);
});

test.each([
  "year(l[1])",
  "year(s['at'])",
  "(s).at::DATE",
  "year(m[1])",
  "sm.m[1]::DATE",
  "year(sm['at'])",
  "year(a[1])",
  "{'a': t}.a::DATE",
  "list_value(t)[1]::DATE",
  "list_transform([t], lambda x: year(x))[1]",
  "list_transform([u], lambda t: year(t))[1]",
  "year([t::TIMESTAMP_NS][1])",
  "year(nullif(t, u))",
  "[t]::DATE[]",
  "TRY_CAST(t AS BIGINT)",
  "year(t::TIMESTAMP_NS)",
  "year(make_timestamp_ns(-1))",
  "year(strptime('1969-12-31 999999999', '%Y-%m-%d %n'))",
  "l::DATE[]",
])("%s is refused", async (text) => {
  expect(await valueOf(text)).toBe("refused");
});
