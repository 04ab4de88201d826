import { expect, test, describe } from "vitest";
import { parsePreviousMetrics, metricsText, serveMetrics } from "#src/report/metrics.js";
import { failed, partly, recordOf } from "../support/records.js";
import { request } from "node:http";

const endedMs = Date.UTC(2026, 10, 21, 12, 0, 5);

test("the metrics of an attempt that succeeded", () => {
  const text = metricsText({ record: recordOf(), outcome: partly, lastSuccessMs: endedMs, endedMs });
  expect(`\n${text}`).toMatchSnapshot();
});

test("the metrics of a failed attempt keep the time of the last success", () => {
  const earlierMs = Date.UTC(2026, 10, 20, 12, 0, 0, 123);
  const text = metricsText({ record: recordOf(), outcome: failed("away"), lastSuccessMs: earlierMs, endedMs });
  expect(text).toContain('infer_batch_exit_code{batch_job="daily",worker="1"} 75\n');
  expect(parsePreviousMetrics(text, recordOf().info).lastSuccessMs).toBe(earlierMs);
});

test("the metrics of a running attempt have no end, and those of the first attempt no success", () => {
  const text = metricsText({ record: recordOf(), outcome: undefined, lastSuccessMs: undefined, endedMs: undefined });
  expect(text).toContain('infer_batch_running{batch_job="daily",worker="1"} 1\n');
  expect(text).not.toMatch(/exit_code|ended|last_success|undefined|NaN/);
  expect(parsePreviousMetrics(text, recordOf().info).lastSuccessMs).toBeUndefined();
});

test("each line of the metrics is a comment or a sample, whose metric is declared once", () => {
  const text = metricsText({ record: recordOf(), outcome: partly, lastSuccessMs: endedMs, endedMs });
  const declared = [...text.matchAll(/^# TYPE (\S+) gauge$/gm)].map(([, name]) => name);
  expect(new Set(declared).size).toBe(declared.length);
  for (const line of text.trimEnd().split("\n")) {
    if (!line.startsWith("# ")) {
      const [, name] = /^([a-z_]+)\{(?:[a-z0-9_]+="(?:[^"\\\n]|\\[\\"n])*",?)+\} -?[\d.e+-]+$/.exec(line) ?? [];
      expect(declared, line).toContain(name);
    }
  }
});

const textWith = (trees: string | null): string =>
  metricsText({ record: recordOf({ trees }), outcome: partly, lastSuccessMs: undefined, endedMs });

test("the metrics say whether compiled trees score the rows, if the model has trees", () => {
  const labels = '{batch_job="daily",worker="1"}';
  expect(textWith("compiled")).toContain(`\ninfer_batch_trees_compiled${labels} 1\n`);
  expect(textWith("compiled")).toContain(`\ninfer_batch_rows_by_trees${labels} 3\n`);
  expect(textWith("onnxruntime: too wide")).toContain(`\ninfer_batch_trees_compiled${labels} 0\n`);
  expect(textWith(null)).not.toContain("trees");
});

test("the metrics escape label values", () => {
  const record = recordOf();
  const hostile = { ...record, info: { ...record.info, versions: { "infer-batch": 'a"b\\c\nd' } } };
  const text = metricsText({ record: hostile, outcome: partly, lastSuccessMs: undefined, endedMs });
  expect(text).toContain('version="a\\"b\\\\c\\nd"');
});

test("metrics of another program, job or worker are not repeated", () => {
  const { info } = recordOf();
  const text = metricsText({ record: recordOf(), outcome: partly, lastSuccessMs: endedMs, endedMs });
  expect(parsePreviousMetrics(text, info)).toMatchObject({
    lastSuccessMs: endedMs,
    work: { runId: "daily-0123456789ab" },
  });
  for (const [other, of] of [
    ["", info],
    ["infer_batch_last_success_timestamp_seconds{} soon\n", info],
    [text, { ...info, job: "daily2" }],
    [text, { ...info, worker: { index: 10, count: 20 } }],
  ] as const) {
    expect(parsePreviousMetrics(other, of)).toEqual({ lastSuccessMs: undefined, work: undefined });
  }
});

/** What a request with this Host header is answered. */
async function asked(host: string): Promise<{ readonly status: number | undefined; readonly text: string }> {
  await using server = await serveMetrics(0, () => "metric 1\n");
  return await new Promise((resolve, reject) => {
    const call = request(server.url, { headers: { host }, agent: false }, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (more: string) => (text += more));
      answer.on("end", () => {
        resolve({ status: answer.statusCode, text });
      });
    });
    call.on("error", reject).end();
  });
}

describe("the metrics server", () => {
  test.each([
    "127.0.0.1:9400",
    "127.0.0.1",
    "localhost:9400",
    "LOCALHOST",
    "job.localhost:1",
    "[::1]:9400",
    "10.1.2.3:80",
  ])("the metrics server answers a request for the host %s", async (host) => {
    expect(await asked(host)).toEqual({ status: 200, text: "metric 1\n" });
  });

  test.each(["attacker.example:9400", "localhost.attacker.example", "127.0.0.1.attacker.example:9400", "1", "a:b:c"])(
    "the metrics server refuses a request for the host %j, to which DNS rebinding led a browser",
    async (host) => {
      const { status, text } = await asked(host);
      expect([status, text]).toEqual([403, "ask for 127.0.0.1 or localhost\n"]);
    },
  );
});
