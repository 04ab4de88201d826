import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { readBackfill } from "#src/cli/commands/backfill.js";
import { scratch } from "../support/job.js";

async function specOf(folder: string, params: string, html = "reports/${ds}.html"): Promise<string> {
  const path = join(folder, "job.yaml");
  const hour = params.includes("hour") ? "${hour}/" : "";
  await writeFile(
    path,
    `version: 1
name: hourly
params: ${params}
input: { path: "in/\${ds}/${hour}*.parquet", wait: 4h }
model: { path: model.onnx }
output: { parquet: { path: "out/\${ds}" } }
report:
  html: "${html}"
  metrics: hourly.prom
  on_success: https://example.com/ping
  deadline: "06:00"
`,
  );
  return path;
}

describe("the jobs of a backfill", () => {
  test("a job whose params are a date and an hour gets both", async () => {
    const spec = await specOf(scratch.path, '{ ds: "${today}", hour: "${hour}" }');
    const { jobs } = await readBackfill(spec, { param: ["ds=2026-01-01..2026-01-02"], step: "hour" });
    const [first] = jobs;
    expect([jobs.length, first?.value, jobs.at(-1)?.value]).toEqual([48, "2026-01-01T00", "2026-01-02T23"]);
    expect(first?.load().spec.params).toEqual({ ds: "2026-01-01", hour: "00" });
  });

  test("a job with one param for date and hour gets them as one text", async () => {
    const spec = await specOf(scratch.path, '{ ds: "2026-01-01T00" }');
    const { jobs } = await readBackfill(spec, { param: ["ds=2026-01-01T05..2026-01-01T06"] });
    expect(jobs.map(({ load }) => load().spec.params["ds"])).toEqual(["2026-01-01T05", "2026-01-01T06"]);
  });

  test("a backfill calls no URL, writes no metrics, has no deadline and does not wait for input", async () => {
    const spec = await specOf(scratch.path, "{ ds: { type: date } }");
    const { jobs } = await readBackfill(spec, { param: ["ds=2026-01-01..2026-01-02"] });
    expect(jobs[0]?.load().spec).toMatchObject({
      input: { wait: 0 },
      report: { html: "reports/2026-01-01.html", on_success: "" },
    });
    expect(Object.keys(jobs[0]?.load().spec.report ?? {})).not.toContain("metrics");
    expect(Object.keys(jobs[0]?.load().spec.report ?? {})).not.toContain("deadline");
  });

  test("an HTML page whose name does not depend on the date is not written by a backfill", async () => {
    const spec = await specOf(scratch.path, "{ ds: { type: date } }", "reports/latest.html");
    const { jobs } = await readBackfill(spec, { param: ["ds=2026-01-01..2026-01-02"] });
    expect(jobs.map(({ load }) => load().spec.report.html)).toEqual([undefined, undefined]);
  });

  test("a value that does not fit the type of its param is refused before any run starts", async () => {
    const spec = await specOf(scratch.path, "{ ds: { type: date } }");
    const reading = readBackfill(spec, { param: ["ds=2026-01..2026-02"] });
    await expect(reading).rejects.toThrow("found 2026-01, expected a date such as 2026-11-23");
  });
});
