import { describe, expect, test } from "vitest";
import { htmlReport, isPageOf } from "#src/report/html-report.js";
import { failed, partly, recordOf } from "../support/records.js";

const endedMs = Date.UTC(2026, 10, 21, 12, 0, 5);
const hostile = `<script>alert("x")</script>&'\u0000`;

const pageWith = (trees: string | null): string => htmlReport(recordOf({ trees }), partly, endedMs);

describe("the HTML page of an attempt", () => {
  test("the HTML page of an attempt shows its counts, predictions, rejects and inputs", () => {
    const page = htmlReport(recordOf(), partly, endedMs);
    for (const shown of [
      "daily: partial",
      "worker 1 of 4",
      "2026-11-21 12:00:00 UTC to 2026-11-21 12:00:05 UTC",
      "<dt>engine busy</dt><dd>75%</dd>",
      "<dt>spans of the run</dt><dd>1 of 2</dd>",
      "<tr><th>infer</th><td>1.5 s</td>",
      "0.5 to 2.5, mean 1.5, standard deviation 0.8165; 3 values",
      "<tr><th>null</th><td>1</td>",
      "d".repeat(64),
      "20.19.0",
    ]) {
      expect(page).toContain(shown);
    }
  });

  test("the HTML page of a failed attempt shows its error and exit code", () => {
    const page = htmlReport(recordOf(), failed("connecting to db: <refused>"), endedMs);
    expect(page).toContain("<b>DATABASE</b>, exit code 75");
    expect(page).toContain("connecting to db: &lt;refused&gt;");
  });

  test("the HTML page of an attempt says what computed decision trees, if the model has some", () => {
    expect(pageWith("compiled")).toContain("<dt>rows by compiled trees</dt><dd>3</dd>");
    expect(pageWith("compiled")).toContain("<tr><th>decision trees</th><td>compiled</td></tr>");
    expect(pageWith("onnxruntime: too wide")).toContain(
      "<tr><th>decision trees</th><td>onnxruntime: too wide</td></tr>",
    );
    expect(pageWith(null)).not.toContain("trees");
  });

  test("isPageOf recognizes the page of a run, unless the attempt failed", () => {
    const runId = "daily-0123456789ab";
    expect(isPageOf(htmlReport(recordOf(), partly, endedMs), runId)).toBe(true);
    expect(isPageOf(htmlReport(recordOf(), partly, endedMs), `${runId}-r2`)).toBe(false);
    expect(isPageOf(htmlReport(recordOf(), failed("away"), endedMs), runId)).toBe(false);
    expect(isPageOf("", undefined)).toBe(false);
  });

  test("the HTML page of an attempt makes no request", () => {
    const page = htmlReport(recordOf(), partly, endedMs);
    expect(page).not.toMatch(/<script|<link|<img|<iframe|@import|url\(|https?:|\bon\w+=/i);
    expect(page).toContain(`content="default-src 'none'; style-src 'unsafe-inline'"`);
  });

  test("the HTML page of an attempt escapes names of jobs, models, columns, labels, params and errors", () => {
    const names = { job: hostile, modelUri: hostile, column: hostile, text: hostile, param: hostile };
    const page = htmlReport(recordOf(names), failed(hostile), endedMs);
    expect(page).not.toContain("<script");
    expect(page).not.toContain("\u0000");
    const escaped = "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;&#39;\\x00";
    expect(page.split(escaped).length - 1).toBeGreaterThanOrEqual(7);
  });
});
