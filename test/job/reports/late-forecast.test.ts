import { afterEach, expect, test, vi } from "vitest";
import { listen } from "../../support/listener.js";
import { servedJob } from "../../support/served-job.js";
import { until } from "../../support/waiting.js";

afterEach(() => {
  vi.restoreAllMocks();
});

const hourMs = 3_600_000;

/** The time of day in UTC that is so many minutes away. */
const timeIn = (minutes: number): string => new Date(Date.now() + minutes * 60_000).toISOString().slice(11, 16);

test("a run calls on_late once, hours before its deadline, when a slow server of the model lets it expect to miss it", async () => {
  await using calls = await listen();
  const report = { deadline: timeIn(120), on_late: `${calls.url}/late`, method: "post" };
  await using job = await servedJob({ overrides: { engine: { batch_size: 20 }, report } });
  // After the first rows, an hour of the attempt's own clock passes while the server is silent.
  let passedMs = 0;
  const now = performance.now.bind(performance);
  vi.spyOn(performance, "now").mockImplementation(() => now() + passedMs);
  const called = until(() => calls.calls.length > 0);
  let rows = 0;
  job.server.misbehave = (request) => {
    rows += request.rows;
    if (rows <= 60) {
      return undefined;
    }
    passedMs = hourMs;
    return { after: called };
  };

  const ended = await job.run();

  expect(ended, ended.stderr).toMatchObject({ code: 0, report: { status: "complete", rows_scored: 442 } });
  expect(calls.calls).toHaveLength(1);
  const late = JSON.parse(calls.calls[0]?.body ?? "") as Readonly<Record<string, string>>;
  expect(late).toMatchObject({ status: "late", run_id: ended.report["run_id"] });
  expect(Date.parse(late["deadline"] ?? "")).toBeGreaterThan(Date.now() + hourMs);
  expect(Date.parse(late["expected_end"] ?? "")).toBeGreaterThan(Date.parse(late["deadline"] ?? ""));
  expect(ended.stderr.match(/WARN: the run will miss report\.deadline/g)).toHaveLength(1);
});
