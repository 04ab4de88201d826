import { describe, expect, test } from "vitest";
import { htmlReport, tellsOf } from "#src/report/html-report.js";
import { failed, partly, recordOf } from "../support/records.js";

const endedMs = Date.UTC(2026, 10, 21, 12, 0, 5);
const hostile = `<script>alert("x")</script>&'\u0000`;

describe("the page about an attempt", () => {
  test("shows its numbers, predictions, rejects and what it was made of", () => {
    const page = htmlReport(recordOf(), partly, endedMs);
    for (const shown of [
      "daily: partial",
      "worker 1 of 4",
      "2026-11-21 12:00:00 UTC to 2026-11-21 12:00:05 UTC",
      "<dt>engine busy</dt><dd>75%</dd>",
      "<dt>spans of the run</dt><dd>1 of 2</dd>",
      "<tr><th>infer</th><td>1.5 s</td>",
      "0.5 to 2.5, mean 1.5; 3 values",
      "<tr><th>null</th><td>1</td>",
      "d".repeat(64),
      "20.19.0",
    ]) {
      expect(page).toContain(shown);
    }
  });

  test("of one that failed says what it ended with", () => {
    const page = htmlReport(recordOf(), failed("connecting to db: <refused>"), endedMs);
    expect(page).toContain("<b>DATABASE</b>, exit code 75");
    expect(page).toContain("connecting to db: &lt;refused&gt;");
  });

  test("is known again by its run, unless the attempt failed", () => {
    const runId = "daily-0123456789ab";
    expect(tellsOf(htmlReport(recordOf(), partly, endedMs), runId)).toBe(true);
    expect(tellsOf(htmlReport(recordOf(), partly, endedMs), `${runId}-r2`)).toBe(false);
    expect(tellsOf(htmlReport(recordOf(), failed("away"), endedMs), runId)).toBe(false);
    expect(tellsOf("", undefined)).toBe(false);
  });

  test("is one that asks nobody for anything", () => {
    const page = htmlReport(recordOf(), partly, endedMs);
    expect(page).not.toMatch(/<script|<link|<img|<iframe|@import|url\(|https?:|\bon\w+=/i);
    expect(page).toContain(`content="default-src 'none'; style-src 'unsafe-inline'"`);
  });

  test("takes whatever a job, a model, a column, a label, a param or an error is called for text", () => {
    const names = { job: hostile, modelUri: hostile, column: hostile, text: hostile, param: hostile };
    const page = htmlReport(recordOf(names), failed(hostile), endedMs);
    expect(page).not.toContain("<script");
    expect(page).not.toContain("\u0000");
    const escaped = "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;&#39;\\x00";
    expect(page.split(escaped).length - 1).toBeGreaterThanOrEqual(7);
  });
});
