import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type CliResult, runHere } from "../support/cli.js";
import { listen } from "../support/listener.js";
import { away, fails, inScratch, tell } from "../support/telling.js";

describe("pings", () => {
  const secret = "4b6f-secret";

  test("a ping is sent once, on success or on failure", async () => {
    await using server = await listen();
    const report = { on_success: `${server.url}/${secret}`, on_failure: `${server.url}/${secret}/fail` };
    await inScratch({ report }, async (spec) => {
      await tell(spec);
      await tell(spec, fails);
      expect(server.calls).toEqual([
        { method: "GET", path: `/${secret}`, body: "" },
        { method: "GET", path: `/${secret}/fail`, body: "" },
      ]);
    });
  });

  test("a failure ping is sent from the reading of the spec on, and no success ping while other workers have work", async () => {
    await using server = await listen();
    const report = { on_success: `${server.url}/ok`, on_failure: `${server.url}/fail` };
    await inScratch({ report }, async (spec, folder) => {
      const run = (...options: string[]): Promise<CliResult> => runHere(["run", spec, "--no-progress", ...options]);
      const taken = join(folder, "trace.txt");
      expect((await run("--profile", taken)).stderr).toContain("expected a name that ends in .json");
      expect((await run("--profile", join(folder, "out/trace.json"))).stderr).toContain(
        "the folder of the predictions",
      );
      expect((await run("--worker", "0/2")).stdout).toContain("partial");
      expect((await run("--worker", "1/2")).stdout).toContain("complete");
      expect(server.calls.map(({ path }) => path)).toEqual(["/fail", "/fail", "/ok"]);
    });
  });

  test("a ping contains the report, or the error", async () => {
    await using server = await listen();
    const report = { on_success: server.url, on_failure: server.url, method: "post" };
    await inScratch({ report }, async (spec) => {
      await tell(spec);
      await tell(spec, fails);
      const [good, bad] = server.calls.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
      expect(good).toMatchObject({ job: "wine-forest", exit_code: 0, status: "complete", rows_scored: 178 });
      expect(good?.["attempt"]).toMatchObject({ spans_committed: 4 });
      expect(bad).toMatchObject({ status: "failed", exit_code: 75, code: "DATABASE", message: away.message });
    });
  });

  test.each([
    ["answers with an error, is tried again", 500, /calling report\.on_success: HTTP 500/, 3],
    ["sends elsewhere, is not followed", 302, /calling report\.on_success: HTTP 302/, 1],
    ["never answers, is not waited for", undefined, /calling report\.on_success: no answer within 1 s/, 1],
  ])("a ping whose receiver %s leaves the run complete, and no log has the URL", async (_what, status, said, calls) => {
    await using server = await listen(() => status);
    await inScratch(
      { report: { on_success: `${server.url}/${secret}`, timeout: status === undefined ? 1 : 10 } },
      async (spec) => {
        const told = await tell(spec);
        expect(told.report?.status).toBe("complete");
        expect(told.said).toMatch(said);
        expect(told.said).not.toMatch(/secret|127\.0\.0\.1/);
        expect(server.calls.map(({ path }) => path)).toEqual(Array<string>(calls).fill(`/${secret}`));
      },
    );
  });

  test("a ping whose receiver is missing leaves the run complete, and no log has the URL", async () => {
    await inScratch({ report: { on_success: `http://127.0.0.1:9/${secret}` } }, async (spec) => {
      const told = await tell(spec);
      expect([told.report?.status, told.said.includes(secret)]).toEqual(["complete", false]);
      expect(told.said).toMatch(/calling report\.on_success: (ECONNREFUSED|the request failed)/);
    });
  });
});
