import { request } from "node:http";
import { describe, expect, test } from "vitest";
import { serveMetrics } from "#src/report/metrics.js";

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
