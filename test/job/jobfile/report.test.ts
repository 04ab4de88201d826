import { describe, expect, test } from "vitest";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const withReport = (report: string): string => `${minimalSpec}report: ${report}\n`;

describe("report", () => {
  test("a spec without report has an empty report", () => {
    expect(load(minimalSpec).report).toEqual({
      on_success: "",
      on_failure: "",
      on_held: "",
      on_late: "",
      method: "get",
      timeout: 10,
    });
  });

  test("report takes URLs from the environment, and none where a variable is empty", () => {
    const text = withReport('{ on_success: "${PING}", on_failure: "${OTHER:-}" }');
    const { on_success, on_failure } = load(text, { env: { PING: "https://hc.example/4b6f" } }).report;
    expect([on_success, on_failure]).toEqual(["https://hc.example/4b6f", ""]);
  });

  test.each([
    ["{ on_success: hc.example/4b6f-secret }"],
    ["{ on_failure: ftp://hc.example/4b6f-secret }"],
    ["{ on_failure: https://me:4b6f-secret@hc.example/ }"],
    ['{ on_success: "${PING}" }'],
    ['{ deadline: "06:00", on_late: hc.example/4b6f-secret }'],
  ])("report refuses a URL that is none without showing it: %s", (report) => {
    const said = specRefusal(withReport(report), { env: { PING: "4b6f-secret" } });
    expect(said).toMatch(
      /^64 SPEC_INVALID\nreading job\.yaml:\d+:\d+: report\.on_\w+: found .*, expected http\(s\):\/\/host/,
    );
    expect(said).not.toContain("4b6f");
  });

  test.each([
    ["{ html: s3://bucket/report.html }", "expected a path on this machine"],
    ["{ metrics: churn.txt }", "expected a name that ends in .prom"],
    ["{ timeout: 61 }", "expected a number from 1 to 60"],
    ["{ deadline: 6am }", 'expected a time of day such as "06:00"'],
    ["{ on_late: 'http://hc.example' }", "expected `deadline` as well"],
    ["{ on_sucess: x }", "did you mean `on_success`?"],
  ])("%s is refused: %s", (report, expected) => {
    expect(specRefusal(withReport(report))).toContain(expected);
  });
});

describe("report.openlineage", () => {
  test("report.openlineage has a URL and a namespace", () => {
    const text = withReport("{ openlineage: { url: 'http://marquez:5000' } }");
    expect(load(text).report.openlineage).toEqual({ url: "http://marquez:5000", namespace: "default" });
  });

  test("report.openlineage refuses an invalid URL without showing it", () => {
    const said = specRefusal(withReport("{ openlineage: { url: 4b6f-secret } }"));
    expect(said).toMatch(/report\.openlineage\.url: .*expected http\(s\):\/\/host/);
    expect(said).not.toContain("4b6f");
  });
});
