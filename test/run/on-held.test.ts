import { describe, expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { listen } from "../support/listener.js";
import { fewRows, heldNight, nightAt, nightlyJob } from "../support/nights.js";
import { watchCommand } from "../support/watched.js";
import { expectEnd } from "../support/cli.js";

describe("report.on_held", () => {
  test("report.on_held is called once, and on_success and on_failure are not", async () => {
    await using server = await listen();
    const report = {
      on_held: `${server.url}/held`,
      on_success: `${server.url}/ok`,
      on_failure: `${server.url}/fail`,
      method: "post",
    };
    const nights = await nightlyJob(scratch.path, { report });
    await heldNight(nights);
    await expectEnd(nights.night("run", "2026-11-21"), 67);
    expect(server.calls.map(({ path }) => path)).toEqual(["/ok", "/held"]);
    expect(JSON.parse(server.calls[1]?.body ?? "")).toMatchObject({
      status: "held",
      exit_code: 67,
      text: expect.stringMatching(
        /50 rows \(392 filtered out by input.where\); the nearest night had 442 .*, 11.3% of it\nto publish the predictions: infer-batch approve .* --run \S+\nto throw the predictions away: infer-batch discard .* --run \S+$/,
      ),
      commands: [
        expect.stringMatching(/^infer-batch approve /),
        expect.stringMatching(/^infer-batch discard /),
        expect.stringMatching(/^infer-batch run .* --new-run$/),
      ],
    });
  });

  test.each([
    ["was killed before it could call", { CRASH_AT: "after link control/verdict.json #1" }, 137],
    ["could not reach the URL", {}, 67],
  ])("report.on_held is called by the next attempt if the one that made the verdict %s", async (_, env, code) => {
    let status = "CRASH_AT" in env ? 200 : 404;
    await using server = await listen(() => status);
    const nights = await nightlyJob(scratch.path, { report: { on_held: `${server.url}/held` } });
    await expectEnd(nights.night("run", "2026-11-20"), 0);
    await nights.rewrite(fewRows);
    const night = nightAt(scratch.path, "2026-11-21");
    const first = await watchCommand(night.args("run"), { CRASH_ROOT: night.out, ...env });
    expect(first.signal === "SIGKILL" ? 137 : first.code, first.stderr).toBe(code);
    const before = server.calls.length;
    status = 200;
    for (let attempt = 0; attempt < 2; attempt += 1) {
      await expectEnd(night.run("run"), 67);
    }
    expect(server.calls.length - before).toBe(1);
  });

  test("a held run calls on_failure if report.on_held is not set", async () => {
    await using server = await listen();
    const nights = await nightlyJob(scratch.path, { report: { on_failure: `${server.url}/fail` } });
    await heldNight(nights);
    expect(server.calls.map(({ path }) => path)).toEqual(["/fail"]);
  });
});
