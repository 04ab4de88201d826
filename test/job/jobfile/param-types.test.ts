import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../../support/cli.js";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const withParams = (params: string): string => `${minimalSpec}params: ${params}\n`;
const region = "{ region: { type: enum, values: [EU, US, 007], default: EU } }";

test.each([
  ["{ ds: { type: date, default: 2026-01-31 } }", {}, { ds: "2026-01-31" }],
  ["{ ds: { type: date } }", { ds: "2026-01-31" }, { ds: "2026-01-31" }],
  ["{ top: { type: integer, default: 7 } }", {}, { top: "7" }],
  ["{ top: { type: integer } }", { top: "-12" }, { top: "-12" }],
  [region, {}, { region: "EU" }],
  [region, { region: "007" }, { region: "007" }],
])("params %s with %j have the values %j", (params, given, values) => {
  expect(load(withParams(params), { params: given }).params).toEqual(values);
});

test.each([
  ["{ ds: { type: date } }", {}, "params.ds: it has no default; set it with --param ds=2026-11-23"],
  ["{ ds: { type: date } }", { ds: "" }, "params.ds: --param sets it to an empty text"],
  ["{ ds: '${today}' }", { ds: "" }, "params.ds: --param sets it to an empty text"],
  ["{ ds: { type: date } }", { ds: "2026-02-30" }, "found 2026-02-30, expected a date such as 2026-11-23"],
  ["{ top: { type: integer } }", {}, "it has no default; set it with --param top=7"],
  ["{ top: { type: integer } }", { top: "" }, "found an empty text, expected a whole number such as 7"],
  ["{ top: { type: integer } }", { top: "007" }, "found 007, expected a whole number such as 7"],
  ["{ top: { type: integer, default: many } }", {}, "found many, expected a whole number such as 7"],
  ["{ ds: '${today}' }", { ds: "2026-11-5" }, "64 SPEC_INVALID\nreading job.yaml:"],
  [
    "{ ds: '${today}' }",
    { ds: "2026-11-5" },
    "params.ds: found 2026-11-5, expected a date written YYYY-MM-DD: write 2026-11-05",
  ],
  [
    "{ ds: '${today}' }",
    { ds: "2026-13-01" },
    "found 2026-13-01, expected a date written YYYY-MM-DD: there is no such",
  ],
  ["{ ds: '${today}' }", { ds: "2026-2-30" }, "found 2026-2-30, expected a date written YYYY-MM-DD: there is no such"],
  ["{ ds: '${today}' }", { ds: "20261105" }, "found 20261105, expected a date written YYYY-MM-DD: write 2026-11-05"],
  [
    "{ ds: '${today}' }",
    { ds: "20261340" },
    "found 20261340, expected a date written YYYY-MM-DD: there is no such day",
  ],
  [
    "{ ds: '${today}' }",
    { ds: "2026-11-01..2026-11-03" },
    "params.ds: found 2026-11-01..2026-11-03, expected one date; infer-batch backfill takes a range",
  ],
  ["{ ds: '${today}' }", { ds: "2026-01..2026-03" }, "expected one date; infer-batch backfill takes a range"],
  [
    "{ ds: { type: date } }",
    { ds: "2026-11-01..2026-11-03" },
    "expected a date such as 2026-11-23; infer-batch backfill takes a range",
  ],
  [region, { region: "USA" }, "found USA, expected one of EU, US, 007; did you mean `US`?"],
  ["{ region: { type: enum, values: [EU, US] } }", {}, "it has no default; set it with --param region=EU"],
  ["{ region: { type: enum, values: [] } }", {}, "expected a text, number or date, or { type: date"],
  ["{ region: { type: enum } }", {}, "expected a text, number or date, or { type: date"],
  ["{ ds: { type: date, values: [a] } }", {}, "expected a text, number or date, or { type: date"],
  ["{ ds: { type: time } }", {}, "expected a text, number or date, or { type: date"],
])("params %s with %j are refused: %s", (params, given, message) => {
  expect(specRefusal(withParams(params), { params: given })).toContain(message);
});

