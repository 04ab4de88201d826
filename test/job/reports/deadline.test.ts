import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test, vi } from "vitest";
import { readSpec } from "#src/job/reading.js";
import { watchDeadline } from "#src/job/reporting.js";
import type { AttemptRecord } from "#src/report/attempt-record.js";
import type { Outcome } from "#src/report/report.js";
import { type Call, listen } from "../../support/listener.js";
import { failed, partly, recordOf } from "../../support/records.js";
import { servedJob } from "../../support/served-job.js";
import { inScratch } from "../../support/telling.js";
import { until } from "../../support/waiting.js";

const deadlineMs = Date.parse("2026-11-23T05:00:00Z"); // 06:00 in Berlin
const minute = 60_000;

interface Watched {
  readonly calls: readonly Call[];
  readonly warnings: readonly string[];
}

/** Watches an attempt that starts `startsAt` minutes after its deadline, and ends `endsAt` minutes after it. */
async function watched(
  { startsAt, endsAt }: { startsAt: number; endsAt: number },
  outcome: Outcome,
  {
    record = recordOf(),
    answer = () => 200,
    isSeen = false,
    worksMs = 0,
  }: { record?: AttemptRecord; answer?: () => number; isSeen?: boolean; worksMs?: number } = {},
): Promise<Watched> {
  await using server = await listen(answer);
  const warnings: string[] = [];
  const report = { deadline: "06:00", on_late: `${server.url}/late`, method: "post", timeout: 1 };
  await inScratch({ timezone: "Europe/Berlin", report }, async (spec, folder) => {
    const loaded = await readSpec(spec, { param: [] });
    let nowMs = deadlineMs + startsAt * minute;
    const log = { info() {}, debug() {}, warn: (text: string) => void warnings.push(text) };
    const context = { loaded, folder, record, log, signal: new AbortController().signal, dateMs: () => nowMs };
    // Where nothing waits for a check, none may come by the clock of a busy machine.
    const watch = watchDeadline(context, { checkMs: isSeen || worksMs > 0 ? 5 : minute });
    nowMs = deadlineMs + endsAt * minute;
    if (isSeen) {
      await until(() => server.calls.length > 0);
    }
    await sleep(worksMs);
    await watch.end(outcome);
    await watch.end(outcome);
  });
  return { calls: server.calls, warnings };
}

test("on_late is called once when the deadline passes during the attempt, with the deadline as JSON", async () => {
  const { calls, warnings } = await watched({ startsAt: -60, endsAt: 1 }, partly, { isSeen: true });
  expect(calls).toHaveLength(1);
  expect(calls[0]).toMatchObject({ method: "POST", path: "/late" });
  expect(JSON.parse(calls[0]?.body ?? "")).toMatchObject({
    job: "daily",
    run_id: "daily-0123456789ab",
    status: "late",
    deadline: "2026-11-23T05:00:00.000Z",
    expected_end: null,
  });
  expect(warnings).toEqual(["the run missed report.deadline, 06:00 Europe/Berlin"]);
});

test("on_late is called when the rows will not be scored by the deadline at the rate so far", async () => {
  const record = { ...recordOf(), rowsToScore: 4000, seconds: 60 }; // 4 rows in a minute
  const { calls, warnings } = await watched({ startsAt: -61, endsAt: -60 }, partly, { record, isSeen: true });
  expect(JSON.parse(calls[0]?.body ?? "")).toMatchObject({ expected_end: "2026-11-23T20:39:00.000Z" });
  expect(warnings).toEqual(["the run will miss report.deadline, 06:00 Europe/Berlin: it is expected to end at 21:39"]);
});

test("on_late is called at the end of an attempt that failed after its deadline, or that started after its deadline and scored rows", async () => {
  expect((await watched({ startsAt: 30, endsAt: 31 }, failed("away"))).calls).toHaveLength(1);
  expect((await watched({ startsAt: 30, endsAt: 31 }, partly)).calls).toHaveLength(1);
});

test("on_late is not called for an attempt that ended in time, or that found nothing to do after its deadline", async () => {
  expect((await watched({ startsAt: -60, endsAt: -1 }, partly)).calls).toHaveLength(0);
  const idle = { ...recordOf(), counts: { ...recordOf().counts, spansCommitted: 0 } };
  expect((await watched({ startsAt: 30, endsAt: 31 }, partly, { record: idle })).calls).toHaveLength(0);
});

test("on_late is called during an attempt that starts after its deadline if it has rows to score or waits for its input", async () => {
  const nothing = { ...recordOf(), rowsToScore: undefined, inputWaitSeconds: 0 };
  const idle = { ...nothing, counts: { ...nothing.counts, spansCommitted: 0 } };
  const late = { startsAt: 30, endsAt: 31 };
  expect((await watched(late, partly, { record: idle, worksMs: 100 })).calls).toHaveLength(0);
  for (const record of [
    { ...idle, rowsToScore: 10 },
    { ...idle, inputWaitSeconds: 5 },
  ]) {
    expect((await watched(late, partly, { record, isSeen: true })).calls).toHaveLength(1);
  }
});

test("a failed call of on_late is logged as one warning and changes nothing else", async () => {
  const { warnings } = await watched({ startsAt: -60, endsAt: 1 }, partly, { answer: () => 404 });
  expect(warnings).toEqual(["the run missed report.deadline, 06:00 Europe/Berlin", "calling report.on_late: HTTP 404"]);
});

test("a call of on_late that failed during the attempt is made again when it ends, once", async () => {
  const answers = [404, 200];
  const { calls } = await watched({ startsAt: -60, endsAt: 1 }, partly, {
    answer: () => answers.shift() ?? 500,
    isSeen: true,
  });
  expect([calls.length, answers]).toEqual([2, []]);
  const away = await watched({ startsAt: -60, endsAt: 1 }, partly, { answer: () => 404, isSeen: true });
  expect(away.calls).toHaveLength(2);
});

test("an attempt that ends before it has planned its run leaves a note at the target only if its input is late", async () => {
  const noted: string[] = [];
  for (const exitCode of [64, 75] as const) {
    const record: AttemptRecord = {
      ...recordOf(),
      run: undefined,
      lateCall: (text) => {
        noted.push(`${exitCode}: ${text}`);
        return Promise.resolve({ done: () => Promise.resolve() });
      },
    };
    const outcome = { ...failed("away"), exitCode } as Outcome;
    expect((await watched({ startsAt: 30, endsAt: 31 }, outcome, { record })).calls).toHaveLength(1);
  }
  expect(noted).toEqual(["75: the run missed report.deadline, 06:00 Europe/Berlin"]);
});

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
