import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type CliResult, runHere } from "../support/cli.js";
import { listen } from "../support/listener.js";
import { away, fails, inScratch, tell } from "../support/telling.js";

describe("whoever is to be called", () => {
  const secret = "4b6f-secret";

  test("is called once, of success or of failure", async () => {
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

  test("is called of a failure from when the spec is read, and of no success while others have work to do", async () => {
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

  test("is sent the report, or the error", async () => {
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
  ])("and %s; the run is complete, and no log has the URL", async (_what, status, said, calls) => {
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

  test("and is not there: the same", async () => {
    await inScratch({ report: { on_success: `http://127.0.0.1:9/${secret}` } }, async (spec) => {
      const told = await tell(spec);
      expect([told.report?.status, told.said.includes(secret)]).toEqual(["complete", false]);
      expect(told.said).toMatch(/calling report\.on_success: (ECONNREFUSED|the request failed)/);
    });
  });
});