const usedTwice = minimalSpec
  .replace("in/*.parquet", "in/${ds}/*.parquet")
  .replace("path: out", "path: out/${ds - 1d}");

test.each([
  ["{ ds: { type: date } }", {}, "it has no default; set it with --param ds=2026-11-23"],
  ["{ ds: { type: date } }", { ds: "../soon" }, "found ../soon, expected a date such as 2026-11-23"],
  ["{ ds: { type: time } }", {}, "expected a text, number or date, or { type: date"],
])("the error for params %s with %j comes once, however often the param is used", (params, given, message) => {
  const refused = specRefusal(`${usedTwice}params: ${params}\n`, { params: given });
  expect(refused).toContain(`params.ds: ${message}`);
  expect(refused).not.toContain("problems");
});

test("a param without a value does not hide what is wrong with the texts that it is used in", () => {
  const text = `${usedTwice.replace("out/", "${OUT}/")}params: { week: "\${ds}", ds: { type: date } }\n`;
  const refused = specRefusal(text);
  expect(refused).toContain("3 problems");
  expect(refused).toContain("output.parquet.path: ${OUT} is neither a param nor an environment variable");
  expect(refused).toContain("params.week: ${ds} is a param that comes later");
  expect(refused).toContain("params.ds: it has no default");
});

test.each([
  ["{ ds: '${today}' }", { ds: "2026-11" }],
  ["{ ds: '${today}' }", { ds: "2026111" }],
  ["{ ds: '${today}' }", { ds: "night..day" }],
  ["{ ds: '${today}', version: 1 }", { version: "20261105" }],
  ["{ ds: '${today}' }", { ds: "backfill 2026-11-5" }],
  ["{ ds: '${today}', version: 1 }", { version: "2026-11-5" }],
])("params %s take %j, which does not look like a date, or is no logical date", (params, given) => {
  expect(load(withParams(params), { params: given }).params).toMatchObject(given);
});

test("the param that messages and the schema recommend can be written into a spec as it stands", () => {
  const refused = specRefusal(withParams("{ ds: { type: time } }"), {});
  const described = readFileSync(join(projectFolder, "docs/job-spec.md"), "utf8");
  const forms = [refused, described].map((text) => /\{ type: date, default: [^ ]+ \}/.exec(text)?.[0] ?? "");
  expect(forms).toEqual(['{ type: date, default: "${today}" }', '{ type: date, default: "${today}" }']);
  for (const form of forms) {
    expect(load(withParams(`{ ds: ${form} }`)).params["ds"]).toMatch(/^\d{4}-\d\d-\d\d$/);
  }
});

const anyDate = { standIns: "dates" } as const;

test.each([
  ["name: daily", "name: daily-${ds}", "name"],
  ["path: out", "path: out\n    compression: ${ds}", "output.parquet.compression"],
])("a missing date is an error if a key that decides where runs are depends on it: %s as %s", (from, to, key) => {
  const text = `${minimalSpec.replace(from, to)}params: { ds: { type: date } }\n`;
  expect(specRefusal(text, anyDate)).toContain(
    `params.ds: it has no default, and ${key} is made from it; set it with --param ds=2026-11-23`,
  );
});

const madeFromDate = (last: string): string => withParams(`{ ds: { type: date }, before: "\${ds - 1d}"${last} }`);

test("a placeholder replaces a missing date only if runs of other dates belong to the same series", () => {
  expect(load(madeFromDate(""), anyDate).params).toEqual({ ds: "1970-01-01", before: "1969-12-31" });
  expect(specRefusal(madeFromDate(`, week: "w\${before}"`), anyDate)).toContain(
    "params.ds: it has no default, and params.week is made from it",
  );
  expect(load(madeFromDate(`, week: "w\${before}"`), { standIns: "all" }).params).toMatchObject({
    week: "w1969-12-31",
  });
});
